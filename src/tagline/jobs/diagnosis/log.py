"""Why a job failed: the replica that failed first, the root of its traceback, what helps, and what to run next."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tagline.jobs.diagnosis import advice, causes
from tagline.jobs.diagnosis.advice import Case
from tagline.jobs.diagnosis.tracebacks import FRAME, HEADER, IGNORED, Traceback, TracebackReader
from tagline.spec import Spec

SERVICE = ("", "service")
"""How the service itself is named among replicas."""
RANK = re.compile(r"^\[(?:rank|default|worker|trainer)?\d+\]:\s?")
"""What torch writes before the lines of one of several processes."""
EXITED = re.compile(
    r"replica ([a-z]\w+[- ]\d+) (?:ran out[- ]of[- ]memory and )?exited with [a-z -]*status (?:of )?(\d+)"
)
HINTS = (
    "rror", "ERROR", "Killed", "killed", "CUDA", "lib", "denied", "DENIED", "Denied", "Forbidden", "Errno", "emory",
    "quota", "ignal", "exitcode", "next: ", "No ", "Segmentation", "core dumped", "not found", "does not", "oss is",
    "NaN", "requirement", "wheels", "Permission", "INSUFFICIENT", "bad_alloc", "OOM", "NoSuch", "\n", HEADER,
)  # fmt: skip
"""A line without any of these says nothing of a failure: most lines are told by this alone."""

OPENINGS = ("  File", "---", "Exception ignored")
"""Beside a header, what a traceback may begin with."""
OUTLIVED_LINES, OUTLIVED_S = 100, 300.0
"""A replica that said so many lines more, or went on for so long, did not fail of what it said before."""
MOST_INCIDENTS, MOST_REPLICAS, MOST_READERS, MOST_TEXTS, WIDTH = 16, 2000, 64, 12, 4000
AMONG_WORKERS = re.compile(r"gloo|nccl|NCCL|Dist\w+Error|Rendezvous|ChildFailed|another worker")
LAST = datetime.max.replace(tzinfo=UTC)
"""When something happened whose time cannot be told."""
SILENT = "the account that it ran as may lack roles/logging.logWriter, without which nothing that it printed is kept"


@dataclass(frozen=True)
class Line:
    """One entry of a job's log."""

    time: str
    """RFC 3339."""
    replica: str
    """workerpool0-0; "" or "service" for the service itself."""
    severity: str
    text: str


@dataclass(frozen=True)
class Failure:
    """Why a job failed."""

    cause: str
    """A stable name: one of `remedies.ADVICE`, one of Tagline's own kinds of errors, or unknown."""
    replica: str
    """That failed first; "" where it was none of them."""
    sentence: str
    command: str
    """To run next, where SPEC is the spec of the job; "" if there is none."""
    traceback: tuple[str, ...] = ()
    """Of the exception that came first."""


def parse_entry(entry: Mapping[str, Any]) -> Line:
    """A log entry as Cloud Logging's REST API gives it."""
    payload = entry.get("jsonPayload")
    text = _extract_message(payload) if isinstance(payload, Mapping) else str(entry.get("textPayload", ""))
    replica = entry.get("resource", {}).get("labels", {}).get("task_name", "")
    severity = str(entry.get("severity", "DEFAULT"))
    return Line(str(entry.get("timestamp", "")), "" if replica in SERVICE else replica, severity, text)


def diagnose_log(lines: Iterable[Line], *, message: str = "", spec: Spec | None = None) -> Failure:
    """Why a job failed, from its log in one pass and from what the service says of its end."""
    log = _Log()
    for line in lines:
        log.read(line)
    log.end(message)
    return (
        _diagnose_service_message(message, spec)
        or _diagnose_replicas(log, spec)
        or _diagnose_exit_status(log, spec)
        or _diagnose_service_message("\n".join(log.service), spec)
        or _describe_unknown_failure(log, message, spec)
    )


