"""Diagnosis of a failed job from its log: the replica that failed first, its root exception, and advice."""

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
"""The replica names that stand for the service itself."""
RANK = re.compile(r"^\[(?:rank|default|worker|trainer)?\d+\]:\s?")
"""Torch's prefix of the lines of one of several processes."""
EXITED = re.compile(
    r"replica ([a-z]\w+[- ]\d+) (?:ran out[- ]of[- ]memory and )?exited with [a-z -]*status (?:of )?(\d+)"
)
HINTS = (
    "rror", "ERROR", "Killed", "killed", "CUDA", "lib", "denied", "DENIED", "Denied", "Forbidden", "Errno", "emory",
    "quota", "ignal", "exitcode", "next: ", "No ", "Segmentation", "core dumped", "not found", "does not", "oss is",
    "NaN", "requirement", "wheels", "Permission", "INSUFFICIENT", "bad_alloc", "OOM", "NoSuch", "\n", HEADER,
)  # fmt: skip
"""Substrings of lines about failures: a fast filter, which skips most lines."""

OPENINGS = ("  File", "---", "Exception ignored")
"""First lines of a traceback, beside its header."""
OUTLIVED_LINES, OUTLIVED_S = 100, 300.0
"""A replica that printed so many more lines, or ran so much longer, did not fail of an error before them."""
MOST_INCIDENTS, MOST_REPLICAS, MOST_READERS, MOST_TEXTS, WIDTH = 16, 2000, 64, 12, 4000
COMMUNICATION = re.compile(r"gloo|nccl|NCCL|Dist\w+Error|Rendezvous|ChildFailed|another worker")
LAST = datetime.max.replace(tzinfo=UTC)
"""Sort key of incidents without a time."""
EMPTY_LOG = "the account that it ran as may lack roles/logging.logWriter, without which nothing that it printed is kept"


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
    """A stable name: a key of `advice.ADVICE`, a kind of Tagline's own errors, or unknown."""
    replica: str
    """The replica that failed first; "" where it was none."""
    sentence: str
    command: str
    """The command to run next, where SPEC is the spec of the job; "" if there is none."""
    traceback: tuple[str, ...] = ()
    """The lines of the root exception."""


def parse_entry(entry: Mapping[str, Any]) -> Line:
    """Parse a log entry of Cloud Logging's REST API."""
    payload = entry.get("jsonPayload")
    text = _extract_message(payload) if isinstance(payload, Mapping) else str(entry.get("textPayload", ""))
    replica = entry.get("resource", {}).get("labels", {}).get("task_name", "")
    severity = str(entry.get("severity", "DEFAULT"))
    return Line(str(entry.get("timestamp", "")), "" if replica in SERVICE else replica, severity, text)


def diagnose_log(lines: Iterable[Line], *, message: str = "", spec: Spec | None = None) -> Failure:
    """Diagnose a failed job from its log, in one pass, and from the service's message about its end."""
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
    """An error in a replica's log that may be why it failed."""

    time: str
    order: int
    replica: str
    at: int
    """The replica's line count at the last occurrence."""
    last_time: str
    texts: list[str] = field(default_factory=list)
    traceback: Traceback | None = None
    is_ours: bool = False
    """Whether it is an error of Tagline's own."""
    hint: str = ""

    @property
    def statements(self) -> list[str]:
        """The messages that may name the cause, the most specific first."""
        return [*(self.traceback.exceptions if self.traceback else ()), *self.texts]

    @property
    def error_message(self) -> str:
        """The message and hint of an error of Tagline's own."""
        message = " ".join(self.texts)
        return f"{message}; {self.hint}" if self.hint else message

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the traceback's root exception."""
        return self.traceback.lines if self.traceback else ()

    @property
    def is_error(self) -> bool:
        """Whether it is an exception or an error of Tagline's own, rather than some other line."""
        return self.traceback is not None or self.is_ours

    @property
    def is_consequence(self) -> bool:
        return any(causes.is_consequence(text) for text in self.statements[:1])

    def cause(self) -> str:
        """Return the cause that its messages name; "" if they name none."""
        source: causes.Source = "exception" if self.is_error else "line"
        return next((cause for text in self.statements if (cause := causes.recognise_cause(text, source))), "")


class _Replica:
    """The incidents in the log of one replica."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.last_time = self.last_text = ""
        self.incidents: dict[str, _Incident] = {}
        self.readers: dict[tuple[str, str], TracebackReader] = {}
        self.open_error: tuple[str, _Incident] | None = None
        """The severity and incident of an error of Tagline's that may continue in the next line."""

    def add(self, key: str, incident: _Incident) -> _Incident:
        """Add an incident, or return the earlier one of the same key; incidents that were outlived are evicted."""
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
        """Return whether the replica went on after an incident."""
        after = self.count - incident.at
        if after >= OUTLIVED_LINES:
            return True
        begun, ended = _parse_time(incident.last_time), _parse_time(self.last_time)
        return after > 5 and begun is not None and ended is not None and (ended - begun).total_seconds() > OUTLIVED_S


