"""The package of a job: its contents, a real installation of it without any network, and what pip says before."""

import dataclasses
import io
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.version import Version

from tagline import registry
from tagline.errors import PlaceError, SpecError
from tagline.images import dockerfiles, sdist, wheels

pytestmark = pytest.mark.trains

KEY = "-----BEGIN PRIVATE KEY-----\nplanted-4711\n-----END PRIVATE KEY-----\n"
ACCOUNT = '{"type": "service_account", "private_key": "planted-4711"}'


def unpacked(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        return {entry.name: opened.extractfile(entry).read() for entry in opened}  # type: ignore[union-attr]


def test_equal_contents_are_equal_bytes_and_any_change_is_another_name() -> None:
    made = sdist.build_sdist(("train", "vertex"))
    assert sdist.build_sdist(("train", "vertex")) == made
    other = sdist.build_sdist(("train", "vertex"), project_files={"my_rules.py": b"RULES = 1\n"})
    assert other.file != made.file
    assert made.file.startswith("tagline-")
    assert f"{other.file.removesuffix('.tar.gz')}/wheel/my_rules.py" in unpacked(other.content)


def test_it_needs_what_the_job_needs_in_the_versions_of_here_and_leaves_torch_to_the_image() -> None:
    made = sdist.build_sdist(("train", "vertex"))
    place = made.file.removesuffix(".tar.gz")
    about = message_from_bytes(unpacked(made.content)[f"{place}/PKG-INFO"])
    assert tuple(about.get_all("Requires-Dist", ())) == made.requirements
    assert set(made.requirements) == {
        *(pin for pin in wheels.list_pins("train", "vertex") if not pin.startswith("torch==")),
        "torch>=2.6",
    }
    assert about["Requires-Python"] == wheels.find_distribution().metadata["Requires-Python"]
    assert f"tagline-{about['Version']}.tar.gz" == made.file
    base = sdist.build_sdist(())
    assert not any(need.startswith("torch") for need in base.requirements)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment into which pip has built and installed the package, with no index to ask."""
    directory = tmp_path_factory.mktemp("environment")
    made = sdist.build_sdist(("train", "vertex"), project_files={"my_rules.py": b"RULES = 1\n"})
    (directory / made.file).write_bytes(made.content)
    venv.EnvBuilder(symlinks=True).create(directory / "venv")
    python = directory / "venv" / "bin" / "python"
    words = ["--python", str(python), "install", "--no-index", "--no-deps", "--upgrade", "--force-reinstall"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    command = [sys.executable, "-m", "pip", *words, str(directory / made.file)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return python


def test_pip_builds_it_in_isolation_with_no_network_and_it_runs(installed: Path) -> None:
    shared = [path for path in sys.path if path.endswith("site-packages")]
    code = (
        f"import sys; sys.path += {shared!r}; import my_rules, tagline, runpy; "
        "assert '/venv/lib/' in tagline.__file__; sys.argv = ['tagline', '--version']; "
        "runpy.run_module('tagline', run_name='__main__')"
    )
    done = subprocess.run([installed, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(wheels.find_distribution().version)


def test_plug_ins_of_others_are_not_taken_along_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry.list_implementations("models") | {"theirs": "their_package.models:Theirs"}
    monkeypatch.setattr(
        registry, "list_implementations", lambda kind: known if kind == "models" else registry.BUILT_IN[kind]
    )
    (said,) = sdist.find_missing_plugins(family="theirs", trackers=["wandb"])
    assert said.startswith("family theirs is not Tagline's own (their_package.models:Theirs) and not taken along;")
    assert sdist.find_missing_plugins(family="encoder", trackers=["wandb"]) == []


def test_the_extras_follow_from_family_and_trackers() -> None:
    assert wheels.choose_extras(family="encoder") == ("train", "vertex")
    assert wheels.choose_extras(family="ulmfit", trackers=["wandb", "vertex"]) == ("train", "vertex", "ulmfit", "track")
    assert wheels.choose_extras(family="linear", trackers=["vertex"]) == ("train", "vertex")


@pytest.mark.parametrize(
    ("name", "content"),
    [(".env", b"X=1"), ("keys/id_rsa", b"x"), ("my.pem", b"x"), ("a.json", ACCOUNT.encode()), ("b.py", KEY.encode())],
)
def test_a_secret_is_no_file_of_a_project(name: str, content: bytes) -> None:
    with pytest.raises(SpecError, match="looks like a secret"):
        sdist.build_sdist((), project_files={name: content})


@pytest.mark.parametrize("name", ["/etc/x.py", "../x.py", "tagline/spec.py", ""])
def test_a_file_that_would_lie_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="cannot be put beside the package"):
        sdist.build_sdist((), project_files={name: b""})


def test_no_secret_of_here_is_in_a_package_or_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in the environment, and files beside the project, are nobody's business."""
    planted = b"planted-4711"
    monkeypatch.setenv("WANDB_API_KEY", planted.decode())
    monkeypatch.setenv("REHEARSAL_TOKEN", planted.decode())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    monkeypatch.setenv("PIP_INDEX_URL", f"https://user:{planted.decode()}@packages.example/simple")
    (tmp_path / "account.json").write_text(ACCOUNT)
    (tmp_path / ".env").write_text(f"WANDB_API_KEY={planted.decode()}")
    monkeypatch.chdir(tmp_path)
    context = dockerfiles.create_training_context(
        "x/y", extras=("train", "vertex"), accelerator="NVIDIA_L4", reduction_server=True
    )
    package = sdist.build_sdist(("train", "vertex", "track"))
    wheel = next(content for name, content in context.files.items() if name.endswith(".whl"))
    with zipfile.ZipFile(io.BytesIO(wheel)) as opened:
        inside = {name: opened.read(name) for name in opened.namelist()}
    looked_through = [context.files, unpacked(context.archive()), inside, unpacked(package.content)]
    assert sum(map(len, looked_through)) > 300
    for files in looked_through:
        for name, content in files.items():
            assert planted not in content, name
            assert not name.endswith((".env", ".json.key", "account.json"))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only packages there are: `red` and `blue`, which want different versions of `paint`."""
    for name, version, needs in (
        ("red", "1.0", ["paint<2"]),
        ("blue", "1.0", ["paint>=2"]),
        ("paint", "1.0", []),
        ("paint", "2.0", []),
    ):
        about = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in needs)]
        files = {
            f"{name}-{version}.dist-info/METADATA": "\n".join(["Metadata-Version: 2.1", *about, ""]).encode(),
            f"{name}-{version}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{name}-{version}.dist-info/RECORD": b"",
        }
        with (tmp_path / f"{name}-{version}-py3-none-any.whl").open("wb") as target:
            wheels.write_zip(files, target)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


def test_what_installs_together_is_known_with_its_versions(index: None) -> None:
    assert sdist.resolve_versions(["red"]) == sdist.ResolvedPackages(("paint==1.0", "red==1.0"))


def test_a_conflict_names_the_packages(index: None) -> None:
    with pytest.raises(PlaceError, match="do not install together") as caught:
        sdist.resolve_versions(["red", "blue"])
    assert "red 1.0 depends on paint<2" in caught.value.message
    assert "blue 1.0 depends on paint>=2" in caught.value.message


def test_a_package_that_nobody_has_is_named(index: None) -> None:
    with pytest.raises(PlaceError, match=r"No matching distribution found for green==3"):
        sdist.resolve_versions(["green==3"])


def test_without_a_network_nobody_knows_and_that_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    found = sdist.resolve_versions(["red"])
    assert (found.pins, found.warning.endswith("pip's index cannot be reached")) == ((), True)


def test_an_index_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sdist.resolve_versions(["red"], patience_s=0.01)
    assert (found.pins, "was not known after 0.01 seconds" in found.warning) == ((), True)


def test_packages_that_do_not_fit_together_here_are_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = wheels._find_package("numpy")
    assert numpy is not None
    old = dataclasses.replace(numpy, version=Version("0.1"))
    real = wheels._find_package
    monkeypatch.setattr(wheels, "_find_package", lambda name: old if name == "numpy" else real(name))
    with pytest.raises(PlaceError, match=r"numpy 0\.1 is installed here, and \S+ needs"):
        wheels.list_pins("train")


def test_what_is_not_installed_here_has_no_version_to_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    real = wheels._find_package
    monkeypatch.setattr(wheels, "_find_package", lambda name: None if name == "wandb" else real(name))
    assert wheels.list_pins("train")
    with pytest.raises(PlaceError, match="wandb is needed there and not installed here"):
        wheels.list_pins("train", "track")


def test_hidden_files_beside_the_code_stay_here(tmp_path: Path) -> None:
    for name in (".env", "spec.py", ".idea/key.pem", "__pycache__/spec.pyc", "templates/page.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(KEY)
    assert set(wheels._read_sources(tmp_path)) == {"tagline/spec.py", "tagline/templates/page.html"}