@dataclass
class _Incident:
    """Something that a replica said about why it fails."""

    time: str
    order: int
    replica: str
    at: int
    """How many lines the replica had said, the last time it said this."""
    last_time: str
    texts: list[str] = field(default_factory=list)
    traceback: Traceback | None = None
    is_ours: bool = False
    """Whether it is an error of Tagline's own."""
    hint: str = ""

    @property
    def statements(self) -> list[str]:
        """What names the cause, the most telling first."""
        return [*(self.traceback.exceptions if self.traceback else ()), *self.texts]

    @property
    def error_message(self) -> str:
        """An error of Tagline's own, in its own words."""
        said = " ".join(self.texts)
        return f"{said}; {self.hint}" if self.hint else said

    @property
    def lines(self) -> tuple[str, ...]:
        """Of the traceback's root."""
        return self.traceback.lines if self.traceback else ()

    @property
    def is_error(self) -> bool:
        """Whether it ended a program, and is no mere line."""
        return self.traceback is not None or self.is_ours

    @property
    def is_consequence(self) -> bool:
        return any(causes.is_consequence(text) for text in self.statements[:1])

    def cause(self) -> str:
        """As its own words name it; "" if they do not."""
        source: causes.Source = "exception" if self.is_error else "line"
        return next((cause for text in self.statements if (cause := causes.recognise_cause(text, source))), "")


class _Replica:
    """What is kept of the lines of one replica."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.last_time = self.last_text = ""
        self.incidents: dict[str, _Incident] = {}
        self.readers: dict[tuple[str, str], TracebackReader] = {}
        self.speaking: tuple[str, _Incident] | None = None
        """An error of Tagline's that may go on in the next line, and the severity of its lines."""

    def add(self, key: str, incident: _Incident) -> _Incident:
        """Keep an incident, or the first that was like it; what the replica has outlived makes room."""
        if (known := self.incidents.get(key)) is not None:
            known.at, known.last_time = incident.at, incident.last_time
            return known
        if len(self.incidents) >= MOST_INCIDENTS:
            outlived = [name for name, each in self.incidents.items() if self.has_recovered_from(each)]
            if not outlived:
                return incident
            del self.incidents[outlived[0]]
        self.incidents[key] = incident
        return incident

    def has_recovered_from(self, incident: _Incident) -> bool:
        """Whether it went on after this."""
        after = self.count - incident.at
        if after >= OUTLIVED_LINES:
            return True
        begun, ended = _parse_time(incident.last_time), _parse_time(self.last_time)
        return after > 5 and begun is not None and ended is not None and (ended - begun).total_seconds() > OUTLIVED_S


