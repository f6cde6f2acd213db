"""What a person sees: tables, progress, how an error is shown. The only place that prints."""

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
# Characters that a terminal obeys rather than shows: controls, directions of writing, and halves of characters.
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
IN_A_JOB = "CLOUD_ML_JOB_ID"
SAID_EVERY_S = 10.0
"""Where there is no bar, so that a log is not flooded."""
LINES_EVERY_S, MOST_LINES = 1.0, 100
"""Of each replica of a job that are shown in such a time."""
SEVERE = ("ERROR", "CRITICAL", "ALERT", "EMERGENCY")
MARKS = {"error": ("✗", RED), "warning": ("!", YELLOW), "note": ("·", DIM)}


def out(text: str = "") -> None:
    """A line of the command's result."""
    print(_sanitize_text(text))


def out_sentence(text: str, *, lead: str = "", between: str = " ") -> None:
    """A sentence of the result; on a terminal, lines are broken where `between` stands and not inside words."""
    print("\n".join(_wrap_parts(_sanitize_text(text).split(between), lead=lead, between=between, stream=sys.stdout)))


def say(text: str = "", *, lead: str = "", colour: str = "", is_error: bool = False) -> None:
    """A line about what is going on, after a coloured word; never mixed with the result.

    A job of Vertex AI has no result on standard output, and what it writes to standard error is an error there.
    """
    stream = sys.stdout if is_in_a_job() and not is_error and colour != RED else sys.stderr
    print((_add_colour(lead, colour, stream) + " " if lead else "") + _sanitize_text(text), file=stream)


