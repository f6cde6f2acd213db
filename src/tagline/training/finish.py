"""The end of a run: the best model's decision layer, bundle, predictions and report, measured as it was saved."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tagline import __version__
from tagline.errors import RunError, TaglineError
from tagline.evaluation import baselines
from tagline.evaluation.baselines import Figures
from tagline.evaluation.schema import Report, SplitFigures, TrainingHistory
from tagline.exports.export import ExportedForms, MeasuredRows, add_forms
from tagline.models import Classifier, Exportable, Scorer, Scores
from tagline.models.nn.workers import world
from tagline.prediction import bundle, onnx_runtime
from tagline.prediction.bundle import load_classifier
from tagline.prediction.decisions import DecisionLayer
from tagline.prediction.predictor import Predictor, score_texts
from tagline.reports import html, markdown, report
from tagline.runs.checkpoints import Progress
from tagline.runs.events import Event, FinishedEvent, PhaseEvent, UsageEvent, WarningEvent
from tagline.spec import Goal
from tagline.storage import atomic
from tagline.training.context import AttemptContext, Clock
from tagline.training.refit import Candidate, describe_decline, find_refit_problem, is_worth_refitting, refit


def finish_run(context: AttemptContext, progress: Progress) -> Iterator[Event]:
    """Bundle the best model, and evaluate it as loaded from disk."""
    if damage := context.run.checkpoint_damage(progress, progress.best):
        hint = f"go on from an earlier checkpoint: tagline train --resume {context.run.address}"
        raise RunError(damage, hint=hint)
    best = load_classifier(context.family, context.run.checkpoint(progress.best))
    clock = Clock(progress.seconds, budget_s=60 * context.spec.training.max_minutes)
    kept, fallbacks = yield from _choose_candidate(context, best, progress, clock)
    unkept = list(_find_unmet_targets(context, kept))
    for message in (*unkept, *fallbacks):
        yield context.record(WarningEvent(message=message))
    others = {"majority": baselines.measure_majority(context.data)}
    if context.spec.training.baseline and len(context.data.splits["test"]) and not clock.is_over():
        yield from _compare_baselines(context, others)
    yield PhaseEvent(message="measuring")
    with context.run.reading("events.jsonl"):
        history = report.summarize_history(context.run.events(), refits=best.refits)
    yield context.record(UsageEvent(step=int(progress.last), **context.usage.take_sample()))
    announced = len(fallbacks)
    measured = _write_bundle(context, kept, unkept=unkept, fallbacks=fallbacks, baselines=others, history=history)
    overanswered = [report.overanswer_sentence(each) for each in measured.report.overanswered]
    for message in (*measured.warnings, *overanswered, *fallbacks[announced:]):
        yield context.record(WarningEvent(message=message))
    context.run.write_lines("predictions.jsonl", measured.predictions)
    html.write_report(context.run, measured.report)
    yield context.record(FinishedEvent(run=context.run.address, figures=_select_numbers(measured.report.test)))


def _choose_candidate(
    context: AttemptContext, best: Classifier, progress: Progress, clock: Clock
) -> Generator[Event, None, tuple[Candidate, list[str]]]:
    """Return the best model or its refit, and why the refit was rejected if it was."""
    validation = context.data.splits["validation"]
    raw = score_texts(best, validation.texts, labels=len(context.data.labels))
    tuned = context.tune_decisions(raw, validation)
    own = Candidate(best, tuned, validation, raw, tuned.answers)
    if not best.refits or not len(validation) or clock.is_over() or not is_worth_refitting(context, best):
        return own, []
    yield PhaseEvent(message="learning once more, with the validation rows too")
    refitted = refit(context, clock, settings=progress.best_settings)
    if refitted is None:
        return own, []
    problem = find_refit_problem(context, refitted, before=own)
    return (own, [problem]) if problem else (refitted, [])


@dataclass
class _BundleMeasurement:
    """Report, predictions and warnings of a bundle, evaluated as it was saved."""

    report: Report = field(init=False)
    predictions: Sequence[str] = ()
    warnings: list[str] = field(default_factory=list)


def _write_bundle(
    context: AttemptContext,
    kept: Candidate,
    *,
    unkept: Sequence[str],
    fallbacks: list[str],
    baselines: Mapping[str, Figures],
    history: TrainingHistory,
) -> _BundleMeasurement:
    """Save a model as the run's bundle, and evaluate it as loaded from disk."""
    test, validation = context.data.splits["test"], context.data.splits["validation"]
    layer, measured = kept.tuned.layer, _BundleMeasurement()

    def fill(directory: Path) -> dict[str, Any]:
        kept.model.save(directory)
        scorer, raw, forms = _select_runtime(context, directory, layer, measured.warnings, fallbacks)
        outcome = report.SplitPredictions(test, raw, layer.answers(raw))
        measured.report = report.build_report(
            context.data,
            Predictor(scorer, layer, pair=context.data.pair),
            family=context.family,
            findings=context.findings,
            wanted=context.spec.gates,
            test=outcome,
            validation=report.SplitPredictions(validation, kept.raw, kept.answers),
            losses=kept.tuned.losses,
            unkept=unkept,
            fallbacks=fallbacks,
            baselines=baselines,
            history=history,
            runtime=forms.runtime,
            exports=forms.checks,
        )
        measured.predictions = report.format_predictions(context.data, outcome, layer)
        return {
            "tagline": __version__,
            "task": context.data.task,
            "pair": context.data.pair,
            "labels": context.data.labels,
            "family": context.family,
            "spec": context.spec.model_dump(mode="json"),
            "fingerprint": context.data.fingerprint,
            "decisions": layer.to_dict(),
            "figures": _select_numbers(measured.report.test),
            "exports": forms.checks,
            "runtime": forms.runtime,
        }

    bundle.write(
        context.run.bundle, fill=fill, card=lambda manifest: markdown.render_model_card(manifest, measured.report)
    )
    return measured