class _Log:
    """A job's log, read once; what is kept of it does not grow with it."""

    def __init__(self) -> None:
        self.service: list[str] = []
        self.statuses: dict[str, int] = {}
        """With which replicas exited, in the order in which the service said so."""
        self._replicas: dict[str, _Replica] = {}
        self._order = 0

    def read(self, line: Line) -> None:
        """One entry."""
        if line.replica in SERVICE:
            self._read_service_message(line.text)
            return
        replica = self._replicas.get(line.replica)
        if replica is None:
            if len(self._replicas) >= MOST_REPLICAS:
                return
            replica = self._replicas[line.replica] = _Replica(line.replica)
        if line.time:
            replica.last_time = line.time
        text = line.text
        if text and not text.isspace():
            replica.last_text = text
        if replica.readers or replica.speaking or text.startswith(OPENINGS) or any(hint in text for hint in HINTS):
            self._read_closely(replica, line)
        else:
            replica.count += 1

    def end(self, message: str) -> None:
        """Nothing more comes but what the service says of the job's end."""
        for replica in self._replicas.values():
            self._finish_tracebacks(replica, replica.last_time)
        before, self.statuses = self.statuses, {}
        self._read_service_message(message)
        self.statuses |= {name: status for name, status in before.items() if name not in self.statuses}
        if HEADER in message:  # Vertex AI gives the end of a short one, in lines or without
            text = message.partition("\n")[2] or message.partition(HEADER)[2]
            self.read(Line("", next(iter(self.statuses), "workerpool0-0"), "ERROR", text))

    def list_fatal_incidents(self) -> list[_Incident]:
        """What replicas said that they did not outlive, in the order of time."""
        found = [
            incident
            for replica in self._replicas.values()
            for incident in replica.incidents.values()
            if not replica.has_recovered_from(incident)
        ]
        return sorted(found, key=lambda incident: (_parse_time(incident.time) or LAST, incident.order))

    def list_outlived_incidents(self) -> list[_Incident]:
        """Errors after which a replica went on."""
        return [
            incident
            for replica in self._replicas.values()
            for incident in replica.incidents.values()
            if incident.is_error and replica.has_recovered_from(incident)
        ]

    @property
    def replica_count(self) -> int:
        """How many replicas said anything."""
        return len(self._replicas)

    def get_last_output(self, name: str) -> str:
        """What a replica printed last."""
        return _one_line(self._replicas[name].last_text) if name in self._replicas else ""

    def _read_service_message(self, text: str) -> None:
        for name, status in EXITED.findall(text):
            self.statuses[name] = int(status)
        if text and len(self.service) < 200:
            self.service.append(text[:WIDTH])

    def _read_closely(self, replica: _Replica, line: Line) -> None:
        texts = _split_entry(line.text)
        for text in texts:
            rank = match[0].strip() if text.startswith("[") and (match := RANK.match(text)) else ""
            text = text[len(match[0]) :] if rank and match else text
            if not self._is_traceback(replica, (rank, line.severity), text, line.time):
                replica.count += 1
                self._read_text(replica, text[:WIDTH], line)
        if len(texts) > 1:
            self._finish_tracebacks(replica, line.time, line.severity)
            replica.speaking = None

    def _finish_tracebacks(self, replica: _Replica, time: str, severity: str = "") -> None:
        """What was being read is complete, in lines of this severity or in all."""
        for process in [each for each in replica.readers if severity in ("", each[1])]:
            if traceback := replica.readers.pop(process).end():
                self._add_traceback(replica, traceback, time)

    def _is_traceback(self, replica: _Replica, process: tuple[str, str], text: str, time: str) -> bool:
        reader = replica.readers.get(process)
        if reader is None:
            if not (text.endswith(HEADER) or FRAME.match(text) or IGNORED.match(text)):
                return False
            if len(replica.readers) >= MOST_READERS:
                replica.readers.pop(next(iter(replica.readers)))
            reader = replica.readers[process] = TracebackReader()
        belongs = reader.read(text)
        if traceback := reader.take():
            self._add_traceback(replica, traceback, time)
        if reader.is_idle:
            del replica.readers[process]
        return belongs

    def _add_traceback(self, replica: _Replica, traceback: Traceback, time: str) -> None:
        key = f"traceback {''.join(traceback.exceptions[:1])}"
        replica.add(key, self._create_incident(replica, time, traceback=traceback))

    def _create_incident(self, replica: _Replica, time: str, **more: Any) -> _Incident:
        self._order += 1
        return _Incident(time, self._order, replica.name, replica.count, time, **more)

    def _read_text(self, replica: _Replica, text: str, line: Line) -> None:
        """A line that belongs to no traceback: an error of Tagline's, more of it, or words that name a cause."""
        if replica.speaking is not None and replica.speaking[0] == line.severity:
            ours = replica.speaking[1]
            if text.startswith("next: "):
                ours.hint = text.removeprefix("next: ")
                replica.speaking = None
                return
            if text.startswith("  "):
                if len(ours.texts) < MOST_TEXTS and text.strip() not in ours.texts:
                    ours.texts.append(text.strip())
                return
            replica.speaking = None
        said = text.removeprefix("error: ").strip() if text.startswith("error: ") else ""
        cause = causes.recognise_cause(text, "line")
        if said and cause != "pip-conflict":  # pip's own errors begin so too
            ours = self._create_incident(replica, line.time, texts=[said], is_ours=True)
            replica.speaking = (line.severity, replica.add(text, ours))
        elif cause:
            known = replica.add(f"line {cause}", self._create_incident(replica, line.time))
            if len(known.texts) < MOST_TEXTS:
                known.texts.append(text)


DECIDED = frozenset((
    "quota", "capacity", "image-pull", "preempted", "timeout", "cancelled", "internal", "host-memory", "start",
    "permission", "not-found", "disk-full",
))  # fmt: skip
"""What the service knows better than any replica."""


def _diagnose_service_message(said: str, spec: Spec | None) -> Failure | None:
    own_words = said.partition(HEADER)[0]
    cause = causes.recognise_cause(own_words, "service")
    if cause not in DECIDED:
        return None
    match = EXITED.search(own_words) or re.search(r"\b(workerpool\d-\d+)\b", own_words)
    return _build_failure(cause, match[1] if match else "", own_words, spec)


