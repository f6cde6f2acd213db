"""A complete spec from whatever a caller has: a Spec, its tables, a spec file or a data file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tagline.data.columns import ResolvedSpec, complete_spec, resolve
from tagline.spec import Spec, apply_overrides

SpecSource = Spec | Mapping[str, Any] | str | Path
"""A spec, its tables, the path of a spec file, or that of a data file."""


def resolve_spec(source: SpecSource, overrides: Sequence[str] = ()) -> Spec:
    """A complete spec, from whatever form it was given in."""
    return resolve_source(source, overrides).spec


def resolve_source(source: SpecSource, overrides: Sequence[str] = ()) -> ResolvedSpec:
    """A complete spec and what was guessed for it, from a spec, its tables, a spec file or a data file."""
    if isinstance(source, Spec) and not overrides:
        return ResolvedSpec(source)
    if isinstance(source, Spec | Mapping):
        raw = source.model_dump() if isinstance(source, Spec) else dict(source)
        return complete_spec(apply_overrides(raw, overrides), where="the spec")
    return resolve(str(source), overrides)
