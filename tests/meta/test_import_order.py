"""The architecture of both packages: rooms in order, files in order; a file imports only what stands above it."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ROOMS: dict[str, str] = {
    "errors": "",
    "system": "__init__ signals processes extras lazy_names",
    "registry": "",
    "spec": "secret_detection toml_values sections problems files __init__",
    "gcp": "__init__ machines cloud_storage",
    "storage": "__init__ atomic hashing addresses inputs file_models",
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
    "prediction": """
        __init__ calibration thresholds conformal decisions attribution onnx_runtime bundle signatures predictor files
    """,
    "evaluation": """
        __init__ schema metrics resampling intervals paired_tests cross_fitting baselines label_errors error_analysis
        slices gates
    """,
    "runs": """
        __init__ stores.__init__ formats checkpoints names events lock stores.local stores.bucket run lookup
        notifications resource_usage
        trackers.__init__ trackers.mlflow trackers.tensorboard trackers.vertex trackers.wandb
    """,
    "reports": "__init__ advice report markdown charts evaluate compare html",
    "images": "__init__ wheels sdist google_images image_registries image_builders cloud_build dockerfiles",
    "serving": "__init__ protocol batching metrics log prefork http app",
    "exports": "__init__ int8 onnx torchserve_handler torchserve image transformers export pack",
    "training": """
        spec_sources language_models cluster trials preflight cross_validation context refit finish attempt __init__
        learning_curve
    """,
    "jobs": """
        __init__ prices uploads custom_job
        diagnosis.__init__ diagnosis.tracebacks diagnosis.causes diagnosis.advice diagnosis.log
        launchers.__init__ launchers.local launchers.vertex
        records throughput emulator places plans preflight launch
    """,
    "commands": """
        __init__ bundles init check train evaluate compare predict export serve signatures lm runs jobs info
    """,
    "cli": """
        console options notifying views unknown_options
        init check train evaluate compare predict export serve sign lm info runs jobs rehearsal __init__
    """,
}
"""Rooms in the order of the data's way, each with its files in the order of their imports."""
EMULATOR_ROOMS: dict[str, str] = {
    "errors": "",
    "access": "",
    "connections": "",
    "machines": "",
    "settings": "",
    "client_setup": "",
    "api": "__init__ messages errors methods transcoding v1beta1",
    "filters": "",
    "listing": "",
    "database": "",
    "operations": "",
    "cloud_storage": """
        __init__ methods errors messages checksums names preconditions mime records json_values policies retention
        locations contexts object_settings bucket_settings access_controls customer_keys field_masks files media
        index resources listing journal external_changes store uploads access_lists json_api xml_api application
    """,
    "project": "__init__ quotas faults permissions locations project project_file authorization storage_authorization",
    "logging": "__init__ store service",
    "context": "",
    "execution": "__init__ containers processes environments images workloads replicas queue",
    "training": "__init__ validation runner service training_pipelines",
    "tuning": "__init__ parameters metric_files studies runner service",
    "pipelines": "__init__ spec conditions placeholders task_values task_details task_jobs runner service",
    "prediction": """
        __init__ batch_inputs models servers deployments service evaluations model_service endpoints
        batch_runner batch_service
    """,
    "metadata": "__init__ tensorboards service schemas",
    "other_services": """
        __init__ methods documents build_specs build_logs artifact_registry builds cloud_build resource_manager
        secret_manager service_accounts service_usage routes
    """,
    "protocol": "__init__ certificates tunnels metadata_server lookups registry dispatch http grpc projects_grpc",
    "console": "__init__ api page",
    "discovery": "",
    "app": "",
    "cli": "",
}
"""The emulator's: what it is made of, what it runs on, the services, and how they are reached."""
UNORDERED: tuple[str, ...] = ()
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
    "google": {"gcp"},
    "starlette": set(),
    "uvicorn": set(),
    "pyarrow": {"data.dataset", "data.texts"},
    "rich": set(),
    "datasets": set(),
    "tensorboard": {"runs.trackers"},
    "wandb": {"runs.trackers"},
    "mlflow": {"runs.trackers"},
    "vertex_rehearsal": set(),
}
"""Packages that may be imported at the top only in these; inside a function they may be imported anywhere."""
ONE_DOOR = {"google": {"gcp"}, "vertex_rehearsal": {"jobs", "cli"}}
"""Packages that may be imported in these alone, in a function or not."""


@dataclass(frozen=True)
class Tree:
    """A package, and what its files may import."""

    src: Path
    rooms: Mapping[str, str]
    unordered: tuple[str, ...] = ()
    plug_ins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    heavy: Mapping[str, set[str]] = field(default_factory=dict)
    one_door: Mapping[str, set[str]] = field(default_factory=dict)

    @property
    def package(self) -> str:
        return self.src.name


