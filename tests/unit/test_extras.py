"""Optional packages: each is mapped to the extra that brings it, from the installed metadata."""

import ast
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import tagline
from tagline.errors import PlaceError
from tagline.system import extras

EXTRAS = [name for name in metadata.metadata("tagline").get_all("Provides-Extra") or [] if name not in ("all", "dev")]
INSTALLED_BY_THE_USER = {"datasets"}
"""Imported where it is installed, and brought by no extra; its own place says so."""

BROUGHT_ALONG = ("markupsafe", "pydantic_core", "typing_extensions")
"""Modules that jinja2 and pydantic cannot be installed without."""


def packages_of_extras() -> Iterator[tuple[str, str]]:
    """Each module that can be imported of each package of each extra, and the package."""
    modules: dict[str, list[str]] = {}
    for module, packages in metadata.packages_distributions().items():
        for package in packages:
            modules.setdefault(extras.normalize_name(package), []).append(module)
    for line in metadata.requires("tagline") or []:
        requirement = Requirement(line)
        name = extras.normalize_name(requirement.name)
        if any(f"extra == '{extra}'" in line.replace('"', "'") for extra in EXTRAS):
            named = [module for module in modules.get(name, []) if not module.startswith("_")]
            # What others than Tagline import, such as isympy of sympy, is not called as its package.
            yield from ((module, name) for module in named if extras.find_requirement(module) or len(named) == 1)


@pytest.mark.parametrize(("module", "package"), sorted(set(packages_of_extras())))
def test_every_package_of_every_extra_is_explained_with_the_extra_that_brings_it(module: str, package: str) -> None:
    error = extras.explain_import_error(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert isinstance(error, PlaceError)
    assert error.exit_code == 5
    extra = error.hint.removeprefix('pip install "tagline[').removesuffix(']"')
    assert extra in EXTRAS
    assert any(
        extras.normalize_name(Requirement(line).name) == extras.find_requirement(module)
        for line in metadata.requires("tagline") or []
        if f"extra == '{extra}'" in line.replace('"', "'")
    )


def test_every_module_that_tagline_imports_is_its_own_the_standard_library_s_or_explained() -> None:
    unknown = set()
    for path in Path(tagline.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            unknown |= {name for name in names if not _is_known(name)}
    assert unknown == set()


def _is_known(module: str) -> bool:
    top = module.partition(".")[0]
    ours = top in sys.stdlib_module_names or top in ("tagline", *BROUGHT_ALONG)
    return ours or top in INSTALLED_BY_THE_USER or extras.find_requirement(top) != ""


@pytest.mark.parametrize(
    ("module", "hint"),
    [
        ("pyarrow", 'pip install "tagline[train]"'),
        ("sklearn.linear_model", 'pip install "tagline[train]"'),
        ("optuna", 'pip install "tagline[train]"'),
        ("spacy", 'pip install "tagline[ulmfit]"'),
        ("google", 'pip install "tagline[vertex]"'),
        ("google.cloud", 'pip install "tagline[vertex]"'),
        ("google.cloud.storage", 'pip install "tagline[vertex]"'),
        ("google.api_core", 'pip install "tagline[vertex]"'),
        ("vertex_rehearsal", 'pip install "tagline[rehearsal]"'),
        ("mlflow", 'pip install "tagline[track]"'),
        ("kfp", 'pip install "tagline[pipelines]"'),
        ("uvloop", "pip install tagline"),
    ],
)
def test_the_hint_is_the_smallest_extra(module: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_can_import", lambda module: False)
    error = extras.explain_import_error(ModuleNotFoundError(name=module))
    assert error is not None
    assert error.hint == hint


@pytest.mark.parametrize("module", ["no_such_package", "tagline.nothing", "numpy.no_such_part", "pyarrow.no_such_part"])
def test_a_module_that_no_extra_can_bring_stays_a_bug(module: str) -> None:
    assert extras.explain_import_error(ModuleNotFoundError(name=module)) is None
    with pytest.raises(ModuleNotFoundError), extras.explain_missing_packages():
        raise ModuleNotFoundError(name=module)
