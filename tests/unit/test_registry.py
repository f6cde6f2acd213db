"""The registry: names found, explained, brought by plug-ins, and never replaced."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tagline import registry
from tagline import spec as specs
from tagline.errors import PlaceError, SpecError

FAMILIES = ", ".join(registry.list_names("models"))
Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a package with an entry point on the path, as pip would."""

    def install_one(name: str, target: str, code: str) -> None:
        module = target.partition(":")[0]
        (tmp_path / f"{module}.py").write_text(code)
        information = tmp_path / f"{module}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[tagline.models]\n{name} = {target}\n")
        monkeypatch.syspath_prepend(tmp_path)
        registry.list_implementations.cache_clear()

    yield install_one
    registry.list_implementations.cache_clear()


STRICT = """
from typing import Literal
from tagline.spec import Section

class Options(Section):
    family: Literal["coin"] = "coin"
    sides: int = 2

class Coin:
    Options = Options
"""


def test_a_built_in_name_is_imported_when_asked_for() -> None:
    assert registry.find("models", "linear").__name__ == "Linear"


@pytest.mark.parametrize("kind", registry.BUILT_IN)
def test_every_built_in_name_can_be_found(kind: str) -> None:
    assert registry.SINGULAR[kind]
    for name in registry.BUILT_IN[kind]:
        assert registry.find(kind, name)


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("models", "liner", 'no family "liner"; did you mean linear?'),
        ("models", "xyz", f'no family "xyz"; there are: {FAMILIES}'),
        ("models", "", f'no family ""; there are: {FAMILIES}'),
    ],
)
def test_an_unknown_name_is_explained(kind: str, name: str, sentence: str) -> None:
    with pytest.raises(SpecError, match="no family") as caught:
        registry.find(kind, name)
    assert caught.value.message == sentence


def test_a_kind_that_has_no_names_yet_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "list_implementations", lambda kind: {})
    assert registry.explain_unknown("exports", "onnx") == 'no export "onnx"; there are: none yet'


def test_a_plug_in_adds_a_family_with_options_of_its_own(install: Install) -> None:
    install("coin", "coin_family:Coin", STRICT)
    assert registry.list_names("models") == sorted(["coin", *registry.BUILT_IN["models"]])
    spec = specs.parse({"data": {"train": "x.csv"}, "model": {"family": "coin", "sides": 3}}, where="x")
    assert spec.model.model_dump() == {"family": "coin", "sides": 3}
    with pytest.raises(SpecError) as caught:
        specs.parse({"data": {"train": "x.csv"}, "model": {"family": "coin", "side": "3"}}, where="x")
    assert caught.value.problems == ("model.side: no such setting; did you mean sides?",)


def test_a_plug_in_never_replaces_ours(install: Install) -> None:
    install("linear", "impostor:Coin", STRICT)
    assert registry.find("models", "linear").__module__ == "tagline.models.linear"


def test_a_plug_in_that_nobody_asks_for_is_not_imported(install: Install) -> None:
    install("coin", "exploding_family:Coin", "raise RuntimeError('imported')")
    assert registry.find("models", "linear").__name__ == "Linear"


@pytest.mark.parametrize(
    ("module", "code"), [("broken_import", "import no_such_package_anywhere"), ("broken_name", "Other = 1")]
)
def test_a_broken_plug_in_is_named_with_what_to_do(install: Install, module: str, code: str) -> None:
    install("coin", f"{module}:Coin", code)
    with pytest.raises(PlaceError, match="family coin cannot be loaded") as caught:
        registry.find("models", "coin")
    assert "the package that brings it" in caught.value.hint


def test_a_plug_in_with_loose_options_is_refused(install: Install) -> None:
    install("coin", "loose_family:Coin", STRICT.replace("Section", "BaseModel").replace("tagline.spec", "pydantic"))
    with pytest.raises(PlaceError, match="not strict"):
        specs.options_of("coin")
