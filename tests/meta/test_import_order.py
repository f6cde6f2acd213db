"""The architecture: rooms in order, and the files of each room in order; a file imports only what stands above it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "tagline"

ROOMS: dict[str, str] = {
    "errors": "",
    "system": "__init__ signals processes extras lazy_names",
    "registry": "",
    "spec": "secret_detection __init__",
    "gcp": "__init__ machines cloud_storage",
    "rehearsal": "",
    "storage": "__init__",
    "data": """
        __init__ column_profiles splits texts
        readers.encoding readers.__init__ readers.delimited readers.jsonlines readers.lines readers.automl
        readers.parquet readers.hub
        dataset columns unlabelled near_duplicates checks language_check writers
    """,
    "models": """
        __init__ model_files
        nn.__init__ nn.devices nn.workers nn.tokens nn.batches nn.weight_averaging nn.loop nn.pretrained nn.recurrent
        nn.networks nn.vocabulary nn.word_vectors nn.learner
        linear.tfidf linear.regression linear.__init__
        lstm encoder
        fewshot.contrastive fewshot.__init__
        ulmfit.awd_lstm ulmfit.tokenizer ulmfit.checkpoints ulmfit.one_cycle ulmfit.stages ulmfit.__init__
    """,
    "prediction": "__init__ calibration decisions attribution onnx_runtime bundle signatures predictor files",
    "evaluation": "__init__ metrics intervals cross_fitting baselines label_errors error_analysis slices gates",
    "runs": """
        __init__ formats lock run remote notifications resource_usage
        trackers.__init__ trackers.mlflow trackers.tensorboard trackers.vertex trackers.wandb
    """,
    "reports": "__init__ advice report markdown charts evaluate compare html",
    "images": "__init__ wheels sdist google_images image_registries image_builders cloud_build dockerfiles",
    "serving": "__init__ protocol batching metrics log prefork http app",
    "exports": "__init__ int8 onnx torchserve_handler torchserve image transformers export pack",
    "training": "language_models cluster trials preflight cross_validation __init__ learning_curve",
    "jobs": """
        __init__ prices uploads custom_job
        diagnosis.__init__ diagnosis.tracebacks diagnosis.causes diagnosis.log
        launchers.__init__ launchers.local launchers.vertex
        records throughput emulator places plans preflight launch
    """,
    "commands": """
        __init__ bundles init check train evaluate compare predict export serve signatures lm runs jobs rehearsal info
    """,
    "cli": """
        console options notifying views unknown_options
        init check train evaluate compare predict export serve sign lm info runs jobs rehearsal __init__
    """,
}
"""Rooms in the order of the data's way, each with its files in the order of their imports."""
ORDER = tuple(ROOMS)
UNORDERED = ("rehearsal",)
"""Rooms whose insides have no order yet."""
PLUG_INS = {
    "models": ("encoder", "fewshot", "linear", "lstm", "ulmfit"),
    "exports": ("image", "onnx", "torchserve", "transformers"),
    "runs.trackers": ("mlflow", "tensorboard", "vertex", "wandb"),
    "jobs.launchers": ("local", "vertex"),
}
"""Implementations of one contract: none imports another."""
HEAVY = {
    "torch": {"models"},
    "transformers": {"models"},
    "peft": {"models"},
    "sklearn": set(),
    "scipy": set(),
    "optuna": set(),
    "google": {"gcp", "rehearsal"},
    "starlette": {"rehearsal"},
    "uvicorn": {"rehearsal"},
    "google_crc32c": {"rehearsal"},
    "pyarrow": {"data.dataset", "data.texts"},
    "rich": set(),
    "datasets": set(),
    "tensorboard": {"runs.trackers"},
    "wandb": {"runs.trackers"},
    "mlflow": {"runs.trackers"},
}
"""Packages that may be imported at the top only in these; inside a function they may be imported anywhere."""
ALONE = {"rehearsal": {"rehearsal", "errors", "gcp", "system"}}
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
    """Everything that an import order forbids."""
    for path in sorted(src.rglob("*.py")):
        room, _, file = ".".join(path.relative_to(src).with_suffix("").parts).partition(".")
        if room in ("__init__", "__main__"):
            continue
        if room not in ROOMS or (file and room not in UNORDERED and file not in ROOMS[room].split()):
            yield f"{path.relative_to(src)} has no place in the order"
            continue
        for line, name, at_top in imports(path):
            where = f"{path.relative_to(src)}:{line}"
            top, _, rest = name.partition(".")
            is_allowed = any(f"{room}.{file}.".startswith(f"{place}.") for place in HEAVY.get(top, ()))
            if top in HEAVY and at_top and not is_allowed:
                yield f"{where} imports {top} at the top"
            if top in ONE_DOOR and room not in ONE_DOOR[top]:
                yield f"{where} imports {top}, which only {ONE_DOOR[top]} may"
            if top == "tagline":
                yield from _misplaced(where, room, file, rest)


