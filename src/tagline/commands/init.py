"""A spec for a data file, written to a file of its own."""

from pathlib import Path

from tagline.data.columns import ResolvedSpec, resolve
from tagline.errors import SpecError
from tagline.gcp import cloud_storage
from tagline.spec import to_toml
from tagline.storage import addresses, atomic


def init(data: str | Path, *overrides: str, output: str | Path = "tagline.toml", force: bool = False) -> ResolvedSpec:
    """Write a complete, commented spec for a data file; returns the spec and what was guessed for it.

    With `force`, a spec that is already there is replaced.
    """
    target = addresses.choose_staging_path(output)
    is_there = cloud_storage.object_at(str(output)) is not None if addresses.is_remote(output) else target.exists()
    if is_there and not force:
        raise SpecError(f"{output} is already there", hint="--force replaces it, --output FILE writes another")
    resolved = resolve(str(data), overrides)
    atomic.write_text(target, to_toml(resolved.spec, comments=True), is_private=False)
    addresses.deliver(target, str(output))
    return resolved