class _Log:
    """A job's log, read in one pass and in bounded memory."""

    def __init__(self) -> None:
        self.service: list[str] = []
        self.statuses: dict[str, int] = {}
        """Exit statuses by replica, in the order in which the service reported them."""
        self._replicas: dict[str, _Replica] = {}
        self._order = 0

    def read(self, line: Line) -> None:
        """Read an entry."""
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
        if replica.readers or replica.open_error or text.startswith(OPENINGS) or any(hint in text for hint in HINTS):
            self._read_closely(replica, line)
        else:
            replica.count += 1

    def end(self, message: str) -> None:
        """End the log with the service's message about the job's end."""
        for replica in self._replicas.values():
            self._finish_tracebacks(replica, replica.last_time)
        before, self.statuses = self.statuses, {}
        self._read_service_message(message)
        self.statuses |= {name: status for name, status in before.items() if name not in self.statuses}
        if HEADER in message:  # Vertex AI appends the end of a short traceback, with or without line ends
            text = message.partition("\n")[2] or message.partition(HEADER)[2]
            self.read(Line("", next(iter(self.statuses), "workerpool0-0"), "ERROR", text))

    def list_fatal_incidents(self) -> list[_Incident]:
        """Return the incidents that replicas did not outlive, by time."""
        fatal = [
            incident
            for replica in self._replicas.values()
            for incident in replica.incidents.values()
            if not replica.has_recovered_from(incident)
        ]
        return sorted(fatal, key=lambda incident: (_parse_time(incident.time) or LAST, incident.order))

    def list_outlived_incidents(self) -> list[_Incident]:
        """Return the errors after which a replica went on."""
        return [
            incident
            for replica in self._replicas.values()
            for incident in replica.incidents.values()
            if incident.is_error and replica.has_recovered_from(incident)
        ]

    @property
    def replica_count(self) -> int:
        """The number of replicas with log lines."""
        return len(self._replicas)

    def get_last_output(self, name: str) -> str:
        """Return the last line that a replica printed."""
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
            replica.open_error = None

    def _finish_tracebacks(self, replica: _Replica, time: str, severity: str = "") -> None:
        """Complete the tracebacks being read, in lines of one severity or of all."""
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
        """Read a line outside tracebacks: an error of Tagline's, its continuation, or a message that names a cause."""
        if replica.open_error is not None and replica.open_error[0] == line.severity:
            own_error = replica.open_error[1]
            if text.startswith("next: "):
                own_error.hint = text.removeprefix("next: ")
                replica.open_error = None
                return
            if text.startswith("  "):
                if len(own_error.texts) < MOST_TEXTS and text.strip() not in own_error.texts:
                    own_error.texts.append(text.strip())
                return
            replica.open_error = None
        message = text.removeprefix("error: ").strip() if text.startswith("error: ") else ""
        cause = causes.recognise_cause(text, "line")
        if message and cause != "pip-conflict":  # pip's own errors have the same prefix
            own_error = self._create_incident(replica, line.time, texts=[message], is_ours=True)
            replica.open_error = (line.severity, replica.add(text, own_error))
        elif cause:
            known = replica.add(f"line {cause}", self._create_incident(replica, line.time))
            if len(known.texts) < MOST_TEXTS:
                known.texts.append(text)


DECIDED = frozenset((
    "quota", "capacity", "image-pull", "preempted", "timeout", "cancelled", "internal", "host-memory", "start",
    "permission", "not-found", "disk-full",
))  # fmt: skip
"""Causes for which the service's message takes precedence over the replicas' logs."""


def _diagnose_service_message(message: str, spec: Spec | None) -> Failure | None:
    text = message.partition(HEADER)[0]
    cause = causes.recognise_cause(text, "service")
    if cause not in DECIDED:
        return None
    match = EXITED.search(text) or re.search(r"\b(workerpool\d-\d+)\b", text)
    return _build_failure(cause, match[1] if match else "", text, spec)


