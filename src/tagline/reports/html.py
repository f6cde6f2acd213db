"""HTML pages: reports, comparisons, the server's pages. None of them loads anything from another host."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagline import __version__
from tagline.data.writers import FORMULA, OURS, answer_columns
from tagline.errors import SpecError
from tagline.evaluation.intervals import wilson_interval
from tagline.evaluation.metrics import select_table_figures
from tagline.evaluation.schema import CurvePoint, ErrorRow, Number, Report
from tagline.reports import advice, charts, markdown
from tagline.reports.charts import Series
from tagline.runs.resource_usage import describe_summary, summarize_usage
from tagline.runs.run import Run
from tagline.spec.secret_detection import mask_environment
from tagline.storage import addresses, atomic

if TYPE_CHECKING:
    from jinja2 import Environment

FORMS = (".html", ".md", ".json")
MOST_IN_MATRIX = 20
MOST_ERRORS = 200
FAINTEST = 0.15
"""Words with an attribution below this share of the strongest one are not marked."""
UNIT: charts.Range = (0.0, 1.0)
LEARNING = ("loss", "evaluations", "learning")
"""The charts of the training."""
AT_THRESHOLD = ("threshold", "precision", "recall", "f1")

POLICY = "default-src 'none'; base-uri 'none'; img-src data:"
"""The Content-Security-Policy of every page: nothing may be loaded that is not part of it."""
POLICY_MARK = "CONTENT-SECURITY-POLICY"
"""The placeholder of a page's policy, which is known once its scripts and styles are."""


@dataclass(frozen=True)
class _Tried:
    """The figure of a model that was fitted with one value of a setting."""

    setting: Number
    value: Number
    is_kept: bool = False


def write_report(run: Run, report: Report) -> None:
    """Write the report of a run, as JSON and as HTML."""
    usage = describe_summary(summarize_usage(run.events()))
    page = render_report(report, name=run.name, spec=run.spec_text(), lock=run.lock(), usage=usage)
    run.write_text("report.html", page)
    run.write_json("report.json", report.to_dict())


def check_form(output: str) -> None:
    """Raise SpecError for a file name without a known form of a report."""
    if Path(output).suffix.lower() not in FORMS:
        raise SpecError(f"cannot write {output}: no such form of a report", hint=f"one of: {', '.join(FORMS)}")


def save_report(
    report: Report, output: str, *, name: str, spec: str = "", lock: Mapping[str, Any] | None = None, usage: str = ""
) -> None:
    """Save a report to a file, as HTML, Markdown or JSON by its name."""
    check_form(output)
    match Path(output).suffix.lower():
        case ".html":
            text = render_report(report, name=name, spec=spec, lock=lock, usage=usage)
        case ".md":
            text = markdown.render_markdown_report(report, name=name)
        case _:
            text = json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n"
    target = addresses.choose_staging_path(output)
    atomic.write_text(target, text, is_private=False)
    addresses.deliver(target, output)


def render_report(
    report: Report, *, name: str, spec: str = "", lock: Mapping[str, Any] | None = None, usage: str = ""
) -> str:
    """Render a report as one HTML file; `usage` is the training's resource usage in a sentence."""
    has_rows = bool(report.test.rows)
    parts = [("labels", "Labels"), ("confusions", "Confusions"), ("scores", "Scores")] if has_rows else []
    parts += [("thresholds", "Thresholds")] if report.thresholds else []
    drawings = {name: draw(report) for name, draw in CHARTS.items()}
    has_learning = any(drawings[chart] for chart in LEARNING)
    parts += [("learning", "Learning")] if has_learning else []
    parts += [("errors", "Errors"), ("slices", "Groups")] if has_rows else []
    parts += [("data", "Data")] + ([("made", "Spec")] if spec else [])
    confusions = [(pair, [_build_error(row, "mistake") for row in pair.examples]) for pair in report.confusions]
    return _render_template(
        "report.html",
        has_style_attributes=True,
        report=report,
        confusions=confusions,
        name=name,
        version=__version__,
        parts=parts,
        verdict=advice.write_verdict(report),
        figure=_select_main_figure(report) if has_rows else None,
        bars=_build_bars(report) if has_rows else [],
        per_label=_list_label_rows(report) if has_rows else [],
        figures=_list_figures(report) if has_rows else [],
        matrix=_build_matrix(report),
        abstention=advice.abstention_sentence(report),
        has_learning=has_learning,
        at_first=_find_abstention_point(report),
        calibration_sentence=advice.calibration_sentence(report) if has_rows else "",
        form=advice.form_sentence(report.runtime, report.exports),
        charts={name: _mark_safe(svg) for name, svg in drawings.items()},
        errors=_list_errors(report)[:MOST_ERRORS],
        spec=spec,
        lock=_format_lock(lock) if lock else "",
        usage=usage,
        facts=_dump_script_json(_collect_facts(report)),
    )


