"""The parameters of a tuning job: validation, conditional parameters and their possible values."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from vertex_rehearsal.api.errors import invalid_argument

KINDS = ("double_value_spec", "integer_value_spec", "categorical_value_spec", "discrete_value_spec")
CONDITIONS = {
    "parent_int_values": "integer_value_spec", "parent_categorical_values": "categorical_value_spec",
    "parent_discrete_values": "discrete_value_spec",
}  # fmt: skip
"""The conditions that a parameter's children may use, by the kind of the parameter."""
LOG, REVERSE_LOG = 2, 3
MOST_DISCRETE = 1000
NEAR = 1e-10
"""The smallest distance of two discrete values, and the tolerance within which values are equal."""


def get_parameter_kind(spec: Any) -> str:
    """Return the kind of a parameter, one of KINDS."""
    return str(spec.WhichOneof("parameter_value_spec"))


def check_parameters(specs: Sequence[Any], at: str, *, gridded: bool) -> None:
    """Raise INVALID_ARGUMENT for parameters that Vertex AI rejects."""
    if not specs:
        raise invalid_argument(at, "Required field is not set: parameters. There is nothing to tune.")
    _check_siblings(specs, at, gridded=gridded)


def _check_siblings(specs: Sequence[Any], at: str, *, gridded: bool) -> set[str]:
    """The names of parameters that stand side by side, and of all below them: one name once."""
    taken: set[str] = set()
    for number, spec in enumerate(specs):
        here = f"{at}[{number}]"
        names = _check_parameter(spec, here, gridded=gridded)
        if twice := taken & names:
            raise invalid_argument(f"{here}.parameter_id", f"The parameter {min(twice)} is there twice.")
        taken |= names
    return taken


def _check_parameter(spec: Any, at: str, *, gridded: bool) -> set[str]:
    name, kind = spec.parameter_id, get_parameter_kind(spec)
    if not name:
        raise invalid_argument(f"{at}.parameter_id", "Required field is not set: parameter_id.")
    if any(character.isspace() for character in name):
        raise invalid_argument(f"{at}.parameter_id", f'"{name}": parameter_id must not contain whitespace.')
    if kind not in KINDS:
        raise invalid_argument(at, f"The parameter {name} has no values: one of {', '.join(KINDS)} must be set.")
    if gridded and kind == "double_value_spec":
        raise invalid_argument(
            f"{at}.double_value_spec",
            f"GRID_SEARCH takes INTEGER, CATEGORICAL and DISCRETE parameters; {name} is DOUBLE.",
        )
    value = getattr(spec, kind)
    if value.HasField("default_value"):
        raise invalid_argument(
            f"{at}.{kind}.default_value", "default_value is not supported by HyperparameterTuningJob."
        )
    if kind in ("double_value_spec", "integer_value_spec"):
        _check_bounds(value, f"{at}.{kind}", name)
        lowest = value.min_value
    else:
        _check_values(value.values, f"{at}.{kind}.values", name, ordered=kind == "discrete_value_spec")
        lowest = value.values[0]
    if kind == "categorical_value_spec" and spec.scale_type:
        raise invalid_argument(f"{at}.scale_type", f"{name} is CATEGORICAL: scale_type must be left unset.")
    if spec.scale_type in (LOG, REVERSE_LOG) and lowest <= 0:
        raise invalid_argument(
            f"{at}.scale_type", f"A logarithmic scale takes positive values only; {name} begins at {lowest}."
        )
    return {name} | _check_conditional(spec, at, gridded=gridded)


def _check_bounds(value: Any, at: str, name: str) -> None:
    for bound in ("min_value", "max_value"):
        if not math.isfinite(getattr(value, bound)):
            raise invalid_argument(f"{at}.{bound}", f"{bound} of {name} is {getattr(value, bound)}.")
    if value.min_value > value.max_value:
        raise invalid_argument(f"{at}.min_value", f"min_value of {name}, {value.min_value}, exceeds its max_value.")


