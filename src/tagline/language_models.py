"""A language model of texts without labels, for family `ulmfit` to start from and for others to share."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tagline import registry, storage
from tagline import spec as specs
from tagline.errors import RunError, SpecError
from tagline.spec import Training, changed_settings
from tagline.unlabelled import texts_in

USED = ("model", "training")
"""Sections of the spec; there is no data with labels, and nothing is decided."""
READ = frozenset({"batch_size", "learning_rate", "weight_decay", "seed", "log_every"})
"""Of `[training]`; the epochs are those of model.lm_epochs."""
KEPT_EVERY_S = 300.0


def learn(
    files: Sequence[str], *overrides: str, output: Path, column: str = ""
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Learn a language model of the texts in these files into a directory, as events; what was begun is gone on with.

    Every few minutes all that is needed to go on is kept beside `output`, until `output` is there.
    """
    from tagline.models.ulmfit import Ulmfit

    options, training = _settings(overrides)
    if options.direction == "both" or options.pretrained or options.pretrained_backward or options.unlabelled:
        hint = 'model.direction="backward" for one that reads backward; each is made by itself'
        raise SpecError("a language model is made anew, of the texts that are named, for one direction", hint=hint)
    if options.lm_epochs == 0:
        raise SpecError("model.lm_epochs: with 0 epochs there is nothing to keep", hint="leave it out")
    if output.exists():
        raise SpecError(f"{output} is already there", hint="name another --output, or remove it")
    partial = output.with_name(f"{output.name}.partial")
    model = Ulmfit.create(options, training=training, task="single", labels=(), pair=False)
    if partial.exists():
        model = Ulmfit.load(partial)
        if (model.options, model.training) != (options, training):
            hint = f"use them again, or remove {partial}"
            raise RunError(f"{partial} was begun with other settings", hint=hint)
        yield {"event": "phase", "message": f"going on from {partial}"}
    for key in changed_settings(training):
        if key not in READ:
            yield {"event": "warning", "message": f"training.{key} has no effect on a language model"}
    kept = time.monotonic()
    for step in model.fit_language_model(lambda: texts_in(files, column=column), seed=training.seed):
        step.insist_on_loss()
        facts = {"step": step.number, "total": step.total, "loss": step.loss, "stage": step.stage}
        is_due = step.number % training.log_every == 0 or step.number == step.total
        yield {"event": "step", **facts, "settings": dict(step.settings)} if is_due else {"event": "tick", **facts}
        if time.monotonic() - kept > KEPT_EVERY_S:
            storage.remove_directory(partial)
            with storage.writing_directory(partial) as scratch:
                model.save(scratch, resumable=True)
            kept = time.monotonic()
    with storage.writing_directory(output) as scratch:
        model.save_language_model(scratch)
    storage.remove_directory(partial)


def _settings(overrides: Sequence[str]) -> tuple[Any, Training]:
    """The options of `ulmfit` and the training settings; no data is named here, so no whole spec is needed."""
    raw: Mapping[str, Any] = specs.override({"model": {"family": "ulmfit"}}, overrides)
    problems = [f"{section}: only model and training are used here" for section in raw if section not in USED]
    training = specs.check_section("training", raw, problems)
    options = specs.check_options(registry.find("models", "ulmfit").Options, raw.get("model", {}), problems)
    if problems:
        raise SpecError.listing("the command line", problems)
    return options, training
