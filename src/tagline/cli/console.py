"""Terminal output: tables, progress and errors. The only module that prints."""

import json
import os
import re
import shutil
import sys
import time
import traceback
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tagline.errors import BUG_EXIT_CODE, Interrupted, TaglineError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from tagline.data.checks import Finding
    from tagline.evaluation.schema import Report
    from tagline.jobs.diagnosis.log import Line
    from tagline.jobs.launchers import JobState
    from tagline.runs.events import Event, ResumedEvent, StartedEvent, TickEvent

RED, YELLOW, BOLD, DIM = "31", "33", "1", "2"
# Characters that a terminal interprets instead of showing: controls, text direction marks, and surrogates.
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
JOB_ID_VARIABLE = "CLOUD_ML_JOB_ID"
PROGRESS_EVERY_S = 10.0
"""Interval of progress lines where there is no progress bar, so that a log is not flooded."""
LINES_EVERY_S, MOST_LINES = 1.0, 100
"""Rate limit of a job's log: the lines of each replica that are shown in one interval."""
SEVERE = ("ERROR", "CRITICAL", "ALERT", "EMERGENCY")
MARKS = {"error": ("✗", RED), "warning": ("!", YELLOW), "note": ("·", DIM)}


def out(text: str = "") -> None:
    """Print a line of the command's result."""
    print(_sanitize_text(text))


def out_sentence(text: str, *, lead: str = "", between: str = " ") -> None:
    """Print a sentence of the result; on a terminal it is wrapped at `between`, not inside words."""
    print("\n".join(_wrap_parts(_sanitize_text(text).split(between), lead=lead, between=between, stream=sys.stdout)))


def say(text: str = "", *, lead: str = "", colour: str = "", is_error: bool = False) -> None:
    """Print a status line after a coloured word; to standard error, so that it is not mixed with the result.

    In a job of Vertex AI status lines go to standard output, because standard error is logged with severity ERROR.
    """
    stream = sys.stdout if is_in_a_job() and not is_error and colour != RED else sys.stderr
    print((_add_colour(lead, colour, stream) + " " if lead else "") + _sanitize_text(text), file=stream)


