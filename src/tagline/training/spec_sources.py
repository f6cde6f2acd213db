"""A complete spec from any form it may be given in: a Spec, its tables, a spec file or a data file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tagline.data.columns import ResolvedSpec, complete_spec, resolve
from tagline.spec import Spec, apply_overrides

SpecSource = Spec | Mapping[str, Any] | str | Path
"""A spec, its tables, the path of a spec file, or that of a data file."""


def resolve_spec(source: SpecSource, overrides: Sequence[str] = ()) -> Spec:
    """Return a complete spec, from any form of source."""
    return resolve_source(source, overrides).spec


def resolve_source(source: SpecSource, overrides: Sequence[str] = ()) -> ResolvedSpec:
    """Return a complete spec and what was guessed for it, from any form of source."""
    if isinstance(source, Spec) and not overrides:
        return ResolvedSpec(source)
    if isinstance(source, Spec | Mapping):
        raw = source.model_dump() if isinstance(source, Spec) else dict(source)
        return complete_spec(apply_overrides(raw, overrides), where="the spec")
    return resolve(str(source), overrides)