def _format_lock(lock: Mapping[str, Any]) -> str:
    """Format a run's lock for the page, with the values of its job's variables masked."""
    shown = {**lock, "command": mask_environment(str(lock.get("command", "")))}
    return json.dumps(shown, indent=2, ensure_ascii=False)


def render_playground_page(
    info: Mapping[str, Any], *, predict_route: str, needs_token: bool, text: Sequence[str]
) -> str:
    """Render the playground page of a served bundle."""
    facts = {key: info[key] for key in ("pair", "labels", "thresholds", "abstain_below")}
    facts |= {"route": predict_route, "text": list(text), "ours": OURS, "answer": list(answer_columns(info["task"]))}
    facts["formula"] = f"^{FORMULA.pattern}".replace(r"\Z", "$")  # the end of a text in JavaScript
    return _render_template(
        "playground.html",
        connects=True,
        info=info,
        needs_token=needs_token,
        version=__version__,
        facts=_dump_script_json(facts),
    )


def render_api_page(document: Mapping[str, Any]) -> str:
    """Render the OpenAPI document as a page, without scripts from other hosts."""
    return _render_template("api.html", document=document, version=__version__)


def read_content_policy(page: str) -> str:
    """Return the policy of a page for the HTTP header, the only place where `frame-ancestors` works."""
    match = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert match, "a page of ours without a policy"
    return f"{html.unescape(match[1])}; frame-ancestors 'none'"


def save_comparison(comparison: Mapping[str, Any], output: str) -> None:
    """Save a comparison of runs as one HTML file."""
    figure = comparison["figure"]
    points = [
        Series(
            run["name"],
            [(number + 1, run["figures"][figure] or 0.0)],
            "abc"[number % 3],
            [tuple(run["intervals"][figure])],
        )
        for number, run in enumerate(comparison["runs"])
    ]
    description = "; ".join(f"{run['name']} {run['figures'][figure] or 0:.3f}" for run in comparison["runs"])
    chart = charts.draw_line_chart(
        points,
        title=figure,
        description=description,
        x_label="run, the best first",
        y_label=figure,
        x_range=(0.5, len(points) + 0.5),
    )
    text = _render_template(
        "comparison.html",
        has_style_attributes=True,
        comparison=comparison,
        figures=select_table_figures(comparison["runs"][0]["main"]),
        chart=_mark_safe(chart),
        version=__version__,
    )
    target = addresses.choose_staging_path(output)
    atomic.write_text(target, text, is_private=False)
    addresses.deliver(target, output)


def _render_template(
    template: str, *, connects: bool = False, has_style_attributes: bool = False, **values: Any
) -> str:
    """Render a page whose policy allows only its template's own scripts and styles, by their hashes.

    Style attributes cannot be hashed; `has_style_attributes` allows them, for widths of bars and strengths of colours.
    """
    page = _create_environment().get_template(template).render(policy=POLICY_MARK, **values)
    policy = [POLICY, *(["connect-src 'self'"] if connects else [])]
    for tag in ("style", "script"):
        hashes = [_hash_source(text) for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)]
        policy.append(f"{tag}-src {' '.join(hashes)}" if hashes else f"{tag}-src 'none'")
    if has_style_attributes:
        policy.append("style-src-attr 'unsafe-inline'")
    return page.replace(POLICY_MARK, "; ".join(policy), 1)


def _hash_source(text: str) -> str:
    """Return the hash of a script or a style, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _create_environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tagline.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    # Jinja's own `tojson` is for scripts: it escapes an ampersand as \u0026.
    environment.filters["as_json"] = partial(json.dumps, ensure_ascii=False)
    return environment


def _mark_safe(text: str) -> Any:
    """Mark a text as HTML that needs no escaping."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - SVG of charts.py, which escapes what comes from the data


