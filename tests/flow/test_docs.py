"""The README's and the docs' commands are run, and what they show is what comes out."""

import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_processes import run_python, start_python
from tagline.runs.lookup import list_runs

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/tutorial.md",
    *(f"docs/how-to/{page}.md" for page in ("python", "tracking", "encoders", "families", "reports", "signatures")),
)
IS_FULL = os.environ.get("TAGLINE_DOCS") == "full"
"""Whether encoders learn for as long as every page says; else those of the README alone do, and its figures count."""
LESS = ("training.epochs=1", "training.export=false")
COMMAND = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect("{address}")
    request = {{"words": sys.argv[1:], "cwd": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    connection.shutdown(socket.SHUT_WR)
    sys.exit(int(connection.recv(20)))
"""
"""`tagline`, as a program that has it run by whoever can start it in a tenth of the time."""
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


class CommandRunner(socketserver.BaseRequestHandler):
    """Runs one command, with the standard streams of the program that asks."""

    def handle(self) -> None:
        asked, streams, _, _ = socket.recv_fds(self.request, 1 << 16, 3)
        while more := self.request.recv(1 << 16):
            asked += more
        request = json.loads(asked)
        words = [*request["words"], *([] if self.server.is_full else shorten_training(request["words"]))]
        stdin, stdout, stderr = streams
        process = start_python(
            "-m", "tagline", *words,
            cwd=request["cwd"], env=request["environment"], stdin=stdin, stdout=stdout, stderr=stderr,
        )  # fmt: skip
        for stream in streams:
            os.close(stream)
        self.request.sendall(str(process.wait()).encode())


def shorten_training(words: list[str]) -> tuple[str, ...]:
    """Settings with which a command learns less, if it trains the packaged encoder."""
    others = ("model.family=", "--plan", "--resume", "--help")
    trains = words[:1] == ["train"] and not any(word.startswith(others) for word in words)
    return LESS if trains else ()


def is_full(page: str) -> bool:
    """Whether a page's encoders learn for as long as it says, so that its figures can be compared."""
    return IS_FULL or page == "README.md"


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    parameters = getattr(request.node, "callspec", None)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    script, address = bin_directory / "tagline", os.path.relpath(tmp_path / "socket")
    script.write_text(COMMAND.format(python=sys.executable, address=tmp_path / "socket"))
    script.chmod(0o755)
    with socketserver.ThreadingUnixStreamServer(
        address, CommandRunner
    ) as server:  # an absolute address can be too long
        server.is_full = is_full(parameters.params["page"] if parameters else "")
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        yield tmp_path
        server.shutdown()


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
                same(shown, printed.split("\n"), command, has_figures=is_full(page))


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, place: Path) -> None:
    code = "\n".join(blocks(ROOT / page, "python"))
    if not code:
        pytest.skip("no Python on this page")
    is_forked = page != "README.md"  # one of them imports all that it needs with warnings that are errors
    done = run_python("-W", "error", "-c", code, cwd=place, text=True, is_forked=is_forked)
    assert done.returncode == 0, done.stderr


def same(shown: list[str], printed: list[str], command: str, *, has_figures: bool) -> None:
    """The same words; figures only roughly, since what a network learns depends on how a processor rounds its sums.

    Where encoders have learned less than the page says, it is numbers that must stand there, whichever they are.

    `NAME` is any run; after a line `...` anything may follow.
    """
    if "..." in shown:
        shown = shown[: shown.index("...")]
        printed = printed[: len(shown)]
    expected, found = "\n".join(shown), RUN_NAME.sub("NAME", "\n".join(printed))
    if not has_figures:
        expected, found = (re.sub(r"\b(more|less) here", "more or less here", each) for each in (expected, found))
    assert NUMBER.sub("#", expected).split() == NUMBER.sub("#", found).split(), f"{command}\n{found}"
    for ours, theirs in zip(NUMBER.findall(expected), NUMBER.findall(found), strict=True):
        assert not has_figures or float(ours) == pytest.approx(float(theirs), abs=0.3), f"{command}\n{found}"


def test_the_demo_runs(place: Path) -> None:
    settings = "" if IS_FULL else "data.learning_fraction=0.1 training.baseline=false"
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