def _diagnose_replicas(log: _Log, spec: Spec | None) -> Failure | None:
    """Diagnose the first replica that failed by itself; a status counts more than an unrecognised exception."""
    failed = [incident for incident in log.list_fatal_incidents() if not incident.is_consequence]
    errors = [incident for incident in failed if incident.is_error]
    killed = next((name for name, status in log.statuses.items() if status in (9, 137)), "")
    if not errors:
        named = [incident for incident in failed if incident.replica in log.statuses] or failed
        return _explain_incident(named[0], named[0].cause(), spec) if named and not killed else None
    first = errors[0]
    same_replica = [each for each in errors if each.replica == first.replica]
    same_replica.sort(key=lambda each: not each.is_ours)  # Tagline's own error is the most specific
    for each in same_replica:
        if cause := each.cause() or _recognise_column(each, spec):
            return _explain_incident(each, cause, spec, lines=first.lines)
    line = next((each for each in failed if each.replica == first.replica and not each.is_error), None)
    if line is not None:
        return _explain_incident(line, line.cause(), spec, lines=first.lines)
    if killed and killed not in {each.replica for each in errors}:
        return None
    if same_replica[0].is_ours:
        status = log.statuses.get(first.replica, next(iter(log.statuses.values()), 0))
        cause = causes.TAGLINE_STATUS.get(status, "unknown")
        return Failure(cause, first.replica, same_replica[0].error_message, "", first.lines)
    with_what = f", with {_one_line(first.statements[0])}" if first.statements else ""
    return Failure("unknown", first.replica, f"{first.replica} failed first{with_what}", advice.REHEARSE, first.lines)


def _diagnose_exit_status(log: _Log, spec: Spec | None) -> Failure | None:
    """Diagnose by the first exit status of a known meaning, where no log names a cause."""
    for name, status in log.statuses.items():
        if cause := causes.BY_STATUS.get(status):
            return _build_failure(cause, name, f"status of {status}\n{log.get_last_output(name)}", spec)
    return None


def _describe_unknown_failure(log: _Log, message: str, spec: Spec | None) -> Failure:
    """Describe a failure of which the log has consequences, outlived errors, or nothing."""
    if lost := next((incident for incident in log.list_fatal_incidents() if incident.is_error), None):
        said = lost.statements[0]
        if COMMUNICATION.search(said) or log.replica_count > 1:
            return _explain_incident(lost, "lost-worker", spec, lines=lost.lines)
        ending = f"{lost.replica} ended with {_one_line(said)}"
        return Failure("unknown", lost.replica, ending, advice.REHEARSE, lost.lines)
    name, status = next(iter(log.statuses.items()), ("", 0))
    what = f"{name} exited with status {status}" if name else "the job failed"
    if past := next(iter(log.list_outlived_incidents()), None):
        said = (
            f"{what}; {past.replica} went on after this, but said nothing else of it: {_one_line(past.statements[0])}"
        )
        return Failure("unknown", name or past.replica, said, advice.REHEARSE, past.lines)
    if not log.replica_count:
        reason = f": {_one_line(message)}" if message and not name else ""
        return Failure("unknown", name, f"{what}{reason}, and its log is empty; {EMPTY_LOG}", advice.REHEARSE)
    output = log.get_last_output(name)
    last = f"; the last that it printed was: {output}" if output else ""
    return Failure("unknown", name, f"{what} without saying why{last}", advice.REHEARSE)


def _explain_incident(incident: _Incident, cause: str, spec: Spec | None, *, lines: tuple[str, ...] = ()) -> Failure:
    failure = _build_failure(cause, incident.replica, "\n".join(incident.statements), spec, lines)
    if incident.is_ours and "a bug in Tagline" not in incident.statements[0]:
        return Failure(failure.cause, failure.replica, incident.error_message, failure.command, lines)
    return failure


def _build_failure(cause: str, replica: str, text: str, spec: Spec | None, lines: tuple[str, ...] = ()) -> Failure:
    sentence, command = advice.advise(cause, Case(replica, text, spec))
    return Failure(cause, replica, sentence, command, lines)


def _recognise_column(incident: _Incident, spec: Spec | None) -> str:
    """Return the cause "missing-column" for a KeyError whose key is a column of the spec; "" otherwise."""
    key = re.match(r"KeyError: '(.+)'$", incident.statements[0]) if incident.statements else None
    if key is None or spec is None:
        return ""
    data = spec.data
    columns = (*data.text_columns, *data.label_columns, data.split, *data.slices)
    return "missing-column" if key[1] in columns else ""


def _split_entry(text: str) -> list[str]:
    """Split an entry into lines, including a traceback inside JSON or with escaped line ends."""
    if HEADER in text and "\n" not in text:
        if text.startswith("{"):
            try:
                payload = json.loads(text)
            except (ValueError, RecursionError):
                payload = None
            text = _extract_message(payload) if isinstance(payload, dict) else text
        text = text.replace("\\n", "\n")
    return [each.rstrip("\r") for each in text.split("\n")]


def _extract_message(payload: Mapping[str, Any]) -> str:
    """Return the message of a structured entry, with the traceback that loggers put into another field."""
    parts = [payload.get(key) for key in ("message", "exc_info", "stack_trace", "exception", "traceback")]
    texts = [part for part in parts if isinstance(part, str) and part]
    return "\n".join(texts) if texts else json.dumps(dict(payload), default=str)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


def _parse_time(time: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
