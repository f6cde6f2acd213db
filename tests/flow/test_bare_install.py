"""Tagline where only some of its packages are installed: it works, or says which command helps."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bare import make_environment
from tagline import registry

TRAIN, VERTEX = 'pip install "tagline[train]"', 'pip install "tagline[vertex]"'
NEEDS_MORE = {
    "init messages.csv": TRAIN,
    "check messages.csv": TRAIN,
    "train messages.csv model.family=linear": TRAIN,
    "train messages.csv --on vertex --plan": TRAIN,
    "evaluate bundle messages.csv": TRAIN,
    "lm new.txt --output lm": TRAIN,
    "runs list --runs gs://bucket/runs": VERTEX,
    "predict gs://bucket/bundle text": VERTEX,
    "rehearsal start": "pip install 'tagline[rehearsal]'",
}
RUN_ALL = """
import io, json, sys
from contextlib import redirect_stderr
from tagline.cli import run
answers = {}
for line in json.load(sys.stdin):
    with redirect_stderr(io.StringIO()) as said:
        code = run(line.split())
    answers[line] = [code, said.getvalue()]
print(json.dumps(answers))
"""


def run_python(code: str, env: dict[str, str], directory: Path, *, given: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=env,
        cwd=directory,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with the base install alone."""
    return make_environment(tmp_path_factory.mktemp("base"))


def test_each_command_names_the_command_that_installs_what_it_lacks(
    bare: dict[str, str], support: Path, tmp_path: Path
) -> None:
    (tmp_path / "messages.csv").write_text((support / "messages.csv").read_text())
    (tmp_path / "new.txt").write_text("a text\n")
    answers = json.loads(run_python(RUN_ALL, bare, tmp_path, given=json.dumps(list(NEEDS_MORE))))
    assert {line: code for line, (code, _) in answers.items()} == dict.fromkeys(NEEDS_MORE, 5)
    for line, (_, said) in answers.items():
        assert said.startswith("error: ")
        assert said.endswith(f"next: {NEEDS_MORE[line]}\n"), line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["messages.csv", "new.txt"], "no run is left behind"


def test_the_functions_say_it_too(bare: dict[str, str], tmp_path: Path) -> None:
    code = """
import tagline
try:
    tagline.train("messages.csv")
except tagline.TaglineError as error:
    print(error.exit_code, error.hint)
"""
    assert run_python(code, bare, tmp_path) == f"5 {TRAIN}\n"


def test_info_says_which_families_can_be_trained(bare: dict[str, str], tmp_path: Path) -> None:
    code = "from tagline.cli import run; raise SystemExit(run(['info', '--json']))"
    facts = json.loads(run_python(code, bare, tmp_path))
    assert facts["families"] == registry.list_names("models")
    assert facts["can_train"] == []
    assert facts["cannot_train"]["linear"]["install"] == TRAIN
    assert facts["cannot_train"]["ulmfit"]["install"] == 'pip install "tagline[ulmfit]"'
    assert "torch" in facts["cannot_train"]["encoder"]["missing"]


def test_what_is_lacking_depends_on_the_family(tmp_path: Path) -> None:
    code = "from tagline import registry; print(*(registry.missing_for_training(name) for name in ('lstm', 'ulmfit')))"
    said = run_python(code, make_environment(tmp_path, "train"), tmp_path)
    assert said == "([], '') (['sentencepiece', 'spacy'], 'pip install \"tagline[ulmfit]\"')\n"