def out_json(value: Any, *, indent: int | None = 2) -> None:
    """The command's result, or a line of it, as JSON."""
    can_show_all = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=not can_show_all, indent=indent)
    print(UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def show_error(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Tell the user what happened and what to do next; returns the exit code."""
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
    """Rows under a header, aligned; columns in `right` to the right. Wide characters count as two."""
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
    """A text on one line of at most this many columns."""
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
    """How wide the terminal is; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns


def is_in_a_job() -> bool:
    """Whether this process is one of a job of Vertex AI, where a person reads along in a log or not at all."""
    return IN_A_JOB in os.environ


def show_figures(report: "Report") -> None:
    """The main figures of a report, on one line."""
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
    """The figures of each label, a line each, for a log that is read or searched line by line."""
    per_label = report.test.per_label
    for name, figures in list(per_label.items())[:MOST_LABEL_LINES]:
        parts = ", ".join(f"{key} {figures[key]:.3f}" for key in ("precision", "recall", "f1"))
        out(f"label {one_line(name)}: {parts}, {figures.support:,} rows")
    if len(per_label) > MOST_LABEL_LINES:
        out(f"... and {len(per_label) - MOST_LABEL_LINES} labels more, in the report")


def show_report(report: "Report") -> None:
    """The figures of a report, as a person reads them first."""
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
    shown = [
        (shorten_text(name, 40), f"{f.precision:.2f}", f"{f.recall:.2f}", f"{f.f1:.2f}", f"{f.support:,}")
        for name, f in per_label[:30]
    ]
    out_table(("label", "precision", "recall", "f1", "rows"), shown, right=(1, 2, 3, 4))
    if len(per_label) > 30:
        out(f"... and {len(per_label) - 30} labels more, in the report")


def show_comparison(found: Mapping[str, Any]) -> None:
    """Runs side by side, and whether the best is really better."""
    from tagline.evaluation.metrics import select_table_figures

    names = select_table_figures(found["runs"][0]["main"])
    rows = [
        (
            run["name"],
            run["family"],
            *(f"{run['figures'][name] or 0:.3f}{_format_interval(run['intervals'], name)}" for name in names),
        )
        for run in found["runs"]
    ]
    out_table(("run", "family", *names), rows, right=range(2, 2 + len(names)))
    out()
    for difference in found["differences"]:
        out_sentence(difference["sentence"])


def _format_interval(intervals: Mapping[str, Sequence[float]], name: str) -> str:
    ends = intervals.get(name)
    return f" ({ends[0]:.3f}-{ends[1]:.3f})" if ends else ""


def show_findings(findings: "Sequence[Finding]", *, with_rows: bool) -> None:
    """What the checks found, each with rows to look at and what to do."""
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


def show_export(found: Mapping[str, Any]) -> None:
    """The forms of a bundle, how they compare with what was measured, and which one is used."""
    rows = [
        (
            name,
            f"{check['equal_answers']:.2%}",
            f"{check['accuracy']:+.4f}",
            f"{check['macro_f1']:+.4f}",
            f"{check['largest_difference']:.4f}",
            "used" if name == found["runtime"] else "",
        )
        for name, check in found["exports"].items()
    ]
    out_table(("form", "equal answers", "accuracy", "macro_f1", "largest difference", ""), rows, right=(1, 2, 3, 4))
    out(f"bundle   {found['bundle']}")


def show_package(found: Mapping[str, Any]) -> None:
    """What a bundle was packed into, and what to do with it."""
    size = sum(found["files"].values()) / 2**20
    out(f"output   {found['output']}  ({size:.1f} MiB)")
    if image := found.get("image"):
        built = f"built by {found['built_by']}" if found["built_by"] else "not built"
        out(f"image    {image}  ({built})")
    out(f"next     {found['next']}")


def show_suspects(suspects: Sequence[Mapping[str, Any]]) -> None:
    """Rows whose label looks wrong, the most doubtful first."""
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
    """How many rows of a file are answered: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._bar: RichProgress | None = None
        self._task: Any = None
        self._begun = self._last_said = time.monotonic()

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
        """One event."""
        if event["event"] == "started" and event["done_before"]:
            say(f"going on with what was answered before ({event['done_before']:,} parts)")
        if event["event"] != "part":
            return
        now = time.monotonic()
        rows, before, total = event["rows"], event["rows_before"], event["total"]
        note = _format_row_progress(rows, before, total, seconds=now - self._begun)
        if self._bar is not None:
            self._bar.update(self._task, completed=rows + before, total=total, note=note)
        elif now - self._last_said > SAID_EVERY_S:
            self._last_said = now
            say(f"answered {note}")


def _format_row_progress(rows: int, before: int, total: int | None, *, seconds: float) -> str:
    """How many rows, those of earlier attempts included, how fast now, and how long still."""
    rate = rows / max(seconds, 1e-9)
    done = f"{rows + before:,} of about {total:,} rows" if total else f"{rows + before:,} rows"
    note = f"{done}, {rate:,.0f} rows/s"
    left_s = max(total - rows - before, 0) / rate if total else 0
    return f"{note}, {_format_duration(round(left_s))} left" if left_s >= 1 else note


MOST_LABEL_LINES = 200
"""Labels whose figures stand in a log."""


class ProgressDisplay:
    """A run's events as they happen: a bar on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._bar: RichProgress | None = None
        self._task: Any = None
        self._pace = _StepRate()

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
        """One event."""
        from tagline.runs.events import PhaseEvent, TickEvent

        pace = self._pace.format_rate(event) if isinstance(event, TickEvent) else ""
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
    """What a job says: lines of every replica, no more than a person can follow, and the job's state as it changes."""

    def __init__(self) -> None:
        self._said: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def show(self, event: "Line | JobState") -> None:
        """A line, or a state."""
        from tagline.jobs.diagnosis.log import Line

        if not isinstance(event, Line):
            told = f": {event.message}" if event.message else ""
            say(f"{event.detail.lower() or event.name}{told}", lead="job", colour=BOLD)
            return
        if time.monotonic() - self._since > LINES_EVERY_S:
            self.flush()
        said = self._said[event.replica] = self._said.get(event.replica, 0) + 1
        if said > MOST_LINES:
            self._left_out[event.replica] = said - MOST_LINES
            return
        colour = RED if event.severity in SEVERE else YELLOW if event.severity == "WARNING" else DIM
        say(event.text, lead=event.replica.removeprefix("workerpool") or "service", colour=colour)

    def flush(self) -> None:
        """Say how many lines were left out, and begin to count anew."""
        for replica, count in self._left_out.items():
            say(f"{count:,} lines of {replica or 'the service'} left out; the log has them", lead="...", colour=DIM)
        self._said, self._left_out, self._since = {}, {}, time.monotonic()


class _StepRate:
    """How fast steps go by, seen from where they are shown."""

    def __init__(self) -> None:
        self._first: tuple[float, int, int] | None = None
        self._stage = ""

    def format_rate(self, event: "TickEvent") -> str:
        """Rows a second and the time left, once there are two steps to tell them from."""
        now, step, rows = time.monotonic(), event.step, event.rows
        if self._first is None or event.stage != self._stage:
            self._first, self._stage = (now, step, rows), event.stage
            return ""
        begun, first_step, first_rows = self._first
        seconds, steps = now - begun, step - first_step
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
            said = f"validation {event.monitor} {event.value:.4f} at step {event.step}"
            return said + (kept if event.best else "")
        case events.WarningEvent():
            return f"warning: {event.message}"
        case events.UsageEvent() if is_in_a_job():
            from tagline.runs.resource_usage import describe_sample

            return f"use: {describe_sample(event)}"
        case events.PhaseEvent():
            return event.message
    return ""


def _format_device(event: "StartedEvent | ResumedEvent") -> str:
    """The device and precision that an event names."""
    if not event.device:
        return ""
    precision = f", precision {event.precision}" if event.precision else ""
    return f"; device {event.device}{precision}"


def _wrap_parts(parts: Sequence[str], *, lead: str, between: str, stream: Any) -> list[str]:
    """Parts on lines that a terminal does not cut; elsewhere on one line, for programs to read."""
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
    """A text from outside as the terminal may see it: it cannot move the cursor, nor hide or turn what follows."""
    return UNSAFE.sub("�", text.replace("\t", " "))


def one_line(text: str) -> str:
    """A text without line breaks, as the terminal may see it."""
    return _sanitize_text(text.replace("\r", "").replace("\n", "⏎"))


def _measure_width(text: str) -> int:
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
