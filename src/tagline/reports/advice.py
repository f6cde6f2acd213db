"""The verdict of a report in sentences: how good it is, whether that is good enough, and what to do next."""

from collections.abc import Iterator, Mapping, Sequence

from tagline.evaluation import gates
from tagline.evaluation.schema import BaselineFigures, ExportCheck, Report, ReportFinding, SliceFigures

FEW_TEST_ROWS = 200
WIDE = 0.2
"""The width from which an interval is too wide, even with many rows."""
CLOSE_TO_LINEAR = 0.01
WEAK_F1 = 0.6
FINDS_THE_RARE = 0.1
"""The gain of macro-F1 over the majority baseline from which a model finds the rare labels."""
MOST_NAMED = 3
HIDDEN = 0.5
"""Abstention hides a label whose coverage is below this share of the overall coverage."""
LEAK = "near-duplicates"
"""The code of the check for data leakage: near duplicates of test texts in training."""
NEW_TEXTS = ("likeness", "unlike any training text")
"""The slice of test rows whose answers cannot be memorised: its kind and its name."""
SUSPICIOUS = 0.02
"""The share of held-out rows with grave label errors from which they are mentioned."""

NEARLY_SURE = 0.999
"""Scores from this value on are shown with all their digits."""


def main_figure(report: Report) -> str:
    """Return the main figure's name; not micro-F1 where no row has a label and none was answered."""
    if report.task == "single":
        return "accuracy"
    return "micro_f1" if report.test.micro_f1 is not None else "subset_accuracy"


def write_verdict(report: Report) -> list[str]:
    """Write how good the model is, compared with its baselines and gates."""
    test = report.test
    if not test.rows:
        return ["Nothing was measured: there is no test row."]
    name = main_figure(report)
    low, high = test.intervals[name]
    if name == "micro_f1":
        main = f"Micro-F1 {test[name]:.3f} (95 % interval {low:.3f} to {high:.3f})"
    else:
        ends = f"{_format_hundredths(low)} to {_format_hundredths(high)}"
        main = f"Right {_format_hundredths(test[name])} times in 100 (95 % interval {ends})"
    macro = "no F1 to measure" if test.macro_f1 is None else f"macro-F1 {test.macro_f1:.3f}"
    sentences = [f"{main}, {macro}, on {test.rows:,} test rows."]
    if answered := answered_sentence(report):
        all_answered = f"{main[0].lower()}{main[1:]}, {macro}"
        sentences = [answered, f"If it answered every text: {all_answered}."]
    if unknown := test.unknown_label_rows:
        whose = "has a label" if unknown == 1 else "have labels"
        sentences.append(f"{unknown:,} of them {whose} that it never learned: every answer to them counts as wrong.")
    baselines = {kind: figures for kind, figures in report.baselines.items() if figures.get(name) is not None}
    sentences += [_compare_baseline(report, kind, figures) for kind, figures in baselines.items()]
    results = report.gates
    if results and all(result.passed for result in results):
        sentences.append("Every gate is passed." if len(results) > 1 else "The gate is passed.")
    sentences += [f"Not good enough: {gates.format_result(result)}." for result in results if not result.passed]
    return sentences


def answered_sentence(report: Report) -> str:
    """Write coverage and precision of a bundle that abstains; empty for one that answers everything."""
    test = report.test
    if test.accuracy_of_answered is None or test.accuracy_of_answered_interval is None:
        return ""
    low, high = test.accuracy_of_answered_interval
    return (
        f"Answers {_format_hundredths(test.coverage or 0.0)} of 100 texts, and is right in "
        f"{_format_hundredths(test.accuracy_of_answered)} of 100 answers (95 % interval {_format_hundredths(low)} to "
        f"{_format_hundredths(high)}), on {test.rows:,} test rows."
    )