def _misplaced(where: str, room: str, file: str, imported: str) -> Iterator[str]:
    other, _, rest = imported.partition(".")
    if other in ORDER and ORDER.index(other) > ORDER.index(room):
        yield f"{where} {room} imports {other}, which comes later"
    if room in ALONE and other not in ALONE[room]:
        yield f"{where} {room} imports {other}, which it could not be lifted out with"
    if other != room or room in UNORDERED:
        return
    files = ROOMS[room].split()
    theirs = _file_of(rest, files)
    if theirs and files.index(theirs) > files.index(file):
        yield f"{where} {room}.{file} imports {room}.{theirs}, which comes later"
    yield from _mixed_plug_ins(where, f"{room}.{file}", f"{room}.{theirs}")


def _file_of(imported: str, files: list[str]) -> str:
    """The file of a room that a dotted name is, or is in."""
    parts = imported.split(".")
    for end in range(len(parts), -1, -1):
        for name in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if name in files:
                return name
    return ""


def _mixed_plug_ins(where: str, mine: str, theirs: str) -> Iterator[str]:
    for contract, names in PLUG_INS.items():
        one, other = (_plug_in(file, contract, names) for file in (mine, theirs))
        if one and other and one != other:
            yield f"{where} plug-in {one} imports plug-in {other}"


def _plug_in(file: str, contract: str, names: tuple[str, ...]) -> str:
    inside = file.removeprefix(f"{contract}.").split(".")[0] if file.startswith(f"{contract}.") else ""
    return inside if inside in names else ""


def test_imports_follow_the_order() -> None:
    assert list(violations()) == []


def test_every_place_in_the_order_is_taken() -> None:
    for room, files in ROOMS.items():
        for file in files.split() or ["__init__"]:
            path = SRC / room / (file.replace(".", "/") + ".py")
            assert path.is_file() or (SRC / f"{room}.py").is_file(), f"{room}.{file}"


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("errors.py", "from tagline import spec\n", "comes later"),
        ("spec/__init__.py", "import torch\n", "at the top"),
        ("spec/__init__.py", "def f():\n    from google.cloud import storage\n", "which only"),
        ("cli/console.py", "import rich\n", "at the top"),
        ("models/linear/__init__.py", "from tagline.training import train\n", "comes later"),
        ("models/linear/__init__.py", "from tagline.models.encoder import Encoder\n", "imports plug-in"),
        ("models/nn/loop.py", "from tagline.models.nn import networks\n", "comes later"),
        ("prediction/calibration.py", "from tagline.prediction.bundle import Bundle\n", "comes later"),
        ("runs/trackers/wandb.py", "from tagline.runs.trackers.mlflow import MLflow\n", "imports plug-in"),
        ("cli/views.py", "def f():\n    from tagline.cli.train import train\n", "comes later"),
        ("helpers.py", "", "no place"),
        ("data/helpers.py", "", "no place"),
        ("rehearsal/jobs.py", "from tagline.spec import Spec\n", "lifted out"),
        ("data/readers/lines.py", "from tagline.data.readers.hub import rows\n", "comes later"),
    ],
)
def test_the_rule_bites(tmp_path: Path, file: str, source: str, complaint: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(source)
    assert any(complaint in violation for violation in violations(tmp_path))


def test_an_import_inside_a_function_or_for_types_is_no_import_at_the_top(tmp_path: Path) -> None:
    (tmp_path / "registry.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\ndef f():\n    import sklearn\n"
    )
    assert list(violations(tmp_path)) == []
