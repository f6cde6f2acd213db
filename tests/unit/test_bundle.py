"""A bundle's files are what its manifest says they are."""

import json
import re
from pathlib import Path

import pytest

import tagline
from bare import run_bare
from tagline.errors import BundleError, DataError, PlaceError
from tagline.models.linear import Linear
from tagline.prediction.bundle import FORMAT, Bundle, Manifest
from tagline.runs.run import Run

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
QUICK = ("model.family=linear", "model.max_features=500", "model.strength=4.0", "model.characters=0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return tagline.train(SUPPORT / "messages.csv", *QUICK, runs=tmp_path_factory.mktemp("runs"))


@pytest.fixture
def bundle(run: Run, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    import shutil

    return Path(shutil.copytree(run.bundle, tmp_path / "bundle"))


def test_a_bundle_holds_what_the_design_says(run: Run) -> None:
    names = {path.name for path in run.bundle.iterdir()}
    assert {"tagline.json", "model.safetensors", "config.json", "README.md"} <= names
    manifest = json.loads((run.bundle / "tagline.json").read_text())
    assert manifest["format"] == FORMAT
    assert manifest["labels"] == ["account", "billing", "delivery", "praise", "returns", "technical"]
    assert manifest["spec"]["data"]["text"] == "message"
    assert set(manifest["files"]) == names - {"tagline.json"}


def test_it_predicts_by_itself(bundle: Path) -> None:
    prediction = tagline.load(bundle).predict(["Where is my parcel? The tracking has not moved."])[0]
    assert prediction.label == "delivery"
    assert prediction.score == max(prediction.scores.values())
    assert sum(prediction.scores.values()) == pytest.approx(1, abs=1e-4)


def test_one_text_by_itself_is_a_list_of_one(bundle: Path) -> None:
    assert len(tagline.load(bundle).predict("Where is my parcel?")) == 1
    assert tagline.load(bundle).predict([]) == []


def test_what_is_no_text_is_refused(bundle: Path) -> None:
    with pytest.raises(DataError, match="text 2 is int, not a text"):
        tagline.load(bundle).predict(["fine", 3])  # type: ignore[list-item]


def test_a_changed_byte_is_an_error_that_names_the_file(bundle: Path) -> None:
    for name in json.loads((bundle / "tagline.json").read_text())["files"]:
        original = (bundle / name).read_bytes()
        (bundle / name).write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        with pytest.raises(BundleError, match=name):
            Bundle.load(bundle)
        (bundle / name).write_bytes(original)
    Bundle.load(bundle)


def signed(bundle: Path, **changes: object) -> None:
    """Change the manifest, and its own checksum with it."""
    manifest = Manifest.model_validate_json((bundle / "tagline.json").read_text()).model_copy(update=changes)
    manifest = manifest.model_copy(update={"sha256": manifest.digest()})
    (bundle / "tagline.json").write_text(manifest.to_json())


def test_a_changed_manifest_is_an_error_that_names_it(bundle: Path) -> None:
    text = (bundle / "tagline.json").read_text()
    (bundle / "tagline.json").write_text(text.replace('"billing"', '"bolling"'))
    with pytest.raises(BundleError, match=r"tagline\.json has changed"):
        tagline.load(bundle)


def test_a_manifest_that_lacks_files_or_decisions_is_damaged(bundle: Path) -> None:
    decisions = json.loads((bundle / "tagline.json").read_text())["decisions"]
    signed(bundle, decisions={})
    with pytest.raises(BundleError, match="decisions"):
        tagline.load(bundle)
    for name in ("config.json", "model.safetensors", "vocabulary.json"):
        (bundle / name).unlink()
    signed(bundle, files={}, decisions=decisions)
    with pytest.raises(BundleError, match=r"config\.json is damaged"):
        tagline.load(bundle)


def test_a_file_that_the_manifest_does_not_list_is_refused(bundle: Path) -> None:
    signed(bundle, files={})
    with pytest.raises(BundleError, match=r"does not list: (config|vocabulary|model)\."):
        Bundle.load(bundle)


@pytest.mark.parametrize("name", ["notes.txt", "onnx/model.onnx"])
def test_a_file_that_was_added_is_refused_by_name(bundle: Path, name: str) -> None:
    (bundle / name).parent.mkdir(exist_ok=True)
    (bundle / name).write_text("added")
    with pytest.raises(BundleError, match=f"does not list: {name}"):
        Bundle.load(bundle)


def test_hidden_files_and_an_unlisted_card_are_passed_over(bundle: Path) -> None:
    (bundle / ".DS_Store").write_text("a file manager's")
    (bundle / ".git").mkdir()
    (bundle / ".git" / "HEAD").write_text("ref: refs/heads/main")
    files = json.loads((bundle / "tagline.json").read_text())["files"]
    signed(bundle, files={name: found for name, found in files.items() if name != "README.md"})
    (bundle / "README.md").write_text("A card of my own.")
    Bundle.load(bundle)


@pytest.mark.parametrize("name", ["config.json", "README.md", "tagline.json", "onnx", ".hidden"])
def test_links_in_a_bundle_are_refused(bundle: Path, tmp_path: Path, name: str) -> None:
    """Whether they lead out of it or not, and though what they lead to has the right hash."""
    elsewhere = tmp_path / "elsewhere"
    if (bundle / name).exists():
        (bundle / name).rename(elsewhere)
    (bundle / name).symlink_to(elsewhere)
    with pytest.raises(BundleError, match=f"holds a link, which a bundle may not: {name}") as error:
        Bundle.load(bundle)
    assert "cp -RL" in error.value.hint


def test_a_bundle_may_be_named_by_a_link(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(bundle)
    assert tagline.load(tmp_path / "current").predict("Where is my parcel?")


@pytest.mark.parametrize("kind", ["MemoryError", "OutOfMemoryError", "AcceleratorError"])
def test_a_machine_that_is_too_small_is_not_the_bundles_fault(
    bundle: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_: Path) -> None:
        raise type(kind, (RuntimeError,), {})("CUDA out of memory. Tried to allocate 20.00 MiB")

    monkeypatch.setattr(Linear, "load", load)
    with pytest.raises(PlaceError, match=f"cannot load {bundle} here: CUDA out of memory"):
        tagline.load(bundle)


def test_a_missing_file_is_named(bundle: Path) -> None:
    (bundle / "vocabulary.json").unlink()
    with pytest.raises(BundleError, match=r"vocabulary\.json is missing"):
        Bundle.load(bundle)


def test_a_directory_without_a_manifest_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"is not a bundle: it has no tagline\.json"):
        Bundle.load(tmp_path)
    with pytest.raises(BundleError, match="is not a bundle"):
        Bundle.load(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 2}', "[" * 100_000])
def test_a_damaged_manifest_is_said(bundle: Path, text: str) -> None:
    (bundle / "tagline.json").write_text(text)
    with pytest.raises(BundleError, match=r"tagline\.json is damaged: \w") as error:
        Bundle.load(bundle)
    assert error.value.hint == "make the bundle again, or restore it"


def test_a_bundle_of_an_older_version_says_what_to_do(bundle: Path) -> None:
    (bundle / "tagline.json").write_text('{"format": 1}')
    with pytest.raises(BundleError, match="older Tagline") as error:
        Bundle.load(bundle)
    assert "train it again" in error.value.hint


def test_a_bundle_of_a_newer_version_says_what_to_do(bundle: Path) -> None:
    manifest = json.loads((bundle / "tagline.json").read_text())
    (bundle / "tagline.json").write_text(
        json.dumps({"format": FORMAT + 1, "something": "new"} | manifest | {"format": 99})
    )
    with pytest.raises(BundleError, match="newer Tagline") as error:
        Bundle.load(bundle)
    assert "upgrade" in error.value.hint


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd"])
def test_a_manifest_cannot_name_files_outside(bundle: Path, name: str) -> None:
    files = json.loads((bundle / "tagline.json").read_text())["files"]
    signed(bundle, files={**files, name: "0" * 64})
    with pytest.raises(BundleError, match="outside the bundle"):
        Bundle.load(bundle)


def test_a_family_that_is_not_installed_is_said(bundle: Path) -> None:
    signed(bundle, family="oracle")
    with pytest.raises(BundleError, match='no family "oracle"'):
        tagline.load(bundle)


def test_what_comes_from_the_data_stays_text_in_the_card(tmp_path: Path) -> None:
    odd = "<img src=x>|[a](b)"
    rows = "".join(f'good {i},yes\nbad {i},"{odd}"\n' for i in range(15))
    (tmp_path / "odd.csv").write_text(f"text,label\n{rows}")
    card = (tagline.train(tmp_path / "odd.csv", *QUICK, runs=tmp_path / "runs").bundle / "README.md").read_text()
    assert "<img" not in card.replace("\\<", "")
    assert "| \\<img src=x\\>\\|\\[a\\](b) |" in card


def test_half_a_character_is_no_text(run: Run) -> None:
    """A tokenizer would refuse it with an error of its own."""
    with pytest.raises(DataError, match="text 2 holds half a character"):
        tagline.load(run.bundle).predict(["a text", "\ud83d"])


def test_the_code_of_a_card_for_pairs_can_be_copied(tmp_path: Path) -> None:
    pairs = tagline.train(SUPPORT / "pairs.csv", *QUICK, runs=tmp_path)
    [code] = re.findall(r"```python\n(.*?)```", (pairs.bundle / "README.md").read_text(), re.DOTALL)
    compile(code, "README.md", "exec")


def test_the_model_card_tells_what_was_measured(run: Run) -> None:
    card = (run.bundle / "README.md").read_text()
    report = run.report()
    assert report is not None
    assert f"{report['test']['macro_f1']:.3f}" in card
    assert "| praise |" in card


def test_the_same_spec_and_data_give_the_same_bundle_to_the_byte(run: Run, tmp_path: Path) -> None:
    again = tagline.train(SUPPORT / "messages.csv", *QUICK, runs=tmp_path)
    first = {path.name: path.read_bytes() for path in run.bundle.iterdir()}
    assert first == {path.name: path.read_bytes() for path in again.bundle.iterdir()}
    assert (run.directory / "report.json").read_bytes() == (again.directory / "report.json").read_bytes()


def test_a_family_that_lacks_its_library_says_what_to_install() -> None:
    printed = run_bare(
        """
from tagline.prediction.bundle import create_classifier
from tagline.errors import PlaceError
from tagline.spec import defaults
spec = defaults({"train": "rows.csv", "text": "text", "labels": "label"})
try:
    create_classifier(spec, spec.model, task="single", labels=["a", "b"], pair=False)
except PlaceError as error:
    print(error.message, error.hint, sep="\\n")
"""
    )
    assert printed.splitlines() == [
        "family encoder needs torch, which is not installed",
        'pip install "tagline[train]"',
    ]
