"""Names of runs: chosen by the time, checked, and listed."""

import random
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from tagline.errors import SpecError
from tagline.gcp import cloud_storage
from tagline.storage import addresses

LAST = "last"
"""The name that means the newest run."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
STAMP, STAMPED = "%Y%m%d-%H%M%S", re.compile(r"(\d{8}-\d{6})-")
"""The time in a name that was not given by the user."""
WORDS = (
    "amber", "apple", "aspen", "birch", "blue", "brisk", "calm", "cedar", "clear", "cloud", "coral", "crisp", "dawn",
    "delta", "early", "ember", "fern", "field", "fjord", "flint", "fresh", "glad", "grove", "harbor", "hazel", "heron",
    "ivory", "jade", "june", "keen", "lake", "larch", "lemon", "light", "lilac", "linen", "lunar", "maple", "meadow",
    "mint", "moss", "north", "oak", "ocean", "olive", "opal", "pearl", "pine", "plum", "quick", "quiet", "rain", "reed",
    "river", "robin", "rowan", "sage", "sand", "shore", "silver", "slate", "snow", "spruce", "swift", "tidal", "topaz",
    "umber", "velvet", "violet", "warm", "willow", "wren", "yarrow", "zephyr",
)  # fmt: skip


def choose_name(names: Iterable[str]) -> str:
    """Return a name that sorts after the existing ones: the time and a word, within a second a later word each time."""
    stamp = datetime.now(UTC).strftime(STAMP)
    taken = sorted(name.removeprefix(f"{stamp}-") for name in names if name.startswith(f"{stamp}-"))
    if not taken:
        return f"{stamp}-{random.choice(WORDS[: len(WORDS) // 2])}"  # noqa: S311 - a name, not a secret
    later = [word for word in WORDS if word > taken[-1]]
    return f"{stamp}-{later[0] if later else taken[-1] + '-' + WORDS[0]}"


def check_name(name: str) -> None:
    """Raise SpecError for a name that is invalid locally or in a bucket, where it is also the label of a job."""
    if name == LAST or not NAME.fullmatch(name):
        hint = f'up to 63 of a-z, 0-9, - and _, a letter or digit first; "{LAST}" means the newest run'
        raise SpecError(f'"{name}" cannot name a run', hint=hint)


def list_names(runs: str | Path) -> list[str]:
    """Return the names that are taken in a directory of runs, or below an address in Cloud Storage."""
    if not addresses.is_remote(runs):
        directory = addresses.require_local(runs)
        return [path.name for path in directory.iterdir()] if directory.is_dir() else []
    top = f"{str(runs).rstrip('/')}/"
    return sorted({each.address.removeprefix(top).partition("/")[0] for each in cloud_storage.list_objects(top)})
