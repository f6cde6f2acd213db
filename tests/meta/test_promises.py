"""Promises that nobody would notice being broken: what is imported, what is read, what is printed, what is named."""

import ast
import pydoc
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from packaging.utils import canonicalize_name
from pydantic import BaseModel

import tagline
from tagline import jobs, registry, runs
from tagline import spec as specs
from tagline.cli import app
from tagline.data import dataset
from tagline.data.columns import complete_spec
from tagline.runs import lock
from tagline.runs.run import Run
from tagline.system.signals import Stop
from tagline.training import preflight
from tagline.training.attempt import Attempt
from tagline.training.context import AttemptContext

sys.path.insert(0, str(Path(__file__).parents[1]))
from bare import run_bare

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "tagline"
NOT_FOR_HELP = (
    "torch",
    "transformers",
    "sklearn",
    "scipy",
    "google",
    "numpy",
    "pyarrow",
    "pydantic",
    "rich",
    "starlette",
)
QUICK = ("model.family=linear", "model.max_features=500", "model.strength=4.0", "model.characters=0")


def test_help_imports_nothing_heavy() -> None:
    code = """
import sys
before = set(sys.modules)  # Google's packages put the one that they share there in every process
from tagline.cli import run
run(['--help'])
print(*(set(sys.modules) - before), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage: tagline" in done.stdout
    assert {name.partition(".")[0] for name in done.stderr.split()} & set(NOT_FOR_HELP) == set()


def test_a_plan_needs_neither_torch_nor_google(tmp_path: Path) -> None:
    code = """
import sys
from tagline.cli import run
assert run(['train', sys.argv[1], '--on', 'vertex', '--plan', '--json']) == 0
print(*sys.modules, file=sys.stderr)
"""
    data = ROOT / "examples" / "support" / "messages.csv"
    environment = {"HOME": str(tmp_path), "PATH": "", "GOOGLE_APPLICATION_CREDENTIALS": "/no/such/file.json"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(data)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
    )
    assert '"is_estimate": true' in done.stdout
    loaded = set(done.stderr.split())
    assert loaded & {"torch", "transformers", "google.auth", "google.api_core", "google.cloud.aiplatform_v1"} == set()


def test_a_spec_of_family_encoder_is_checked_without_torch() -> None:
    code = """
import sys
from tagline import spec
import tagline.models.encoder
assert spec.defaults({"train": "x.csv"}).model.family == "encoder"
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} & {"torch", "transformers", "peft"} == set()


def test_family_linear_is_trained_without_what_takes_long_to_import(tmp_path: Path) -> None:
    code = """
import sys
from tagline.cli import run
assert run(['train', *sys.argv[1:]]) == 0
print(*sys.modules, file=sys.stderr)
"""
    words = [str(ROOT / "examples" / "support" / "messages.csv"), *QUICK]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    loaded = {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}
    assert "scipy" in loaded
    assert loaded & {"torch", "transformers", "sklearn", "pandas", "google"} <= {"google"}  # a namespace of others too


def test_a_bundle_predicts_where_only_the_base_install_is(support: Path, tmp_path: Path) -> None:
    run = tagline.train(str(support / "messages.csv"), *QUICK, runs=tmp_path)
    (tmp_path / "new.csv").write_text("message\nWhere is my parcel?\n")
    printed = run_bare(f"""
from tagline.cli import run
assert run(["predict", {str(run.bundle)!r}, "Where is my parcel?"]) == 0
source, output = {str(tmp_path / "new.csv")!r}, {str(tmp_path / "out.csv")!r}
sys.exit(run(["predict", {str(run.bundle)!r}, "--input", source, "--output", output]))
""")
    assert printed.startswith("delivery")


def test_a_bundle_is_served_where_only_the_base_install_is(support: Path, tmp_path: Path) -> None:
    run = tagline.train(str(support / "messages.csv"), *QUICK, runs=tmp_path)
    printed = run_bare(f"""
from tagline.serving import app as server
from tagline.prediction.bundle import Bundle
served = server.LoadedBundle(Bundle.load({str(run.bundle)!r}), threads=1)
settings = server.ServerSettings()
server.ServerRoutes(served, settings, server.ServerMetrics(served.manifest, settings, processes=1), write_log=print)
assert served.predictor.explain("my parcel", "delivery")
print(served.predict(["Where is my parcel?"], 0.9)[0].label)
""")
    assert printed.startswith("delivery")


SPIED = ("data", "training", "decisions", "gates")


class Spy:
    """A section of the spec that notes which of its keys are read."""

    def __init__(self, section: BaseModel, name: str, seen: set[str]) -> None:
        self.__dict__.update(_section=section, _name=name, _seen=seen)

    def __getattr__(self, key: str) -> Any:
        if key in type(self._section).model_fields:
            self._seen.add(f"{self._name}.{key}")
        attribute = getattr(type(self._section), key, None)
        if isinstance(attribute, property):
            return attribute.fget(self)  # a property reads the keys it is made of
        method = getattr(attribute, "__func__", attribute)
        if callable(method) and not key.startswith("model_"):
            return lambda *args, **kwargs: method(self, *args, **kwargs)
        return getattr(self._section, key)


def read_by_a_run(spec: specs.Spec, runs: Path) -> set[str]:
    """The keys that a run on this spec reads."""
    seen: set[str] = set()
    spies: dict[str, Any] = {name: Spy(getattr(spec, name), name, seen) for name in SPIED}
    data = dataset.load(spies["data"])
    run = Run.create(runs, spec, lock.create_lock(spec, data, command="a test"))
    spied: Any = SimpleNamespace(**spies, model=spec.model, tuning=spec.tuning, model_dump=spec.model_dump)
    list(Attempt(AttemptContext(run, spied, data, []), Stop(hint="")).events())
    return seen