def _diagnose_replicas(log: _Log, spec: Spec | None) -> Failure | None:
    """The first replica that failed of itself; a status says more than an exception that nobody knows."""
    failed = [incident for incident in log.list_fatal_incidents() if not incident.is_consequence]
    errors = [incident for incident in failed if incident.is_error]
    killed = next((name for name, status in log.statuses.items() if status in (9, 137)), "")
    if not errors:
        named = [incident for incident in failed if incident.replica in log.statuses] or failed
        return _explain_incident(named[0], named[0].cause(), spec) if named and not killed else None
    first = errors[0]
    alike = [each for each in errors if each.replica == first.replica]
    alike.sort(key=lambda each: not each.is_ours)  # it knows best what it meant
    for each in alike:
        if cause := each.cause() or _recognise_column(each, spec):
            return _explain_incident(each, cause, spec, lines=first.lines)
    beside = next((each for each in failed if each.replica == first.replica and not each.is_error), None)
    if beside is not None:
        return _explain_incident(beside, beside.cause(), spec, lines=first.lines)
    if killed and killed not in {each.replica for each in errors}:
        return None
    if alike[0].is_ours:
        status = log.statuses.get(first.replica, next(iter(log.statuses.values()), 0))
        cause = causes.TAGLINE_STATUS.get(status, "unknown")
        return Failure(cause, first.replica, alike[0].error_message, "", first.lines)
    with_what = f", with {_one_line(first.statements[0])}" if first.statements else ""
    return Failure("unknown", first.replica, f"{first.replica} failed first{with_what}", advice.REHEARSE, first.lines)


def _diagnose_exit_status(log: _Log, spec: Spec | None) -> Failure | None:
    """What the first exit status says, where no replica said why."""
    for name, status in log.statuses.items():
        if cause := causes.BY_STATUS.get(status):
            return _build_failure(cause, name, f"status of {status}\n{log.get_last_output(name)}", spec)
    return None


def _describe_unknown_failure(log: _Log, message: str, spec: Spec | None) -> Failure:
    """Only consequences, something that was outlived, or nothing at all."""
    if lost := next((incident for incident in log.list_fatal_incidents() if incident.is_error), None):
        said = lost.statements[0]
        if AMONG_WORKERS.search(said) or log.replica_count > 1:
            return _explain_incident(lost, "lost-worker", spec, lines=lost.lines)
        told = f"{lost.replica} ended with {_one_line(said)}"
        return Failure("unknown", lost.replica, told, advice.REHEARSE, lost.lines)
    name, status = next(iter(log.statuses.items()), ("", 0))
    what = f"{name} exited with status {status}" if name else "the job failed"
    if maybe := next(iter(log.list_outlived_incidents()), None):
        said = (
            f"{what}; {maybe.replica} went on after this, but said nothing else of it: {_one_line(maybe.statements[0])}"
        )
        return Failure("unknown", name or maybe.replica, said, advice.REHEARSE, maybe.lines)
    if not log.replica_count:
        given = f": {_one_line(message)}" if message and not name else ""
        return Failure("unknown", name, f"{what}{given}, and its log is empty; {SILENT}", advice.REHEARSE)
    words = log.get_last_output(name)
    last = f"; the last that it printed was: {words}" if words else ""
    return Failure("unknown", name, f"{what} without saying why{last}", advice.REHEARSE)


def _explain_incident(incident: _Incident, cause: str, spec: Spec | None, *, lines: tuple[str, ...] = ()) -> Failure:
    found = _build_failure(cause, incident.replica, "\n".join(incident.statements), spec, lines)
    if incident.is_ours and "a bug in Tagline" not in incident.statements[0]:
        return Failure(found.cause, found.replica, incident.error_message, found.command, lines)
    return found


def _build_failure(cause: str, replica: str, text: str, spec: Spec | None, lines: tuple[str, ...] = ()) -> Failure:
    sentence, command = advice.advise(cause, Case(replica, text, spec))
    return Failure(cause, replica, sentence, command, lines)


def _recognise_column(incident: _Incident, spec: Spec | None) -> str:
    """A KeyError is a column that is missing if the spec has one of that name."""
    key = re.match(r"KeyError: '(.+)'$", incident.statements[0]) if incident.statements else None
    if key is None or spec is None:
        return ""
    data = spec.data
    columns = (*data.text_columns, *data.label_columns, data.split, *data.slices)
    return "missing-column" if key[1] in columns else ""


def _split_entry(text: str) -> list[str]:
    """The lines of an entry, also where a traceback lies in it as JSON or with its line ends written out."""
    if HEADER in text and "\n" not in text:
        if text.startswith("{"):
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                found = None
            text = _extract_message(found) if isinstance(found, dict) else text
        text = text.replace("\\n", "\n")
    return [each.rstrip("\r") for each in text.split("\n")]


def _extract_message(payload: Mapping[str, Any]) -> str:
    """What a structured entry says, with the traceback that loggers put beside it."""
    parts = [payload.get(key) for key in ("message", "exc_info", "stack_trace", "exception", "traceback")]
    said = [part for part in parts if isinstance(part, str) and part]
    return "\n".join(said) if said else json.dumps(dict(payload), default=str)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


def _parse_time(time: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(time)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
