"""A spec for a data file, written to a file of its own."""

from pathlib import Path

from tagline import storage
from tagline.data.columns import ResolvedSpec, resolve
from tagline.errors import SpecError
from tagline.gcp import cloud_storage
from tagline.spec import to_toml


def init(data: str | Path, *overrides: str, output: str | Path = "tagline.toml", force: bool = False) -> ResolvedSpec:
    """Write a complete, commented spec for a data file; returns the spec and what was guessed for it.

    With `force`, a spec that is already there is replaced.
    """
    target = storage.choose_staging_path(output)
    is_there = cloud_storage.object_at(str(output)) is not None if storage.is_remote(output) else target.exists()
    if is_there and not force:
        raise SpecError(f"{output} is already there", hint="--force replaces it, --output FILE writes another")
    resolved = resolve(str(data), overrides)
    storage.write_text(target, to_toml(resolved.spec, comments=True), is_private=False)
    storage.deliver(target, str(output))
    return resolved