def test_every_setting_is_read_by_something(
    support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: Callable[[str], Path]
) -> None:
    monkeypatch.setattr(preflight, "unused_settings", lambda *_: [])  # it reads all, to say which have no effect
    small = {"pretrained": str(checkpoint("bert")), "max_tokens": 16}
    seen: set[str] = set()
    for name in ("messages-multi.csv", "messages.csv"):
        raw = {"data": {"train": str(support / name)}, "model": small, "training": {"epochs": 1}}
        spec = complete_spec(raw, where="a test").spec
        seen |= read_by_a_run(spec, tmp_path)
    all_keys = {key for key, _ in specs.iter_keys(spec) if key.partition(".")[0] in SPIED}
    assert all_keys - seen == set()


def test_every_option_of_a_family_is_read_by_it() -> None:
    for family in registry.list_names("models"):
        source = Path(sys.modules[registry.find("models", family).__module__].__file__ or "").read_text()
        attributes = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
        assert set(specs.options_of(family).model_fields) - attributes - {"family"} == set()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epochs", 7), ("batch_size", 7), ("learning_rate", 0.1), ("weight_decay", 0.5), ("warmup_share", 0.5),
        ("label_smoothing", 0.5), ("precision", "float32"), ("evaluate_every", 7), ("sharding", "full"),
    ],
)  # fmt: skip
def test_a_setting_that_a_family_does_not_read_is_said(key: str, value: Any) -> None:
    changed = specs.Training(**{key: value})
    assert preflight.unused_settings(changed, "linear") == [f"training.{key} has no effect on family linear"]
    assert preflight.unused_settings(changed, "encoder") == []


def test_only_the_console_prints_and_only_the_command_line_exits() -> None:
    for path in SRC.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if path.name != "console.py":
            assert not any(isinstance(call, ast.Name) and call.id == "print" for call in calls), path
        if "cli" not in path.parts:
            assert not any(isinstance(call, ast.Attribute) and call.attr == "exit" for call in calls), path


def test_every_module_says_in_one_sentence_what_it_is() -> None:
    for path in SRC.rglob("*.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, path
        assert docstring.split("\n")[0].endswith((".", ":")), path


def test_public_names_are_the_documented_names() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    documented = set(re.findall(r"^## `tagline\.([\w.]+)", page, flags=re.M))
    below = {f"{room.__name__.partition('.')[2]}.{name}" for room in (jobs, runs) for name in room.COMMANDS}
    assert documented == {*tagline.__all__, *below} - {"__version__", "jobs", "runs"}
    assert all(hasattr(tagline, name) for name in tagline.__all__)


def test_an_interactive_session_sees_the_public_names() -> None:
    code = "import tagline; print(*dir(tagline), *dir(tagline.runs), *dir(tagline.jobs))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {*tagline.__all__, "runs", "jobs", *runs.COMMANDS, *jobs.COMMANDS} <= {*done.stdout.split()}


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = tagline.nonsense  # type: ignore[attr-defined]


def test_the_extras_are_those_of_the_design_and_two_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    design = {"train", "vertex", "rehearsal", "track", "pipelines", "dev", "all"}
    assert set(project["optional-dependencies"]) == {*design, "sign", "ulmfit"}
    assert not any(package.startswith(("torch", "scikit-learn", "pyarrow")) for package in project["dependencies"])
    assert any(package.startswith("torch") for package in project["optional-dependencies"]["train"])


def test_every_pinned_package_is_installed_by_version_and_hash() -> None:
    pins = {canonicalize_name(name): version for name, version in read_pins(ROOT / "constraints.txt")}
    assert pins.pop("torch") == "2.13.0"  # whose builds (CPU, CUDA) have no one hash
    locked: dict[str, str] = {}
    for file in ("train.txt", "dev.txt"):
        text = (ROOT / "requirements" / file).read_text().replace("\\\n", " ")
        for line in text.splitlines()[1:]:
            requirement, *hashes = line.split()
            assert hashes, requirement
            assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), requirement
            name, version = requirement.split("==")
            assert locked.setdefault(name, version) == version
    assert locked == pins, "run: make lock"


def test_the_build_backend_is_the_pinned_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pins = dict(read_pins(ROOT / "constraints.txt"))
    assert project["build-system"]["requires"] == [f"hatchling=={pins['hatchling']}"]


def read_pins(path: Path) -> list[list[str]]:
    return [line.split("==") for line in path.read_text().splitlines() if not line.startswith("#")]


def test_a_finished_run_can_be_opened_as_a_run(support: Path, tmp_path: Path) -> None:
    run = tagline.train(str(support / "pairs.csv"), *QUICK, runs=tmp_path)
    assert Run.open(run.directory).state().name == "succeeded"


def command_names(command: Any, name: str = "tagline") -> Iterator[str]:
    """Every command that can be typed."""
    yield name
    for part, below in getattr(command, "commands", {}).items():
        yield from command_names(below, f"{name} {part}")


def test_the_reference_has_every_command() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert re.findall(r"^## `(.+)`$", page, flags=re.M) == list(command_names(typer.main.get_command(app)))


def test_the_python_page_names_every_command_and_only_functions_that_there_are() -> None:
    page = (ROOT / "docs" / "how-to" / "python.md").read_text()
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"`{name}`" in page
    for named in set(re.findall(r"`(tagline\.[\w.]+)`", page)):
        assert callable(pydoc.locate(named)), named
