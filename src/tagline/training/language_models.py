"""A language model of texts without labels, for family `ulmfit` to start from and for others to share."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tagline import registry
from tagline import spec as specs
from tagline.data.unlabelled import read_texts
from tagline.errors import BundleError, RunError, SpecError
from tagline.gcp import cloud_storage
from tagline.prediction.bundle import load_classifier
from tagline.runs.events import Event, PhaseEvent, StepEvent, TickEvent, WarningEvent
from tagline.spec import Training, changed_settings
from tagline.storage import addresses, atomic
from tagline.system.signals import Stop

if TYPE_CHECKING:
    from tagline.models.ulmfit import Ulmfit

USED = ("model", "training")
"""Sections of the spec that apply: there are no labels and no decisions."""
READ = frozenset({"batch_size", "learning_rate", "weight_decay", "seed", "log_every"})
"""Keys of `[training]` that apply; the epochs are those of model.lm_epochs."""
KEPT_EVERY_S = 300.0
LAST = "config.json"
"""Uploaded after all other files, so that its presence marks a complete model."""


def train_language_model(
    files: Sequence[str], *overrides: str, output: str | Path, column: str = ""
) -> Iterator[Event]:
    """Train a language model on the texts of these files into a directory, resuming one that was begun.

    Every few minutes all that is needed to go on is kept beside `output`, until that is there; of one in Cloud Storage,
    beside the place where it is staged.
    """
    from tagline.models.ulmfit import Ulmfit

    options, training = _parse_settings(overrides)
    if options.direction == "both" or options.pretrained or options.pretrained_backward or options.unlabelled:
        hint = 'model.direction="backward" for one that reads backward; each is made by itself'
        raise SpecError("a language model is made anew, of the texts that are named, for one direction", hint=hint)
    if options.lm_epochs == 0:
        raise SpecError("model.lm_epochs: with 0 epochs there is nothing to keep", hint="leave it out")
    place, is_remote = addresses.choose_staging_path(output), addresses.is_remote(output)
    partial = _find_partial(place)
    # What an upload that failed has left in a bucket goes with what was kept here.
    there = f"{output}/{LAST if partial.exists() else ''}"
    if cloud_storage.list_objects(there) if is_remote else place.exists():
        raise SpecError(f"{output} is already there", hint="name another --output, or remove it")
    model = Ulmfit.create(options, training=training, task="single", labels=(), pair=False)
    if partial.exists():
        model = _load_partial(partial)
        if (model.options, model.training) != (options, training):
            hint = f"use them again, or remove {partial}"
            raise RunError(f"{partial} was begun with other settings", hint=hint)
        yield PhaseEvent(message=f"going on from {partial}")
    for key in changed_settings(training):
        if key not in READ:
            yield WarningEvent(message=f"training.{key} has no effect on a language model")
    kept = time.monotonic()
    with Stop(hint="run the same command again: it goes on from what was kept, if anything was") as stop:
        for step in model.fit_language_model(lambda: read_texts(files, column=column), seed=training.seed):
            stop.waits = True
            step.insist_on_loss()
            facts: dict[str, Any] = {
                "step": step.number,
                "total": step.total,
                "loss": step.loss,
                "stage": step.stage,
            }
            is_due = step.number % training.log_every == 0 or step.number == step.total
            yield StepEvent(**facts, settings=dict(step.settings)) if is_due else TickEvent(**facts)
            if stop.signal is not None or time.monotonic() - kept > KEPT_EVERY_S:
                _save_partial(model, partial)
                kept = time.monotonic()
            if stop.signal is not None:
                raise stop.create_interruption(is_saved=True)
    if is_remote:  # an upload that fails is tried again by the same command, without learning anew
        _save_partial(model, partial)
        atomic.remove_directory(place)
    with atomic.writing_directory(place, is_private=False) as scratch:
        model.save_language_model(scratch)
    addresses.deliver(place, output, last=LAST)
    atomic.remove_directory(partial)


def reads_backward(overrides: Sequence[str]) -> bool:
    """Return whether these settings make a backward model."""
    return bool(_parse_settings(overrides)[0].direction == "backward")


def _find_partial(place: Path) -> Path:
    """Return the directory of the last checkpoint, completing a replacement that was interrupted by a kill."""
    partial = place.with_name(f"{place.name}.partial")
    if not partial.exists() and _replacement_path(partial).exists():
        _replacement_path(partial).rename(partial)
    return partial


def _replacement_path(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.new")


def _load_partial(partial: Path) -> "Ulmfit":
    try:
        return cast("Ulmfit", load_classifier("ulmfit", partial))
    except BundleError as error:
        raise RunError(error.message, hint="remove it, or name another --output") from error


def _save_partial(model: "Ulmfit", partial: Path) -> None:
    """Replace the checkpoint."""
    atomic.remove_directory(_replacement_path(partial))
    with atomic.writing_directory(_replacement_path(partial)) as scratch:
        model.save(scratch, resumable=True)
    atomic.replace_directory(partial, by=_replacement_path(partial))


def _parse_settings(overrides: Sequence[str]) -> tuple[Any, Training]:
    """Return the options of `ulmfit` and the training settings; without labelled data there is no whole spec."""
    raw: Mapping[str, Any] = specs.apply_overrides({"model": {"family": "ulmfit"}}, overrides)
    problems = [f"{section}: only model and training are used here" for section in raw if section not in USED]
    training = specs.check_section("training", raw, problems)
    options = specs.check_options(registry.find("models", "ulmfit").Options, raw.get("model", {}), problems)
    if problems:
        raise SpecError.from_problems("the command line", problems)
    return options, training