def out_json(value: Any, *, indent: int | None = 2) -> None:
    """Print the command's result, or a line of it, as JSON."""
    can_show_all = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=not can_show_all, indent=indent)
    print(UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def show_error(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Print an error and its hint; returns the exit code."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, TaglineError):
        code, message, hint = error.exit_code, error.message, error.hint
    elif isinstance(error, KeyboardInterrupt):
        code, message, hint = 130, "interrupted", ""
    else:
        code = BUG_EXIT_CODE
        message = f"this is a bug in Tagline: {type(error).__name__}: {error}"
        hint = "please report it with the output of: the same command with --debug, and tagline info"
    say(message, lead="stopped:" if isinstance(error, KeyboardInterrupt | Interrupted) else "error:", colour=RED)
    if hint:
        say(hint, lead="next:", colour=BOLD, is_error=True)
    if as_json:
        kind = type(error).__name__
        out_json({"error": {"type": kind, "message": message, "hint": hint, "exit_code": code}})
    return code


def out_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print an aligned table; columns in `right` are right-aligned. Wide characters count as two columns."""
    cells = [list(map(one_line, row)) for row in (header, *rows)]
    widths = [max(_measure_width(row[i]) for row in cells) for i in range(len(header))]
    for number, row in enumerate(cells):
        padded = (
            " " * (widths[i] - _measure_width(cell)) + cell
            if i in right
            else cell + " " * (widths[i] - _measure_width(cell))
            for i, cell in enumerate(row)
        )
        line = "  ".join(padded).rstrip()
        print(line if number else _add_colour(line, BOLD, sys.stdout))


def shorten_text(text: str, width: int) -> str:
    """Return a text on one line, cut to at most `width` columns."""
    text = one_line(text)
    if _measure_width(text) <= width:
        return text
    kept = ""
    for character in text:
        if _measure_width(kept + character) > width - 1:
            break
        kept += character
    return kept + "…"


def get_terminal_width() -> int:
    """Return the width of the terminal; 100 without one."""
    return shutil.get_terminal_size((100, 24)).columns


def is_in_a_job() -> bool:
    """Return whether this process runs in a job of Vertex AI, where the output is a log."""
    return JOB_ID_VARIABLE in os.environ


def show_figures(report: "Report") -> None:
    """Print the main figures of a report on one line."""
    test = report.test
    if not test.rows:
        out("nothing was measured: there is no test row")
        return
    from tagline.evaluation.metrics import headline
    from tagline.reports.advice import answered_sentence

    answered = answered_sentence(report)
    if answered:
        out_sentence(answered)
    figures = [f"{name} {value:.3f}{_format_interval(test.intervals, name)}" for name, value in headline(report)]
    which = "test, if all are answered" if answered else f"test, {test.rows:,} rows"
    out_sentence("  ".join(figures), lead=f"{which}:  ", between="  ")


def show_label_figures(report: "Report") -> None:
    """Print one line of figures per label, for a log that is read or searched by line."""
    per_label = report.test.per_label
    for name, figures in list(per_label.items())[:MOST_LABEL_LINES]:
        parts = ", ".join(f"{key} {figures[key]:.3f}" for key in ("precision", "recall", "f1"))
        out(f"label {one_line(name)}: {parts}, {figures.support:,} rows")
    if len(per_label) > MOST_LABEL_LINES:
        out(f"... and {len(per_label) - MOST_LABEL_LINES} labels more, in the report")


def show_report(report: "Report") -> None:
    """Print the figures of a report: the main ones, the verdict, and a table of labels."""
    show_figures(report)
    test = report.test
    if not test.rows:
        return
    from tagline.reports.advice import answered_sentence, write_verdict

    for sentence in write_verdict(report)[2 if answered_sentence(report) else 1 :]:
        out_sentence(sentence)
    if test.coverage == 0:
        out("answers none of the texts: it abstains on all")
    out()
    per_label = sorted(test.per_label.items(), key=lambda item: -item[1].support)
    rows = [
        (shorten_text(name, 40), f"{f.precision:.2f}", f"{f.recall:.2f}", f"{f.f1:.2f}", f"{f.support:,}")
        for name, f in per_label[:30]
    ]
    out_table(("label", "precision", "recall", "f1", "rows"), rows, right=(1, 2, 3, 4))
    if len(per_label) > 30:
        out(f"... and {len(per_label) - 30} labels more, in the report")


def show_comparison(comparison: Mapping[str, Any]) -> None:
    """Print a table of runs, and whether the best one is significantly better."""
    from tagline.evaluation.metrics import select_table_figures

    names = select_table_figures(comparison["runs"][0]["main"])
    rows = [
        (
            run["name"],
            run["family"],
            *(f"{run['figures'][name] or 0:.3f}{_format_interval(run['intervals'], name)}" for name in names),
        )
        for run in comparison["runs"]
    ]
    out_table(("run", "family", *names), rows, right=range(2, 2 + len(names)))
    out()
    for difference in comparison["differences"]:
        out_sentence(difference["sentence"])


def _format_interval(intervals: Mapping[str, Sequence[float]], name: str) -> str:
    ends = intervals.get(name)
    return f" ({ends[0]:.3f}-{ends[1]:.3f})" if ends else ""


def show_findings(findings: "Sequence[Finding]", *, with_rows: bool) -> None:
    """Print findings, with their advice and, if wanted, example rows."""
    for finding in findings:
        mark, colour = MARKS[finding.severity]
        say(finding.message, lead=f"{mark} {finding.severity} ", colour=colour)
        if with_rows:
            for row in finding.rows:
                text = row.text if isinstance(row.text, str) else " ⇄ ".join(row.text)
                place = f"{row.file}:{row.line}"
                labels = ", ".join(row.labels)
                say(
                    f"    {place}  [{shorten_text(labels, 30)}]  "
                    f"{shorten_text(text, max(20, get_terminal_width() - len(place) - 30))}"
                )
            say(f"   {finding.advice}", lead=" ")


def show_export(result: Mapping[str, Any]) -> None:
    """Print a table of a bundle's exports, each compared with the trained model, and which one is used."""
    rows = [
        (
            name,
            f"{check['equal_answers']:.2%}",
            f"{check['accuracy']:+.4f}",
            f"{check['macro_f1']:+.4f}",
            f"{check['largest_difference']:.4f}",
            "used" if name == result["runtime"] else "",
        )
        for name, check in result["exports"].items()
    ]
    out_table(("form", "equal answers", "accuracy", "macro_f1", "largest difference", ""), rows, right=(1, 2, 3, 4))
    out(f"bundle   {result['bundle']}")


def show_package(result: Mapping[str, Any]) -> None:
    """Print the package that was made of a bundle, and the next step."""
    size = sum(result["files"].values()) / 2**20
    out(f"output   {result['output']}  ({size:.1f} MiB)")
    if image := result.get("image"):
        built = f"built by {result['built_by']}" if result["built_by"] else "not built"
        out(f"image    {image}  ({built})")
    out(f"next     {result['next']}")


def show_suspects(suspects: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of suspected label errors, the most doubtful first."""
    if not suspects:
        out("no label looks wrong")
        return
    rows = [
        (
            f"{row['file']}:{row['line']}",
            shorten_text(row["change"], 50),
            f"{row['doubt']:.2f}",
            shorten_text(row["text"] if isinstance(row["text"], str) else " ⇄ ".join(row["text"]), 60),
        )
        for row in suspects[:50]
    ]
    out_table(("row", "label, perhaps", "doubt", "text"), rows, right=(2,))
    if len(suspects) > 50:
        out(f"... and {len(suspects) - 50} more; --json lists them all")
    out()


class RowProgress:
    """Progress of predicting a file: a progress bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self) -> None:
        self._bar: RichProgress | None = None
        self._task: Any = None
        self._started = self._last_shown = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("answering"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=None, note="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, event: Mapping[str, Any]) -> None:
        """Show one event."""
        if event["event"] == "started" and event["done_before"]:
            say(f"going on with what was answered before ({event['done_before']:,} parts)")
        if event["event"] != "part":
            return
        now = time.monotonic()
        rows, before, total = event["rows"], event["rows_before"], event["total"]
        note = _format_row_progress(rows, before, total, seconds=now - self._started)
        if self._bar is not None:
            self._bar.update(self._task, completed=rows + before, total=total, note=note)
        elif now - self._last_shown > PROGRESS_EVERY_S:
            self._last_shown = now
            say(f"answered {note}")


def _format_row_progress(rows: int, before: int, total: int | None, *, seconds: float) -> str:
    """Return the rows done, earlier attempts included, the rate of this attempt, and the time left."""
    rate = rows / max(seconds, 1e-9)
    done = f"{rows + before:,} of about {total:,} rows" if total else f"{rows + before:,} rows"
    note = f"{done}, {rate:,.0f} rows/s"
    left_s = max(total - rows - before, 0) / rate if total else 0
    return f"{note}, {_format_duration(round(left_s))} left" if left_s >= 1 else note


MOST_LABEL_LINES = 200
"""Labels whose figures are printed to a log."""


class ProgressDisplay:
    """Live display of a run's events: a progress bar on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._bar: RichProgress | None = None
        self._task: Any = None
        self._rate = _StepRate()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("reading the data", total=None, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, event: "Event") -> None:
        """Show one event."""
        from tagline.runs.events import PhaseEvent, TickEvent

        pace = self._rate.format_rate(event) if isinstance(event, TickEvent) else ""
        if isinstance(event, TickEvent) and self._bar is not None:
            self._bar.update(
                self._task,
                description=event.stage or "training",
                completed=event.step,
                total=event.total,
                note=f"loss {event.loss:.3f}{pace}",
            )
        elif isinstance(event, PhaseEvent) and self._bar is not None:
            self._bar.update(self._task, description=event.message, completed=0, total=None, note="")
        elif line := _format_event(event):
            line += pace
            if self._bar is not None:
                self._bar.console.print(_sanitize_text(line), highlight=False, markup=False, soft_wrap=True)
                self._bar.update(self._task, description="training")
            else:
                say(line)


class JobLog:
    """Live display of a job: rate-limited log lines of every replica, and changes of the job's state."""

    def __init__(self) -> None:
        self._line_counts: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def show(self, event: "Line | JobState") -> None:
        """Show a log line or a state."""
        from tagline.jobs.diagnosis.log import Line

        if not isinstance(event, Line):
            message = f": {event.message}" if event.message else ""
            say(f"{event.detail.lower() or event.name}{message}", lead="job", colour=BOLD)
            return
        if time.monotonic() - self._since > LINES_EVERY_S:
            self.flush()
        count = self._line_counts[event.replica] = self._line_counts.get(event.replica, 0) + 1
        if count > MOST_LINES:
            self._left_out[event.replica] = count - MOST_LINES
            return
        colour = RED if event.severity in SEVERE else YELLOW if event.severity == "WARNING" else DIM
        say(event.text, lead=event.replica.removeprefix("workerpool") or "service", colour=colour)

    def flush(self) -> None:
        """Show how many lines were left out, and reset the counts."""
        for replica, count in self._left_out.items():
            say(f"{count:,} lines of {replica or 'the service'} left out; the log has them", lead="...", colour=DIM)
        self._line_counts, self._left_out, self._since = {}, {}, time.monotonic()


class _StepRate:
    """The rate of training steps, measured where they are displayed."""

    def __init__(self) -> None:
        self._first: tuple[float, int, int] | None = None
        self._stage = ""

    def format_rate(self, event: "TickEvent") -> str:
        """Return rows per second and the time left; empty before the second step of a stage."""
        now, step, rows = time.monotonic(), event.step, event.rows
        if self._first is None or event.stage != self._stage:
            self._first, self._stage = (now, step, rows), event.stage
            return ""
        started, first_step, first_rows = self._first
        seconds, steps = now - started, step - first_step
        if seconds <= 0 or steps <= 0:
            return ""
        rate = f"  {(rows - first_rows) / seconds:,.0f} rows/s" if rows else ""
        left_s = round((event.total - step) * seconds / steps)
        return f"{rate}  {_format_duration(left_s)} left"


def _format_duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _format_event(event: "Event") -> str:
    from tagline.runs import events

    match event:
        case events.StartedEvent():
            sizes = ", ".join(f"{rows:,} {name}" for name, rows in event.splits.items())
            what = f"family {event.family}, task {event.task}, {event.labels} labels"
            return f"run {event.run}\n    {what}; {sizes}{_format_device(event)}"
        case events.ResumedEvent():
            return f"run {event.run}: going on from step {int(event.checkpoint or 0)}{_format_device(event)}"
        case events.StepEvent():
            settings = "".join(f"  {name} {value:g}" for name, value in event.settings.items())
            stage = f"  {event.stage}" if event.stage else ""
            return f"step {event.step}/{event.total}{stage}  loss {event.loss:.4f}{settings}"
        case events.EvaluationEvent() if event.value is not None:
            kept = "  (kept)" if event.gain else "  (kept: as good within chance, and later)"
            line = f"validation {event.monitor} {event.value:.4f} at step {event.step}"
            return line + (kept if event.best else "")
        case events.WarningEvent():
            return f"warning: {event.message}"
        case events.UsageEvent() if is_in_a_job():
            from tagline.runs.resource_usage import describe_sample

            return f"use: {describe_sample(event)}"
        case events.PhaseEvent():
            return event.message
    return ""


def _format_device(event: "StartedEvent | ResumedEvent") -> str:
    """Return the device and precision of an event."""
    if not event.device:
        return ""
    precision = f", precision {event.precision}" if event.precision else ""
    return f"; device {event.device}{precision}"


def _wrap_parts(parts: Sequence[str], *, lead: str, between: str, stream: Any) -> list[str]:
    """Join parts into lines that fit the terminal; without one into a single line, for programs to read."""
    lines = [lead]
    for number, part in enumerate(parts):
        longer = f"{lines[-1]}{between if number else ''}{part}"
        if number and stream.isatty() and _measure_width(longer) > get_terminal_width():
            lines.append(" " * len(lead) + part)
        else:
            lines[-1] = longer
    return lines


def _add_colour(text: str, colour: str, stream: Any) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if stream.isatty() else text


def _sanitize_text(text: str) -> str:
    """Replace characters by which untrusted text could move the cursor, or hide or reverse what follows."""
    return UNSAFE.sub("�", text.replace("\t", " "))


def one_line(text: str) -> str:
    """Return a sanitised text without line breaks."""
    return _sanitize_text(text.replace("\r", "").replace("\n", "⏎"))


def _measure_width(text: str) -> int:
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
