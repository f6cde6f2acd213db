"""Texts that users read, compared as a whole."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Golden = Callable[[str, str], None]


def test_init_writes_a_commented_spec(golden: Golden, tagline: Any, support: Path, tmp_path: Path) -> None:
    shutil.copy(support / "messages.csv", tmp_path)
    assert tagline("init", "messages.csv").code == 0
    golden("init-messages.toml", (tmp_path / "tagline.toml").read_text("utf-8"))


MANY_PROBLEMS = """
colour = "blue"

[data]
train = "messages.csv"
text = "mesage"
labels = ["topic", "topics"]
test = "missing-columns.csv"

[model]
family = "linear"
pretrained = "minilm"

[training]
learning_rat = 1e-4
epochs = 2.5
seed = -1
monitor = "f1"

[decisions]
calibrate = "yes"
thresholds = 2
abstain_below = 1.5

[tuning]
trials = "many"

[tuning.search]
"training.epoch" = { choices = [1, 2] }
"training.epochs" = { low = 5, high = 1 }
"training.batch_size" = { low = 5, hihg = 10 }

[tracking]
to = ["wandbb"]

[vertexx]
region = "europe-west4"
"""


def test_every_problem_of_a_spec_is_listed_at_once(golden: Golden, tagline: Any, support: Path, tmp_path: Path) -> None:
    shutil.copy(support / "messages.csv", tmp_path)
    (tmp_path / "missing-columns.csv").write_text("a,b\n1,2\n")
    (tmp_path / "tagline.toml").write_text(MANY_PROBLEMS)
    result = tagline("check", "tagline.toml")
    assert (result.code, result.out) == (2, "")
    golden("many-problems.txt", result.err)
