"""The architecture, as one list: a module imports only what stands above it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "tagline"

ORDER = (
    "errors", "signals", "notifications", "extras", "registry", "processes", "machines", "secret_detection", "spec",
    "prices", "gcp", "storage", "devices", "resource_usage", "workers", "cluster", "encoding", "profiles",
    "readers", "splits", "texts", "dataset", "columns", "unlabelled", "near_duplicates", "checks", "languages",
    "tracebacks", "remedies", "failures", "model_files", "tokens", "batches", "models", "metrics", "intervals",
    "calibration", "decisions", "words", "compiled", "bundle", "signatures", "language_models", "predictor",
    "cross_fitting", "tables", "batch", "baselines", "wire", "wheels", "prebuilt", "packages", "registries",
    "builders", "builds", "images", "custom_jobs", "staging", "exports", "label_errors", "mistakes", "held_out",
    "slices", "gates", "advice", "report", "cards", "exporting", "packing", "charts", "evaluation", "run_formats",
    "runs", "mirrors", "pages", "comparison", "queueing", "prometheus", "server_log", "prefork", "connections",
    "server", "locks", "trackers", "trials", "training", "launchers", "jobs", "rates", "place_checks",
    "learning_curve", "rehearsal", "console", "cli",
)  # fmt: skip
READERS = ("delimited", "jsonlines", "lines", "automl", "parquet", "hub")
"""Inside readers/: a file imports only the contract and what stands before it."""
PLUG_INS = ("models", "trackers", "exports", "launchers", "endpoints")
"""Inside these a file imports the contract and no other plug-in."""
SHARED = {"models": (
    "tfidf", "regression", "averaging", "loop", "pretrained", "recurrent", "networks", "contrast", "vocabulary",
    "vectors", "learner", "awd_lstm", "fastai_text", "fastai_files", "one_cycle", "course",
), "exports": ("eight_bits",)}  # fmt: skip
"""What several plug-ins of a kind are made of: it may be imported by them, and by what stands after it here."""
HEAVY = {
    "torch": {"models"}, "transformers": {"models"}, "peft": {"models"}, "sklearn": set(), "scipy": set(),
    "optuna": set(), "google": {"gcp", "rehearsal"}, "starlette": {"rehearsal"},
    "uvicorn": {"rehearsal"}, "google_crc32c": {"rehearsal"},
    "pyarrow": {"dataset", "texts"}, "rich": set(), "datasets": set(),
    "tensorboard": {"trackers"}, "wandb": {"trackers"}, "mlflow": {"trackers"},
}  # fmt: skip
"""Packages that may be imported at the top only of these; inside a function they may be imported anywhere."""
ALONE = {"rehearsal": {"rehearsal", "errors", "machines", "processes"}}
"""What could be lifted out: it imports these alone of the rest."""
ONE_DOOR = {"google": {"gcp", "rehearsal"}}
"""Packages that may be imported in these alone, in a function or not."""


def imports(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Each import of a file: line, dotted name, and whether it runs when the file is imported."""
    tree = ast.parse(path.read_text())
    later = {id(node) for outer in ast.walk(tree) if _runs_later(outer) for node in ast.walk(outer)}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        for name in names:
            yield node.lineno, name, id(node) not in later


def _runs_later(node: ast.AST) -> bool:
    for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def violations(src: Path = SRC) -> Iterator[str]:
    for path in sorted(src.rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        me = parts[0]
        if me in ("__init__", "__main__"):
            continue
        if me not in ORDER:
            yield f"{me} has no place in the order"
            continue
        for line, name, at_top in imports(path):
            where = f"{path.relative_to(src)}:{line}"
            top, _, rest = name.partition(".")
            if top in HEAVY and at_top and me not in HEAVY[top]:
                yield f"{where} imports {top} at the top"
            if top in ONE_DOOR and me not in ONE_DOOR[top]:
                yield f"{where} imports {top}, which only {ONE_DOOR[top]} may"
            if top == "tagline":
                yield from _misplaced(where, parts, rest.split("."))


def _misplaced(where: str, parts: tuple[str, ...], other: list[str]) -> Iterator[str]:
    me = parts[0]
    if other[0] in ORDER and ORDER.index(other[0]) > ORDER.index(me):
        yield f"{where} {me} imports {other[0]}, which comes later"
    if me in ALONE and other[0] not in ALONE[me]:
        yield f"{where} {me} imports {other[0]}, which it could not be lifted out with"
    if other[0] != me or len(parts) < 2 or len(other) < 2:
        return
    mine, theirs = parts[1], other[1]
    shared = SHARED.get(me, ())
    allowed = shared[: shared.index(mine)] if mine in shared else shared
    if me in PLUG_INS and mine != "__init__" and (SRC / me / f"{theirs}.py").exists() and theirs not in allowed:
        yield f"{where} plug-in {mine} imports plug-in {theirs}"
    before = READERS[: READERS.index(mine)] if mine in READERS else ()
    if me == "readers" and theirs in READERS and theirs not in before:
        yield f"{where} readers.{mine} imports readers.{theirs}, which comes later"


def test_imports_follow_the_order() -> None:
    assert list(violations()) == []


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("errors.py", "from tagline import spec\n", "comes later"),
        ("spec.py", "import torch\n", "at the top"),
        ("spec.py", "def f():\n    from google.cloud import storage\n", "which only"),
        ("console.py", "import rich\n", "at the top"),
        ("models/linear.py", "from tagline.training import train\n", "comes later"),
        ("models/linear.py", "from tagline.models.encoder import Encoder\n", "imports plug-in"),
        ("models/loop.py", "from tagline.models import networks\n", "imports plug-in"),
        ("helpers.py", "", "no place"),
        ("rehearsal/jobs.py", "from tagline.spec import Spec\n", "lifted out"),
        ("readers/lines.py", "from tagline.readers.hub import rows\n", "comes later"),
    ],
)
def test_the_rule_bites(tmp_path: Path, file: str, source: str, complaint: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(source)
    assert any(complaint in violation for violation in violations(tmp_path))


def test_an_import_inside_a_function_or_for_types_is_no_import_at_the_top(tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\ndef f():\n    import sklearn\n"
    )
    assert list(violations(tmp_path)) == []
