"""Gates: figures that a model must reach before it may be used."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tagline.errors import CheckFailed, SpecError
from tagline.evaluation.metrics import LOWER_IS_BETTER, ONE_TASK_ONLY
from tagline.evaluation.schema import GateResult
from tagline.spec import Gates

if TYPE_CHECKING:
    from tagline.data.dataset import Task

PER_LABEL = "per_label_"


def check_names(gates: Gates, *, task: "Task", labels: Sequence[str]) -> None:
    """Raise SpecError for a gate on a figure that the task does not have, or on an unknown label."""
    problems = []
    for name, label, _ in _iter_gates(gates):
        if ONE_TASK_ONLY.get(name, task) != task:
            problems.append(f"gates.{name}: a figure of task {ONE_TASK_ONLY[name]}; this data is {task}")
        if label is not None and label not in labels:
            problems.append(f'gates.{name}: there is no label "{label}"; there are: {", ".join(labels)}')
    if problems:
        raise SpecError.from_problems("the spec", problems)


def evaluate_gates(gates: Gates, figures: Mapping[str, Any]) -> list[GateResult]:
    """Return the result of each gate: its limit, the figure reached, and whether it is passed."""
    results = []
    for name, label, wanted in _iter_gates(gates):
        if label is None:
            reached = figures.get(name)
            if reached is None and name in ("coverage", "accuracy_of_answered"):  # every text was answered
                reached = 1.0 if name == "coverage" else figures.get("accuracy")
        else:
            of_label = figures.get("per_label", {}).get(label, {})
            is_defined = of_label.get("support") or name == "per_label_precision"
            reached = of_label.get(name.removeprefix(PER_LABEL)) if is_defined else None
        at_most = name in LOWER_IS_BETTER
        passed = reached is not None and (reached <= wanted if at_most else reached >= wanted)
        gate = name if label is None else f"{name}.{label}"
        results.append(GateResult(gate=gate, at_most=at_most, wanted=wanted, reached=reached, passed=passed))
    return results


def format_result(result: GateResult) -> str:
    """Format the result of a gate for people."""
    reached = "cannot be measured" if result.reached is None else f"is {result.reached:.3f}"
    return f"{result.gate} {reached}, at {'most' if result.at_most else 'least'} {result.wanted:g} is wanted"


def enforce_gates(results: Sequence[GateResult], *, hint: str) -> None:
    """Raise CheckFailed if a gate was not passed; everything has been saved by then."""
    failed = [result for result in results if not result.passed]
    if failed:
        lines = "\n".join(f"  {format_result(result)}" for result in failed)
        count = "1 gate" if len(failed) == 1 else f"{len(failed)} gates"
        raise CheckFailed(f"{count} of {len(results)} not passed:\n{lines}", hint=hint)


def _iter_gates(gates: Gates) -> Iterator[tuple[str, str | None, float]]:
    """Yield every gate that is set: its figure, its label if it is a label's, and its limit."""
    for name in Gates.model_fields:
        value = getattr(gates, name)
        if isinstance(value, Mapping):
            yield from ((name, label, wanted) for label, wanted in value.items() if wanted)
        elif value:
            yield name, None, value
