"""Reports as Markdown: the model card of a bundle, and the report for a pull request or a terminal."""

import re
from collections.abc import Iterator

from tagline.evaluation import gates
from tagline.evaluation.metrics import HEADLINE
from tagline.evaluation.schema import ExportCheck, Report
from tagline.prediction.bundle import Manifest
from tagline.reports import advice

MOST_LABELS = 100
MOST_CONFUSIONS = 5
FORM = "## In which form it predicts"


def render_model_card(manifest: Manifest, report: Report) -> str:
    """Render the bundle's README: what it is, its figures, its data, and how to use it."""
    text = '("a first text", "a second text")' if manifest.pair else '"a text"'
    splits = ", ".join(f"{rows:,} {name}" for name, rows in report.splits.items())
    return "\n".join(
        [
            "# A text classifier made by Tagline",
            "",
            f"Family `{manifest.family}`, task `{manifest.task}`{', pairs of texts' if manifest.pair else ''}, "
            f"{len(manifest.labels)} labels. Rows: {splits}.",
            "",
            "## How good it is",
            "",
            f"Measured on the {report.splits['test']:,} rows of the test split, which it never saw in training.",
            "",
            *_render_verdict(report),
            *_render_figures(report),
            *_render_labels(report),
            *_render_decisions(report),
            "## Where it fails",
            "",
            *_render_failures(report),
            "## What to know about its data",
            "",
            *_render_findings(report),
            f"- fingerprint `{manifest.fingerprint[:16]}`",
            "",
            *_render_form(manifest),
            "## How to use it",
            "",
            "```python",
            "import tagline",
            "",
            'predictor = tagline.load("bundle")',
            f"predictor.predict([{text}])",
            "```",
            "",
            "Its answers are for texts like those it learned from. "
            + (
                "A text about something else still gets one of its labels, unless abstention is set."
                if manifest.task == "single"
                else "A text about something else may get labels all the same."
            ),
            "",
        ]
    )


def update_form_section(card: str, manifest: Manifest) -> str:
    """Return the card with its section on the form of prediction rewritten, and the rest unchanged."""
    before, _, after = card.partition("## How to use it\n")
    before = before.partition(f"{FORM}\n")[0]
    return before + "\n".join([*_render_form(manifest), "## How to use it", ""]) + after


def _render_form(manifest: Manifest) -> Iterator[str]:
    """Yield which form predicts, and how the others compare."""
    exports = {name: ExportCheck.model_validate(check) for name, check in manifest.exports.items()}
    yield from (FORM, "", advice.form_sentence(manifest.runtime, exports), "")
    if exports:
        yield from ("| form | equal answers | change of macro-F1 | largest change of a score |", "|---|---|---|---|")
        for name, check in exports.items():
            yield (f"| {name} | {check.equal_answers:.1%} | {check.macro_f1:+.4f} | {check.largest_difference:.4f} |")
        yield ""


def render_markdown_report(report: Report, *, name: str) -> str:
    """Render a report as Markdown."""
    return "\n".join(
        [
            f"# {_escape_text(name)}",
            "",
            f"Family `{report.family}`, task `{report.task}`, {len(report.labels)} labels.",
            "",
            *_render_verdict(report),
            *_render_gates(report),
            "## What to do next",
            "",
            *(f"1. {_escape_text(step)}" for step in report.advice),
            "",
            "## Figures",
            "",
            *_render_figures(report),
            *_render_labels(report),
            *_render_decisions(report),
            "## Where it fails",
            "",
            *_render_failures(report),
            "## Form",
            "",
            advice.form_sentence(report.runtime, report.exports),
            "",
            "## Data",
            "",
            *_render_findings(report),
            f"- fingerprint `{report.data.fingerprint[:16]}`",
            "",
        ]
    )


def _render_verdict(report: Report) -> list[str]:
    return [*(_escape_text(sentence) for sentence in advice.write_verdict(report)), ""]


def _render_gates(report: Report) -> Iterator[str]:
    if report.gates:
        yield from ("## Gates", "")
        for result in report.gates:
            yield f"- {'passed' if result.passed else '**not passed**'}: {_escape_text(gates.format_result(result))}"
        yield ""


def _render_figures(report: Report) -> Iterator[str]:
    test = report.test
    names = [name for name in (*HEADLINE[report.task], "ece") if test.get(name) is not None]
    if names:
        yield from ("| figure | test | 95 % interval |", "|---|---|---|")
        for name in names:
            ends = test.intervals.get(name)
            yield f"| {name} | {test[name]:.3f} | {f'{ends[0]:.3f} to {ends[1]:.3f}' if ends else ''} |"
        yield ""


def _render_labels(report: Report) -> Iterator[str]:
    per_label = report.test.per_label
    if not per_label:
        return
    yield from ("| label | precision | recall | F1 | rows |", "|---|---|---|---|---|")
    for name, f in list(per_label.items())[:MOST_LABELS]:
        yield f"| {_escape_text(name)} | {f.precision:.2f} | {f.recall:.2f} | {f.f1:.2f} | {f.support} |"
    if len(per_label) > MOST_LABELS:
        yield f"| and {len(per_label) - MOST_LABELS} labels more | | | | |"
    yield ""


def _render_decisions(report: Report) -> Iterator[str]:
    """Yield the calibration of its scores, and when it abstains."""
    if report.calibration:
        yield advice.calibration_sentence(report)
    if abstention := advice.abstention_sentence(report):
        yield abstention
    for row in report.sets:
        if row.promised == 0.95:
            yield (
                f"Sets with a promised coverage of 95 % hold the truth for {row.reached:.1%} of the test rows, with "
                f"{row.labels:.1f} labels on average."
            )
    yield ""


def _render_failures(report: Report) -> Iterator[str]:
    lines = [
        f"- {_escape_text(pair.truth)} is taken for {_escape_text(pair.answer)} in {pair.share:.0%} of its rows"
        for pair in report.confusions[:MOST_CONFUSIONS]
    ]
    lines += [
        f"- worse on {_escape_text(each.by)}: {_escape_text(each.name)} ({each.accuracy:.1%} right against "
        f"{each.accuracy_of_rest:.1%} of the others, {each.rows} rows)"
        for each in report.slices
        if each.is_worse
    ]
    some = "- no test row is wrong" if not report.mistakes else "- no two labels are confused with each other"
    yield from lines or [some if report.test.rows else "- nobody knows: there is no test row"]
    yield ""


def _render_findings(report: Report) -> list[str]:
    warnings = [finding for finding in report.findings if finding.severity != "note"]
    return [f"- {_escape_text(each.message)}" for each in warnings] or ["- the checks found nothing to warn about"]


def _escape_text(text: str) -> str:
    """Escape a text from the data, so that it forms no table cell, link or tag in Markdown."""
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", " ".join(text.split()))
