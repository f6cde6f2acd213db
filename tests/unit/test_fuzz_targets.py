"""The fuzzers' seeds, and every input that has ever failed (`make hostile` finds new ones)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
from targets import TARGETS

FUZZ = Path(__file__).parents[1] / "fuzz"
INPUTS = [(path.parent.name, path) for path in sorted((FUZZ / "seeds").glob("*/*"))]
INPUTS += [(path.name.partition("-")[0], path) for path in sorted((FUZZ / "crashes").glob("*-*"))]


@pytest.mark.parametrize(("target", "path"), INPUTS, ids=[f"{target}-{path.name}" for target, path in INPUTS])
def test_an_input_of_the_fuzzer(target: str, path: Path) -> None:
    TARGETS[target](path.read_bytes())


def test_every_target_has_seeds() -> None:
    assert {target for target, _ in INPUTS} == set(TARGETS)
