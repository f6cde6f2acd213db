"""The README's and the docs' commands are run, and what they show is what comes out."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagline.runs.lookup import list_runs

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/tutorial.md",
    *(f"docs/how-to/{page}.md" for page in ("python", "tracking", "encoders", "families", "reports", "signatures")),
)
NUMBER = re.compile(r"-?\d+\.\d+")
RUN_NAME = re.compile(r"\d{8}-\d{6}-\w+")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.M | re.S)


def commands(block: str) -> Iterator[tuple[str, list[str], int]]:
    """Each command of a console block, with the output shown below it and the exit code it is said to have."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        code = 0
        if shown and (said := re.fullmatch(r"\[exit code (\d+)\]", shown[-1])):
            code = int(said[1])
            shown.pop()
        yield command, shown, code


@pytest.fixture
def place(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    script = bin_directory / "tagline"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tagline "$@"\n')
    script.chmod(0o755)
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    """A new user's, but for how many threads a process may use beside the other tests."""
    threads = {name: value for name, value in os.environ.items() if name == "OMP_NUM_THREADS"}
    return {"PATH": f"{place / 'bin'}:/usr/bin:/bin", "COLUMNS": "100", **threads}


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_shows(page: str, place: Path) -> None:
    for block in blocks(ROOT / page, "console"):
        for command, shown, code in commands(block):
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=place,
                env=environment(place),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == code, f"{command}\n{done.stderr}"
            printed = (done.stdout if code == 0 else done.stderr).rstrip("\n")
            if shown:
                same(shown, printed.split("\n"), command)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, place: Path) -> None:
    code = "\n".join(blocks(ROOT / page, "python"))
    if not code:
        pytest.skip("no Python on this page")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def same(shown: list[str], printed: list[str], command: str) -> None:
    """The same words; figures only roughly, since what a network learns depends on how a processor rounds its sums.

    `NAME` is any run; after a line `...` anything may follow.
    """
    if "..." in shown:
        shown = shown[: shown.index("...")]
        printed = printed[: len(shown)]
    expected, found = "\n".join(shown), RUN_NAME.sub("NAME", "\n".join(printed))
    assert NUMBER.sub("#", expected).split() == NUMBER.sub("#", found).split(), f"{command}\n{found}"
    for ours, theirs in zip(NUMBER.findall(expected), NUMBER.findall(found), strict=True):
        assert float(ours) == pytest.approx(float(theirs), abs=0.3), f"{command}\n{found}"


def test_the_demo_runs(place: Path) -> None:
    settings = "data.learning_fraction=0.3 training.epochs=1 training.baseline=false"
    done = subprocess.run(
        ["sh", str(place / "examples" / "demo.sh")],
        capture_output=True,
        text=True,
        check=False,
        env=environment(place) | {"DEMO_SETTINGS": settings},
    )
    assert done.returncode == 0, done.stderr
    assert "macro_f1" in done.stdout
    assert (place / "demo" / "new-messages.csv").exists()
    known = [run.directory for run in list_runs(place / "runs")]
    assert sorted(known) == sorted((place / "runs").iterdir()), "what is no run makes the README's `compare` fail"


def test_links_between_pages_lead_somewhere() -> None:
    for page in [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
    ]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_no_file_names_a_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    private = re.compile("/(?:" + "|".join(("work", "root", "home")) + ")/")
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            assert not private.search((ROOT / name).read_text(errors="ignore")), name