TAGLINE = Tree(ROOT / "src" / "tagline", ROOMS, UNORDERED, PLUG_INS, HEAVY, ONE_DOOR)
EMULATOR = Tree(
    ROOT / "rehearsal" / "src" / "vertex_rehearsal",
    EMULATOR_ROOMS,
    heavy={name: set() for name in ("torch", "tagline", "onnxruntime", "tokenizers", "numpy")},
    one_door={name: set() for name in ("tagline", "torch", "onnxruntime", "tokenizers", "numpy")},
)


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


def violations(tree: Tree) -> Iterator[str]:
    """Everything that an import order forbids."""
    for path in sorted(tree.src.rglob("*.py")):
        room, _, file = ".".join(path.relative_to(tree.src).with_suffix("").parts).partition(".")
        if room in ("__init__", "__main__"):
            continue
        is_listed = file in tree.rooms.get(room, "").split() or room in tree.unordered
        if room not in tree.rooms or (file and not is_listed):
            yield f"{path.relative_to(tree.src)} has no place in the order"
            continue
        for line, name, at_top in imports(path):
            where = f"{path.relative_to(tree.src)}:{line}"
            top, _, rest = name.partition(".")
            is_allowed = any(f"{room}.{file}.".startswith(f"{place}.") for place in tree.heavy.get(top, ()))
            if top in tree.heavy and at_top and not is_allowed:
                yield f"{where} imports {top} at the top"
            if top in tree.one_door and room not in tree.one_door[top]:
                yield f"{where} imports {top}, which only {tree.one_door[top]} may"
            if top == tree.package:
                yield from _misplaced(tree, where, room, file, rest)


def _misplaced(tree: Tree, where: str, room: str, file: str, imported: str) -> Iterator[str]:
    order = list(tree.rooms)
    other, _, rest = imported.partition(".")
    if other in order and order.index(other) > order.index(room):
        yield f"{where} {room} imports {other}, which comes later"
    if other != room or room in tree.unordered:
        return
    files = tree.rooms[room].split()
    theirs = _file_of(rest, files)
    if theirs and files.index(theirs) > files.index(file):
        yield f"{where} {room}.{file} imports {room}.{theirs}, which comes later"
    yield from _mixed_plug_ins(tree, where, f"{room}.{file}", f"{room}.{theirs}")


def _file_of(imported: str, files: list[str]) -> str:
    """The file of a room that a dotted name is, or is in."""
    parts = imported.split(".")
    for end in range(len(parts), -1, -1):
        for name in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if name in files:
                return name
    return ""


def _mixed_plug_ins(tree: Tree, where: str, mine: str, theirs: str) -> Iterator[str]:
    for contract, names in tree.plug_ins.items():
        one, other = (_plug_in(file, contract, names) for file in (mine, theirs))
        if one and other and one != other:
            yield f"{where} plug-in {one} imports plug-in {other}"


def _plug_in(file: str, contract: str, names: tuple[str, ...]) -> str:
    inside = file.removeprefix(f"{contract}.").split(".")[0] if file.startswith(f"{contract}.") else ""
    return inside if inside in names else ""


@pytest.mark.parametrize("tree", [TAGLINE, EMULATOR], ids=lambda tree: tree.package)
def test_imports_follow_the_order(tree: Tree) -> None:
    assert list(violations(tree)) == []


@pytest.mark.parametrize("tree", [TAGLINE, EMULATOR], ids=lambda tree: tree.package)
def test_every_place_in_the_order_is_taken(tree: Tree) -> None:
    for room, files in tree.rooms.items():
        for file in files.split() or ["__init__"]:
            path = tree.src / room / (file.replace(".", "/") + ".py")
            assert path.is_file() or (tree.src / f"{room}.py").is_file(), f"{room}.{file}"


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
        ("data/columns.py", "def f():\n    from vertex_rehearsal import cli\n", "which only"),
        ("data/readers/lines.py", "from tagline.data.readers.hub import rows\n", "comes later"),
    ],
)
def test_the_rule_bites(tmp_path: Path, file: str, source: str, complaint: str) -> None:
    tree = replace(TAGLINE, src=tmp_path / "tagline")
    (tree.src / file).parent.mkdir(parents=True, exist_ok=True)
    (tree.src / file).write_text(source)
    assert any(complaint in violation for violation in violations(tree))


def test_an_import_inside_a_function_or_for_types_is_no_import_at_the_top(tmp_path: Path) -> None:
    tree = replace(TAGLINE, src=tmp_path / "tagline")
    tree.src.mkdir()
    (tree.src / "registry.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\ndef f():\n    import sklearn\n"
    )
    assert list(violations(tree)) == []