def _check_values(values: Sequence[Any], at: str, name: str, *, ordered: bool) -> None:
    if not values:
        raise invalid_argument(at, f"Required field is not set: values of {name}.")
    if not ordered:
        if len(set(values)) < len(values):
            raise invalid_argument(at, f"A value of {name} is there twice.")
        return
    if len(values) > MOST_DISCRETE:
        raise invalid_argument(at, f"{name} has {len(values)} values; the most is {MOST_DISCRETE}.")
    if not all(math.isfinite(value) for value in values):
        raise invalid_argument(at, f"The values of {name} must be finite numbers.")
    if any(later - earlier < NEAR for earlier, later in pairwise(values)):
        raise invalid_argument(at, f"The values of {name} must be in increasing order and at least {NEAR:g} apart.")


def _check_conditional(spec: Any, at: str, *, gridded: bool) -> set[str]:
    """The names below a parameter; a name may come again where both cannot be there."""
    below: list[tuple[set[str], set[Any]]] = []
    for number, child in enumerate(spec.conditional_parameter_specs):
        here = f"{at}.conditional_parameter_specs[{number}]"
        condition = str(child.WhichOneof("parent_value_condition"))
        if CONDITIONS.get(condition) != get_parameter_kind(spec):
            expected = next((name for name, kind in CONDITIONS.items() if kind == get_parameter_kind(spec)), "")
            wrong = f"{expected} must be set" if expected else "a DOUBLE parameter has no conditional parameters"
            raise invalid_argument(here, f"Below {spec.parameter_id}, {wrong}.")
        wanted = getattr(child, condition).values
        if not wanted:
            raise invalid_argument(f"{here}.{condition}.values", "Required field is not set: values.")
        for value in wanted:
            if not _allows_value(spec, value):
                raise invalid_argument(f"{here}.{condition}.values", f"{spec.parameter_id} never is {value}.")
        names = _check_parameter(child.parameter_spec, f"{here}.parameter_spec", gridded=gridded)
        for others, values in below:
            if (twice := names & others) and values & set(wanted):
                wrong = f"The parameter {min(twice)} is there twice for the same value of {spec.parameter_id}."
                raise invalid_argument(f"{here}.parameter_spec.parameter_id", wrong)
        if spec.parameter_id in names:
            wrong = f"The parameter {spec.parameter_id} is below itself."
            raise invalid_argument(f"{here}.parameter_spec.parameter_id", wrong)
        below.append((names, set(wanted)))
    return set().union(*(names for names, _ in below))


def _allows_value(spec: Any, value: Any) -> bool:
    if get_parameter_kind(spec) == "integer_value_spec":
        return bool(spec.integer_value_spec.min_value <= value <= spec.integer_value_spec.max_value)
    return any(_is_same_value(value, one) for one in getattr(spec, get_parameter_kind(spec)).values)


def _is_same_value(one: Any, other: Any) -> bool:
    return bool(one == other) or (not isinstance(one, str) and abs(one - other) <= NEAR)


def _find_active_children(spec: Any, value: Any) -> list[tuple[int, Any]]:
    """Return the conditional parameters that a value activates, with their indexes."""
    found = []
    for number, child in enumerate(spec.conditional_parameter_specs):
        wanted = getattr(child, child.WhichOneof("parent_value_condition")).values
        if any(_is_same_value(value, one) for one in wanted):
            found.append((number, child.parameter_spec))
    return found


def choose_values(specs: Sequence[Any], value_of: Callable[[str, Any], Any], *, below: str = "") -> dict[str, Any]:
    """A value for each parameter that is there; `value_of` gets a key that no other parameter has, and the spec."""
    chosen: dict[str, Any] = {}
    for spec in specs:
        key = f"{below}{spec.parameter_id}"
        value = chosen[spec.parameter_id] = value_of(key, spec)
        for number, child in _find_active_children(spec, value):
            chosen |= choose_values([child], value_of, below=f"{key}[{number}].")
    return chosen


def iter_grid(specs: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values lazily, the last parameter varying fastest."""
    if not specs:
        yield {}
        return
    first, *rest = specs
    for value in _list_values(first):
        for inner in iter_grid([child for _, child in _find_active_children(first, value)]):
            for others in iter_grid(rest):
                yield {first.parameter_id: value, **inner, **others}


def _list_values(spec: Any) -> Sequence[Any]:
    if get_parameter_kind(spec) == "integer_value_spec":
        return range(spec.integer_value_spec.min_value, spec.integer_value_spec.max_value + 1)
    values: Sequence[Any] = getattr(spec, get_parameter_kind(spec)).values
    return values


def format_argument(value: Any) -> str:
    """Format a value for a trial's command line: whole numbers without a point, for programs that expect an int."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