def calibration_sentence(report: Report) -> str:
    """Write how well the scores are calibrated."""
    figures = report.calibration
    if figures.before is None or figures.after is None:
        return "Scores were not compared with how often they are true: there is no test row."
    before, after, chance = figures.before.ece, figures.after.ece, figures.ece_by_chance
    if figures.method == "none":
        return f"Scores are the model's own; on test they are off by {after:.3f} on average (calibration error)."
    return (
        f"Scores are calibrated by {figures.method}, fitted on validation: on test they were off by {before:.3f} on "
        f"average (expected calibration error) and are off by {after:.3f} now; perfect ones would be by {chance:.3f}, "
        "by chance."
    )


def abstention_sentence(report: Report) -> str:
    """Write when the bundle abstains, with coverage and precision on test; empty if it always answers."""
    test, below = report.test, report.decisions.abstain_below
    if not below or not test.rows:
        return ""
    if test.coverage is None:
        return f"It abstains below a score of {format_threshold(below)}, which no test row has."
    precision, right = "", test.accuracy_of_answered
    if right is not None and test.accuracy_of_answered_interval is not None:
        low, high = test.accuracy_of_answered_interval
        precision = f"; {right:.1%} of the answers it gives are right (95 % interval {low:.1%} to {high:.1%})"
    score, coverage = format_threshold(below), test.coverage
    return f"It abstains below a score of {score}: it answers {coverage:.1%} of the test rows{precision}."


def format_threshold(below: float) -> str:
    """Format a score below which a bundle abstains, the same on every page and in every command."""
    return f"{below:.3f}" if below < NEARLY_SURE else f"{below:g}"


def form_sentence(runtime: str, exports: Mapping[str, ExportCheck]) -> str:
    """Write which form of the model predicts, and how it compares."""
    if not exports:
        return "It predicts in its own form."
    rows = f"on {next(iter(exports.values())).rows:,.0f} measured rows"
    if not runtime:
        return f"It predicts in its own form; others were made beside it, and compared {rows}."
    check = exports[runtime]
    same = f"{check.equal_answers:.1%} of its answers are those of the model as it was trained, {rows}"
    if runtime == "int8":
        return f"It predicts in ONNX with weights of eight bits: {same}, and macro-F1 changes by {check.macro_f1:+.4f}."
    lost = f"; with eight bits macro-F1 would change by {exports['int8'].macro_f1:+.4f}" if "int8" in exports else ""
    return f"It predicts in ONNX with float32: {same}{lost}."


def next_steps(report: Report) -> list[str]:
    """Return the most useful next steps, the most urgent first, each based on a figure."""
    if not report.test.rows:
        return ["Give data.test, or raise data.test_share: without test rows nobody knows how good it is."]
    hopeless = list(_advise_on_majority(report))
    # The doubts and weak labels of a model that has learned nothing are no evidence about the data.
    labels = () if hopeless else (_advise_on_suspects, _advise_on_abstention, _advise_on_weak_labels)
    checks = (
        _advise_on_linear,
        _advise_on_rival,
        _advise_on_leaks,
        _advise_on_few_rows,
        *labels,
        _advise_on_slices,
        _advise_on_curve,
        _advise_on_data,
    )
    urgent = (
        *_advise_on_gates(report),
        *_advise_on_overuse(report),
        *_advise_on_goals(report),
        *_advise_on_fallbacks(report),
    )
    steps = [*urgent, *hopeless, *(step for check in checks for step in check(report))]
    return steps or ["Nothing stands out. Try it on texts of your own: tagline predict."]


