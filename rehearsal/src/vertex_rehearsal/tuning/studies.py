"""The search algorithms of tuning jobs: Optuna's samplers and grid search."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.tuning import parameters
from vertex_rehearsal.tuning.parameters import LOG, REVERSE_LOG

if TYPE_CHECKING:
    import optuna

GRID_SEARCH, RANDOM_SEARCH = 2, 3
MINIMIZE = 2
SEED = 0
"""A fixed random seed: the search is reproducible if the trials end in the same order."""


@dataclass(frozen=True)
class Suggestion:
    """Suggested values and the search's handle for them."""

    values: dict[str, Any]
    handle: Any = None


class Study:
    """The state of a search: suggested values and their results."""

    def __init__(self, spec: Any, *, trials: int) -> None:
        self._parameters = list(spec.parameters)
        self._grid: Iterator[dict[str, Any]] | None = None
        if spec.algorithm == GRID_SEARCH:
            self._grid = parameters.iter_grid(self._parameters)
        else:
            self._study = _create_optuna_study(spec, trials)

    def ask(self) -> Suggestion | None:
        """Return the next suggestion; None at the end of a grid."""
        if self._grid is not None:
            values = next(self._grid, None)
            return None if values is None else Suggestion(values)
        trial = self._study.ask()
        return Suggestion(
            parameters.choose_values(self._parameters, lambda key, spec: _suggest_value(trial, key, spec)), trial
        )

    def tell(self, suggestion: Suggestion, values: Sequence[float] | None) -> None:
        """Report a trial's result, a number per metric; None if it failed."""
        if self._grid is None:
            from optuna.trial import TrialState

            state = TrialState.FAIL if values is None else TrialState.COMPLETE
            self._study.tell(suggestion.handle, values, state=state)


def _create_optuna_study(spec: Any, trials: int) -> "optuna.Study":
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler: optuna.samplers.BaseSampler
    if spec.algorithm == RANDOM_SEARCH:
        sampler = optuna.samplers.RandomSampler(seed=SEED)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # `constant_liar` keeps concurrent trials apart; few start-up trials let a short search learn early.
            sampler = optuna.samplers.TPESampler(
                seed=SEED, constant_liar=True, n_startup_trials=min(10, max(2, trials // 4))
            )
    minimize, maximize = optuna.study.StudyDirection.MINIMIZE, optuna.study.StudyDirection.MAXIMIZE
    directions = [minimize if metric.goal == MINIMIZE else maximize for metric in spec.metrics]
    return optuna.create_study(directions=directions, sampler=sampler)


def _suggest_value(trial: "optuna.Trial", key: str, spec: Any) -> Any:
    kind = parameters.get_parameter_kind(spec)
    value = getattr(spec, kind)
    if kind == "categorical_value_spec":
        return trial.suggest_categorical(key, list(value.values))
    if kind == "discrete_value_spec":
        return value.values[trial.suggest_int(key, 0, len(value.values) - 1)]
    low, high = value.min_value, value.max_value
    suggest = trial.suggest_int if kind == "integer_value_spec" else trial.suggest_float
    found = suggest(key, low, high, log=spec.scale_type in (LOG, REVERSE_LOG))
    return low + high - found if spec.scale_type == REVERSE_LOG else found