def _find_unmet_targets(context: AttemptContext, candidate: Candidate) -> Iterator[str]:
    """Yield targets of the spec that the decision layer did not reach on the rows it was tuned on."""
    decisions = context.spec.decisions
    figures = report.measure_split(context.data, candidate.tuned_on, candidate.tuned.answers)
    if target := decisions.target_precision:
        reached = figures.get("accuracy_of_answered", figures.get("accuracy"))
        if reached is None or reached < target:
            shown = "cannot be measured" if reached is None else f"is {reached:.2f}"
            yield f"decisions.target_precision = {target:g} was not reached: on held-out rows it {shown}"
    if isinstance(goal := decisions.thresholds, Goal) and context.data.task == "multi":
        name, wanted = ("precision", goal.precision) if goal.precision else ("recall", goal.recall)
        missed = [
            label
            for label, f in figures.get("per_label", {}).items()
            if f["support"] and f[name] < wanted - 1e-9 and label != context.data.none_label
        ]
        if missed:
            labels = ", ".join(missed)
            yield f"decisions.thresholds: a {name} of {wanted:g} was not reached on held-out rows by: {labels}"


def _compare_baselines(context: AttemptContext, others: dict[str, baselines.Figures]) -> Iterator[Event]:
    """Measure other families for comparison; one that cannot learn from this data is a warning, no failure."""
    learned = (
        {} if context.family == baselines.FAMILY else {baselines.FAMILY: (baselines.measure_linear, "to compare with")}
    )
    rival = baselines.choose_rival(context.spec, context.data)
    if rival and world().size == 1:  # the others are not there to learn with
        learned[rival] = baselines.measure_rival, "which may do better with so few rows"
    for family, (reached, why) in learned.items():
        yield PhaseEvent(message=f"learning family {family}, {why}")
        try:
            others[family] = reached(context.spec, context.data)
        except TaglineError as error:
            yield context.record(WarningEvent(message=f"not compared with family {family}: {error.message}"))


def _select_runtime(
    context: AttemptContext, directory: Path, layer: DecisionLayer, warnings: list[str], fallbacks: list[str]
) -> tuple[Scorer, Scores, ExportedForms]:
    """Return the saved model in the form that will predict, and its scores of the test rows.

    Other forms are checked on those rows; where there are none, on the validation rows.
    """
    test, validation = context.data.splits["test"], context.data.splits["validation"]
    rows = test if len(test) else validation
    own = load_classifier(context.family, directory)
    raw = score_texts(own, rows.texts, labels=len(layer.labels))
    forms = ExportedForms()
    if context.spec.training.export and own.uses_device and isinstance(own, Exportable):
        answers = layer.answers(raw)
        measured = MeasuredRows(rows.texts, rows.targets, answers.chosen, answers.scores)
        try:
            if not len(rows):
                raise RunError("there is no row to check another form with")
            forms = add_forms(
                own,
                directory,
                to="onnx",
                family=context.family,
                layer=layer,
                measured=measured,
                samples=context.data.splits["train"].texts,
            )
        except TaglineError as error:
            atomic.remove_directory(directory / onnx_runtime.DIRECTORY)
            warnings.append(f"the bundle needs torch to predict: {error.message}")
    forms = _drop_worse_runtimes(context, own, forms, layer, fallbacks)
    if forms.runtime:
        return forms.scorers[forms.runtime], forms.scores[forms.runtime][: len(test)], forms
    return own, raw[: len(test)], forms


def _drop_worse_runtimes(
    context: AttemptContext, own: Classifier, forms: ExportedForms, layer: DecisionLayer, fallbacks: list[str]
) -> ExportedForms:
    """Drop exported forms that do significantly worse on validation than the model itself."""
    texts, labels = context.data.splits["validation"].texts, len(layer.labels)
    tried = [name for name in (forms.runtime, "float32") if forms.runtime and name in forms.scorers]
    if not tried or not len(texts):
        return forms
    before = layer.answers(score_texts(own, texts, labels=labels))
    for name in dict.fromkeys(tried):
        lost = describe_decline(
            context, layer.answers(score_texts(forms.scorers[name], texts, labels=labels)), before=before
        )
        if not lost:
            return replace(forms, runtime=name)
        fallbacks.append(f"its form {name} does worse on validation than its own ({lost}): that form is not used")
    return replace(forms, runtime="")


def _select_numbers(figures: SplitFigures) -> dict[str, Any]:
    return {key: value for key, value in figures.items() if isinstance(value, int | float)}