def _format_hundredths(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0")


def _compare_baseline(report: Report, kind: str, figures: BaselineFigures) -> str:
    name = main_figure(report)
    ours, theirs = report.test[name], figures[name]
    if kind == "majority":
        return f"Always answering {_join_labels(figures.answer)} would reach {name} {theirs:.3f}."
    rows = f" on {figures.train_rows:,} of the training rows" if figures.train_rows else ""
    word = "more" if ours >= theirs else "less"
    baseline = "The linear baseline" if kind == "linear" else f"Family {kind}"
    return f"{baseline}{rows} reaches {name} {theirs:.3f}: {abs(ours - theirs):.3f} {word} here."


def _join_labels(labels: Sequence[str]) -> str:
    """Join labels for a sentence, the first of many."""
    if len(labels) > MOST_NAMED + 1:
        return f"{', '.join(labels[:MOST_NAMED])} and {len(labels) - MOST_NAMED} labels more"
    return ", ".join(labels) or "nothing"


def _advise_on_goals(report: Report) -> Iterator[str]:
    for message in report.unkept:
        yield f"Ask for less, or collect more data: {message}."


def _advise_on_overuse(report: Report) -> Iterator[str]:
    if report.overanswered:
        labels = [f"{each.label} ({each.answered:.1%}, has it {each.expected:.1%})" for each in report.overanswered]
        remedy = "decisions.thresholds=0.5 asks more of a score" if report.task == "multi" else _suggest_remedy(report)
        yield (
            f"Do not use it yet: it gives (nearly) every text the same label, {', '.join(labels[:MOST_NAMED])}. "
            f"{remedy[0].upper()}{remedy[1:].removesuffix('.')}."
        )


def _advise_on_fallbacks(report: Report) -> Iterator[str]:
    for message in report.fallbacks:
        yield f"Know which form was kept: {message}."


def _advise_on_gates(report: Report) -> Iterator[str]:
    failed = [result.gate for result in report.gates if not result.passed]
    if failed:
        yield f"Do not use it yet: {', '.join(failed)} not reached."


def _advise_on_majority(report: Report) -> Iterator[str]:
    majority, name, test = report.baselines.get("majority"), main_figure(report), report.test
    if not majority or majority.get(name) is None:
        return
    answer, macro = _join_labels(majority.answer), test.macro_f1 or 0
    low, high = test.intervals[name]
    # With a very frequent label a model may be no more accurate than the majority, and still find the others.
    if test[name] <= majority[name]:
        if macro - (majority.macro_f1 or 0) < FINDS_THE_RARE:
            yield (
                f"Do not use it yet: always answering {answer} does as well ({name} {majority[name]:.3f} against "
                f"{test[name]:.3f}). {_suggest_remedy(report)}"
            )
    elif low <= majority[name] and report.task == "single" and macro < 1 / len(report.labels) + FINDS_THE_RARE:
        yield (
            f"Do not use it yet: it may be no better than always answering {answer} ({name} {majority[name]:.3f} "
            f"against {test[name]:.3f}, 95 % interval {low:.3f} to {high:.3f}). {_suggest_remedy(report)}"
        )


def _suggest_remedy(report: Report) -> str:
    """Suggest what helps a model that has learned nothing."""
    more = "more rows or epochs"
    if report.family == "linear":
        reads = ", which reads the two texts of a pair together" if report.pair else ""
        more = f"more rows, or try model.family=encoder{reads}"
    return (
        "Look whether data.text and data.labels are the right columns, and whether you could tell the labels from "
        f"these texts yourself; then give it {more}."
    )


def _advise_on_linear(report: Report) -> Iterator[str]:
    linear, majority = (report.baselines.get(kind, BaselineFigures()) for kind in ("linear", "majority"))
    name = main_figure(report)
    if linear.get(name) is None or linear[name] <= (majority.get(name) or 0):
        return  # the linear baseline is no better than the majority
    is_close = all(
        (report.test.get(each) or 0) < (linear.get(each) or 0) + CLOSE_TO_LINEAR for each in (name, "macro_f1")
    )
    if is_close:
        how = "better" if linear[name] > report.test[name] + CLOSE_TO_LINEAR else "as well"
        yield (
            f"Family linear does {how} ({linear[name]:.3f} against {report.test[name]:.3f}), in seconds and in a "
            "smaller bundle: use it, or look why more does not help."
        )


def _advise_on_rival(report: Report) -> Iterator[str]:
    name = main_figure(report)
    ours, (_, high) = report.test[name], report.test.intervals[name]
    for family, figures in report.baselines.items():
        if family not in ("majority", "linear") and (theirs := figures.get(name)) is not None and theirs > ours:
            doubt = "" if theirs > high else ", which may be chance"
            yield (
                f"Try model.family={family}: with as few rows as here it reaches {theirs:.3f} against {ours:.3f} on "
                f"the same test rows{doubt}."
            )


def _advise_on_few_rows(report: Report) -> Iterator[str]:
    rows, intervals = report.test.rows, report.test.intervals
    widths = {
        name: intervals[name][1] - intervals[name][0] for name in ("macro_f1", main_figure(report)) if name in intervals
    }
    name = max(widths, key=lambda each: widths[each])
    if rows >= FEW_TEST_ROWS and widths[name] < WIDE:
        return
    low, high = intervals[name]
    supports = {label: f.support for label, f in report.test.per_label.items() if f.support}
    rarest = min(supports, key=lambda label: supports[label], default="")
    few = f", {supports[rarest]:,} of {rarest}," if name == "macro_f1" and len(supports) > 1 else ""
    yield f"Label more test rows: with {rows:,} of them{few} {name} may be anything from {low:.2f} to {high:.2f}."


def _advise_on_suspects(report: Report) -> Iterator[str]:
    suspects = report.gravely_doubted
    rows = report.splits["test"] + report.splits.get("validation", 0)
    if suspects and suspects >= SUSPICIOUS * rows:
        doubts = f"{suspects:,} in {rows:,} held-out rows"
        yield f"Read the labels that look wrong: {doubts}, marked at the top of the report's errors."


def _advise_on_abstention(report: Report) -> Iterator[str]:
    coverage = report.test.coverage or 0.0
    hidden = {
        name: f.coverage
        for name, f in report.test.per_label.items()
        if f.support and f.coverage is not None and f.coverage < HIDDEN * coverage
    }
    if hidden:
        listed = ", ".join(
            f"{name} ({hidden[name]:.0%})" for name in sorted(hidden, key=lambda n: hidden[n])[:MOST_NAMED]
        )
        yield (
            f"Know what it keeps silent about: {coverage:.0%} of all texts are answered, but few of {listed}. A lower "
            "decisions.target_precision or abstain_below answers more of them, with more errors."
        )


def _advise_on_weak_labels(report: Report) -> Iterator[str]:
    weak = [(name, f) for name, f in report.test.per_label.items() if f.support and f.f1 < WEAK_F1]
    if weak:
        weakest = sorted(weak, key=lambda each: each[1].f1)[:3]
        listed = ", ".join(f"{name} (F1 {f.f1:.2f})" for name, f in weakest)
        confusion = next((c for c in report.confusions if c.truth == weakest[0][0]), None)
        taken = f"; {confusion.truth} is most often taken for {confusion.answer}" if confusion else ""
        yield f"Collect more examples of the weakest labels: {listed}{taken}."


def _advise_on_slices(report: Report) -> Iterator[str]:
    for each in [each for each in report.slices if each.is_worse and not _are_new(each)][:2]:
        name = f"{each.by}: {each.name}"
        yield (
            f"Look at the texts that do worse ({name}): {each.accuracy:.1%} right against "
            f"{each.accuracy_of_rest:.1%} of the others, in {each.rows:,} rows."
        )


def _advise_on_curve(report: Report) -> Iterator[str]:
    if report.learning_curve:
        yield report.learning_curve.sentence


def _advise_on_leaks(report: Report) -> Iterator[str]:
    for finding in _list_warnings(report):
        if finding.code == LEAK:
            yield (
                "Keep variants of a text in one split, or remove them: the figures may be too good, with "
                f"{finding.message}." + "".join(_describe_new_texts(report))
            )


def _describe_new_texts(report: Report) -> Iterator[str]:
    for each in report.slices:
        if _are_new(each) and each.is_worse:
            rows, right, rest = each.rows, each.accuracy, each.accuracy_of_rest
            yield f" Of the {rows:,} test rows that are {each.name} {right:.1%} are right, of the others {rest:.1%}."


def _are_new(rows: SliceFigures) -> bool:
    return (rows.by, rows.name) == NEW_TEXTS


def _advise_on_data(report: Report) -> Iterator[str]:
    warnings = [finding for finding in _list_warnings(report) if finding.code != LEAK]
    if warnings:
        yield f"Mend the data: {warnings[0]['message']}" + (f", and {len(warnings) - 1} more." if warnings[1:] else ".")


def _list_warnings(report: Report) -> list[ReportFinding]:
    return [finding for finding in report.findings if finding.severity == "warning"]