def _dump_script_json(value: Any) -> Any:
    """Dump JSON that is safe inside a script element: nothing in it ends the element."""
    text = json.dumps(value, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return _mark_safe(text)


def _select_main_figure(report: Report) -> dict[str, str]:
    """Return the largest figure of the page: for a bundle that abstains, the precision of its answers."""
    test, name = report.test, advice.main_figure(report)
    value, (low, high), beside = test[name], test.intervals[name], ""
    if test.accuracy_of_answered is not None and test.accuracy_of_answered_interval is not None:
        value, (low, high) = test.accuracy_of_answered, test.accuracy_of_answered_interval
        name, beside = "of its answers right", f"answers {_format_percent(test.coverage or 0.0)} of the texts"
    return {"name": name, "shown": _format_percent(value), "low": f"{low:.3f}", "high": f"{high:.3f}", "beside": beside}


def _format_percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def _build_bars(report: Report) -> list[dict[str, Any]]:
    name = advice.main_figure(report)
    ours = "this run" if report.history else "this bundle"
    figures_by_name: dict[str, Any] = {
        f"{ours}, answering all" if advice.answered_sentence(report) else ours: report.test
    }
    titles = {"linear": "linear baseline", "majority": "always the same answer"}
    easiest_last = sorted(report.baselines.items(), key=lambda each: each[0] == "majority")
    figures_by_name |= {titles.get(kind, f"family {kind}"): figures for kind, figures in easiest_last if figures}
    return [
        {"name": title, "shown": f"{figures[name]:.3f}", "width": round(100 * figures[name], 1)}
        for title, figures in figures_by_name.items()
        if figures.get(name) is not None
    ]


def _list_label_rows(report: Report) -> list[dict[str, Any]]:
    thresholds = dict(zip(report.labels, report.decisions.thresholds or [0] * len(report.labels), strict=True))
    rows = [{"name": name, "threshold": thresholds[name], **f} for name, f in report.test.per_label.items()]
    return sorted(rows, key=lambda row: (row["support"] == 0, row["f1"]))


def _list_figures(report: Report) -> list[tuple[str, str, str]]:
    test = report.test
    ends = {name: f"{low:.3f} to {high:.3f}" for name, (low, high) in test.intervals.items()}
    return [
        (key, f"{value:,}" if isinstance(value, int) else f"{value:.4f}", ends.get(key, ""))
        for key, value in test.items()
        if isinstance(value, int | float)
    ]


def _build_matrix(report: Report) -> dict[str, Any] | None:
    """Return the confusion matrix; of many labels, of those with the most errors."""
    confusion = report.test.confusion
    if not confusion:
        return None
    labels, count = report.labels, len(report.labels)
    wrong = [sum(confusion[i]) + sum(row[i] for row in confusion) - 2 * confusion[i][i] for i in range(count)]
    if count > MOST_IN_MATRIX and not any(wrong):
        return None
    kept = sorted(sorted(range(count), key=lambda i: (-wrong[i], i))[:MOST_IN_MATRIX])
    rows = []
    for i in kept:
        total = sum(confusion[i]) or 1
        counts = [confusion[i][j] for j in kept]
        cells = [
            {"count": rows_there, "is_right": i == j, "heat": round(0.7 * rows_there / total, 2)}
            for j, rows_there in zip(kept, counts, strict=True)
        ]
        rows.append({"name": labels[i], "cells": cells})
    return {"names": [labels[i] for i in kept], "rows": rows, "is_part": len(kept) < count}


def _list_errors(report: Report) -> list[dict[str, Any]]:
    """Return rows to read: grave label errors, then confident mistakes, then slightly doubted labels."""
    mistakes = {(row.file, row.line): row for row in report.mistakes}
    grave = [row for row in report.suspects if row.is_grave]
    errors = []
    for row in grave:
        as_mistake = mistakes.pop((row.file, row.line), None)
        pushes = as_mistake.pushes if as_mistake else []
        errors.append(_build_error(row, "suspect mistake" if as_mistake else "suspect", pushes=pushes))
    errors += [_build_error(row, "mistake", pushes=row.pushes) for row in mistakes.values()]
    return errors + [_build_error(row, "suspect") for row in report.suspects if not row.is_grave]


def _build_error(row: ErrorRow, kind: str, *, pushes: Sequence[Sequence[Number]] = ()) -> dict[str, Any]:
    """Return a row with its text cut into pieces, some of them marked."""
    sides = [row.text] if isinstance(row.text, str) else row.text
    strongest = max((abs(weight) for _, _, weight, _ in pushes), default=0.0)
    marked = [push for push in pushes if strongest and abs(push[2]) >= FAINTEST * strongest]
    pieces = [
        _mark_pieces(text, [push for push in marked if push[3] == side], strongest) for side, text in enumerate(sides)
    ]
    return {"is_grave": False, **row, "kind": kind, "sides": pieces}


def _mark_pieces(text: str, pushes: Sequence[Sequence[Any]], strongest: float) -> list[dict[str, Any]]:
    pieces: list[dict[str, Any]] = []
    position = 0
    for start, end, weight, _ in sorted(map(tuple, pushes)):
        if start < position:
            continue
        pieces.append({"text": text[position:start], "kind": ""})
        share = round(0.1 + 0.6 * abs(weight) / strongest, 2)
        kind = "for" if weight > 0 else "against"
        pieces.append({"text": text[start:end], "kind": kind, "push": share, "said": f"{weight:+.2f} log-odds"})
        position = end
    return [*pieces, {"text": text[position:], "kind": ""}]


def _collect_facts(report: Report) -> dict[str, Any]:
    """Return the data of the page's controls."""
    thresholds = report.thresholds.to_dict()
    if thresholds:
        chosen = {row["name"]: {key: row[key] for key in AT_THRESHOLD} for row in _list_label_rows(report)}
        thresholds = {**thresholds, "chosen": chosen}
    low = _find_lowest_precision(report)
    return {
        "coverage": [point.to_dict() for point in report.coverage],
        "abstainBelow": report.decisions.abstain_below,
        "thresholds": thresholds,
        "plot": charts.PLOT,
        "coveragePlaces": [
            [round(part, 1) for part in charts.project_point((point.coverage, point.right), UNIT, (low, 1.0))]
            for point in report.coverage
        ],
    }


def _find_lowest_precision(report: Report) -> float:
    return min(int(10 * min((point.right for point in report.coverage), default=0.0)) / 10, 0.9)


def _find_abstention_point(report: Report) -> int:
    """Return the point of the coverage curve at which the bundle itself abstains, else the last one.

    At the last point every text is answered. A report of an earlier version has only points near the bundle's own.
    """
    below, last = report.decisions.abstain_below, len(report.coverage) - 1
    return max((i for i, point in enumerate(report.coverage) if point.below >= below), default=last)


def _draw_reliability(report: Report) -> str:
    if report.calibration.after is None:
        return ""
    reliability = report.calibration.reliability
    series = [Series("perfect", [(0, 0), (1, 1)], "guide")]
    for when, bins, style in (("before", reliability.before, "b"), ("after", reliability.after, "a")):
        if when == "after" or report.calibration.method != "none":
            points = [(each.score, each.true) for each in bins]
            ends = [wilson_interval(round(each.true * each.rows), each.rows) for each in bins]
            bands = ends if when == "after" else ()
            series.append(Series(f"{when} calibration", points, style, bands, has_dots=True))
    error = report.calibration.after.ece
    return charts.draw_line_chart(
        series,
        title="Reliability",
        description=f"Scores are off by {error:.3f} on average after calibration",
        x_label="score",
        y_label="how often true",
        x_range=UNIT,
        y_range=UNIT,
    )


def _draw_coverage(report: Report) -> str:
    if not report.coverage:
        return ""
    points = [(point.coverage, point.right) for point in report.coverage]
    marked = points[_find_abstention_point(report)]
    all_right = report.coverage[-1].right
    return charts.draw_line_chart(
        [Series("answers that are right", points, "a")],
        title="Coverage against precision",
        marker=marked,
        description=f"Answering everything, {all_right:.1%} are right; answering fewer texts, more of them",
        x_label="share of texts answered",
        y_label="share right",
        x_range=UNIT,
        y_range=(_find_lowest_precision(report), 1.0),
    )


def _draw_thresholds(report: Report) -> str:
    if not report.thresholds:
        return ""
    empty = [(0.0, 0.0), (1.0, 0.0)]
    names = (("threshold", "guide"), ("precision", "b"), ("recall", "c"), ("F1", "a"))
    return charts.draw_line_chart(
        [Series(name, empty, style) for name, style in names],
        title="Thresholds",
        description="Precision, recall and F1 of the chosen label over its threshold",
        x_label="threshold",
        y_label="",
        x_range=UNIT,
        y_range=UNIT,
    )


def _draw_trials(report: Report, points: Sequence[_Tried], *, name: str, title: str) -> str:
    """Draw the figure of each model that was tried, over the setting in which they differ."""
    setting = report.history.tried
    values = sorted({point.setting for point in points})
    places = {value: number for number, value in enumerate(values, start=1)}
    ordered = sorted(points, key=lambda point: point.setting)
    kept = [point for point in ordered if point.is_kept]
    series = [Series(name, [(places[point.setting], point.value) for point in ordered], "a", has_dots=True)]
    if kept:
        best = [(places[point.setting], point.value) for point in kept[-1:]]
        series.append(Series("the model that was kept", best, "c", has_dots=True))
    return charts.draw_line_chart(
        series,
        title=title,
        x_label=f"{setting}, each tried by itself",
        y_label=name,
        description="; ".join(f"{setting} {point.setting:g}: {point.value:.3f}" for point in ordered),
        x_range=(0.5, len(values) + 0.5),
        x_names=[f"{value:g}" for value in values],
    )


def _draw_loss(report: Report) -> str:
    steps = report.history.steps
    if len(steps) < 2:
        return ""
    if report.history.tried:
        tried = [_Tried(point.setting or 0.0, point.loss) for point in steps]
        return _draw_trials(report, tried, name="loss", title="Loss")
    stages = list(dict.fromkeys(step.stage for step in steps))
    series = [
        Series(stage or "loss", [(s.step, s.loss) for s in steps if s.stage == stage], "abc"[number % 3])
        for number, stage in enumerate(stages)
    ]
    first, last = steps[0].loss, steps[-1].loss
    description = f"From {first:.3f} at step {steps[0].step} to {last:.3f} at step {steps[-1].step}"
    return charts.draw_line_chart(series, title="Loss", description=description, x_label="step", y_label="loss")


def _draw_evaluations(report: Report) -> str:
    evaluations = report.history.evaluations
    if len(evaluations) < 2:
        return ""
    monitor = report.history.monitor
    if report.history.tried:
        tried = [_Tried(point.setting or 0.0, point.value, is_kept=point.kept) for point in evaluations]
        return _draw_trials(report, tried, name=monitor, title=f"{monitor} on validation")
    kept = [each for each in evaluations if each.kept][-1:]
    series = [
        Series(monitor, [(each.step, each.value) for each in evaluations], "a", has_dots=True),
        Series("the model that was kept", [(each.step, each.value) for each in kept], "c", has_dots=True),
    ]
    description = "; ".join(f"step {each.step}: {each.value:.3f}" for each in evaluations[:20])
    return charts.draw_line_chart(
        series, title=f"{monitor} on validation", description=description, x_label="step", y_label=monitor
    )


def _draw_learning_curve(report: Report) -> str:
    curve = report.learning_curve
    if curve is None:
        return ""
    points = [(point.rows, point.value) for point in curve.points]
    series = [
        Series(curve.figure, points, "a", _bands(curve.points), has_dots=True),
    ]
    if curve.expected:
        expected = [(point.rows, point.value) for point in curve.expected]
        series.append(Series("expected", expected, "b", _bands(curve.expected), has_dots=True))
    return charts.draw_line_chart(
        series, title="Learning curve", description=curve.sentence, x_label="training rows", y_label=curve.figure
    )


def _bands(points: Sequence[CurvePoint]) -> list[charts.Range]:
    return [(point.interval[0], point.interval[1]) for point in points]


CHARTS = {
    "reliability": _draw_reliability, "coverage": _draw_coverage, "threshold": _draw_thresholds, "loss": _draw_loss,
    "evaluations": _draw_evaluations, "learning": _draw_learning_curve,
}  # fmt: skip
