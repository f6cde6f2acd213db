"""Prediction of whole files: each row with its answer, in parts, by several processes, and resumable."""

import json
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tagline.data import readers
from tagline.data.readers import SHOWN_BAD_ROWS, BadRow, BadRows, Batch, Layout, Source, cell, inspect, read_batches
from tagline.data.writers import OURS, SUFFIXES, EscapeFormulas, Row, answer_columns, check_parquet, table_for
from tagline.errors import DataError, PlaceError, SpecError
from tagline.prediction.bundle import Bundle
from tagline.prediction.predictor import Predictor, plan_workers
from tagline.storage import addresses, atomic, inputs
from tagline.system.processes import end_with_parent

ROWS_A_PART = 1024
"""Enough for batches of similar length (HappyDB: 0.8 % of padding), and few enough for an even load at the end."""
FEWEST_ROWS = 8 * ROWS_A_PART
"""The fewest rows for which starting other processes pays."""

Event = dict[str, Any]


@dataclass(frozen=True)
class FilePart:
    """Consecutive rows of a file, and the number of their part."""

    number: int
    rows: Batch


def predict_file(
    bundle: Bundle,
    source: str,
    output: str | Path,
    *,
    text: Sequence[str] = (),
    sets: float | None = None,
    workers: int = 0,
    escape_formulas: EscapeFormulas = "ours",
) -> Event:
    """Write every row of a file with its prediction into another; return the last event, with the row counts."""
    *_, last = predict_file_events(
        bundle, source, output, text=text, sets=sets, workers=workers, escape_formulas=escape_formulas
    )
    return last


def predict_file_events(
    bundle: Bundle,
    source: str,
    output: str | Path,
    *,
    text: Sequence[str] = (),
    sets: float | None = None,
    workers: int = 0,
    escape_formulas: EscapeFormulas = "ours",
) -> Iterator[Event]:
    """Write every row of a file with its prediction into another, atomically, and yield progress events.

    Finished parts are kept in a directory beside the output, so that the same command resumes where it was stopped.
    Rows that cannot be read are listed with their reasons in a file of their own. In a CSV or TSV, labels that look
    like formulas are escaped, and with `escape_formulas="all"` the input's own cells too.
    """
    target = _check_output(source, output)
    inspected = _inspect_source(source)
    columns = find_text_columns(bundle, inspected, text)
    work = _FilePrediction(
        bundle, inspected, target, address=str(output), columns=columns, sets=sets, escape_formulas=escape_formulas
    )
    processes, threads = plan_workers(bundle, workers)
    estimate = readers.estimate_rows(inspected)
    if not workers and (estimate or 0) < FEWEST_ROWS:
        processes, threads = 1, 0
    with work.open_parts() as finished:
        yield {"event": "started", "rows": 0, "total": estimate, "done_before": len(finished)}
        answers = work.answer_in_process(threads) if processes == 1 else work.answer_in_pool(processes, threads)
        rows, skipped = 0, list[int]()
        for part, count in answers(work.iter_missing_parts(finished, skipped)):
            rows += count
            yield {"event": "part", "part": part, "rows": rows, "total": estimate, "rows_before": sum(skipped)}
        encoding = {"encoding": inspected.encoding.describe_readings()} if inspected.encoding.readings else {}
        yield {"event": "finished", "output": str(output), **work.finish(), **encoding}


def predict_rows(bundle: Bundle, address: str, *, text: Sequence[str] = (), sets: float | None = None) -> Iterator[Row]:
    """Yield each row of a file with its own columns and its prediction as soon as it is known; a bad row stops it."""
    source = _inspect_source(address)
    answer = _RowAnswerer(Predictor.of(bundle), source, find_text_columns(bundle, source, text), sets)
    bad = BadRows("stop", hint="mend them, or give --output: bad rows are listed beside it, and the others answered")
    rows = 0
    for batch in read_batches(source, bad=bad):
        rows += len(batch.lines)
        yield from answer(batch)
    bad.raise_if_bad()
    if not rows:
        raise _make_no_rows_error(source.name)


def find_text_columns(bundle: Bundle, source: Source, named: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the text columns: those named, those of the training data, or the only column there is."""
    trained_on = bundle.manifest.spec["data"]["text"]
    wanted = tuple(named) or ((trained_on,) if isinstance(trained_on, str) else tuple(trained_on))
    if len(wanted) != 1 + bundle.manifest.pair:
        kind = "pairs of texts" if bundle.manifest.pair else "one text a row"
        raise SpecError(f"this bundle reads {kind}; {len(wanted)} columns are named", hint="give --text once for each")
    if set(wanted) <= set(source.columns):
        return wanted
    # A single column will do, unless its name may be the first text of a file without a header. With two columns it is
    # unknown which is which, and whether one is a label.
    if not named and len(source.columns) == len(wanted) == 1 and source.columns[0].isidentifier():
        return source.columns
    missing = next(name for name in wanted if name not in source.columns)
    hint = "say which column holds the text: --text COLUMN" + (", twice for a pair" if len(wanted) > 1 else "")
    raise SpecError(f'{source.name} has no column "{missing}"; it has: {", ".join(source.columns)}', hint=hint)


class _RowAnswerer:
    """Adds predictions to rows."""

    def __init__(self, predictor: Predictor, source: Source, columns: Sequence[str], sets: float | None) -> None:
        self._predictor, self._columns, self._sets = predictor, columns, sets
        self._names = name_input_columns(source.columns)

    def __call__(self, batch: Batch) -> Iterator[Row]:
        predictions = self._predictor.predict(list(_read_texts(batch, self._columns)), sets=self._sets)
        for index, prediction in enumerate(predictions):
            yield _copy_input_columns(batch, index, self._names) | prediction.to_dict()


class _FilePrediction:
    """The prediction of one file, and the directory of its finished parts."""

    def __init__(
        self,
        bundle: Bundle,
        source: Source,
        target: Path,
        *,
        address: str,
        columns: Sequence[str],
        sets: float | None,
        escape_formulas: EscapeFormulas,
    ) -> None:
        self._address = address
        self._bundle, self._source, self._target = bundle, source, target
        self._columns, self._sets = columns, sets
        self._table = table_for(target.suffix.lower(), escape_formulas=escape_formulas)
        manifest = bundle.manifest
        types = source.types or ("",) * len(source.columns)
        names = name_input_columns(source.columns)
        self._header = {names[name]: kind for name, kind in zip(source.columns, types, strict=True)}
        self._header |= answer_columns(manifest.task) | ({"set": ""} if sets else {})
        self.parts = target.with_name(f"{target.name}.parts")
        self._bad_path = target.with_name(f"{target.name}.bad.jsonl")
        self._facts = {
            "bundle": manifest.sha256,
            "input": source.name,
            "stamp": list(source.stamp),
            "columns": list(columns),
            "sets": sets,
            "rows": ROWS_A_PART,
            "escape_formulas": escape_formulas,
        }
        self._rows = self._bad = self._count = 0
        self._unread: list[str] = []
        self._first_bad: list[BadRow] = []
        """The rows that the error shows if there is no good one."""

    def open_parts(self) -> "_PartsDirectory":
        """Return the directory of the parts, as a context manager that locks it."""
        can_resume = self._source.name != inputs.STANDARD_INPUT
        return _PartsDirectory(self.parts, self._facts, can_resume=can_resume)

    def iter_missing_parts(self, finished: set[int], skipped: list[int]) -> Iterator[FilePart]:
        """Yield the parts that are not finished; list bad rows, and append the sizes of finished parts to `skipped`."""
        bad = BadRows("skip")
        with atomic.open_for_writing(self.parts / "bad", is_private=False) as bad_file:
            for number, rows in enumerate(_split_parts(read_batches(self._source, bad=bad))):
                self._rows += len(rows.lines)
                self._count = number + 1
                self._list_bad_rows(bad, bad_file)
                if number in finished:
                    skipped.append(len(rows.lines))
                else:
                    yield FilePart(number, rows)
            self._list_bad_rows(bad, bad_file)
        self._unread = sorted(bad.unread)
        if not self._rows:
            BadRows(rows=self._first_bad, hint="mend them; nothing was written").raise_if_bad()
            raise _make_no_rows_error(self._source.name)

    def _list_bad_rows(self, bad: BadRows, bad_file: Any) -> None:
        for row in bad.rows:
            line = {"file": row.file, "line": row.line, "reason": row.reason}
            bad_file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._bad += len(bad.rows)
        self._first_bad += bad.rows[: SHOWN_BAD_ROWS - len(self._first_bad)]
        bad.rows.clear()

    def answer_in_process(self, threads: int) -> Any:
        """Return a function that answers parts in this process."""
        return lambda parts: map(_PartWorker(self, threads), parts)

    def answer_in_pool(self, processes: int, threads: int) -> Any:
        """Return a function that answers parts in worker processes, with back-pressure to keep memory bounded."""

        def answers(parts: Iterator[FilePart]) -> Iterator[tuple[int, int]]:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(processes, context, _start_worker, (self, threads, os.getpid())) as pool:
                running: set[Future[tuple[int, int]]] = set()
                try:
                    for part in parts:
                        running.add(pool.submit(_answer_part, part))
                        if len(running) >= 2 * processes:
                            done, running = wait(running, return_when=FIRST_COMPLETED)
                            yield from (each.result() for each in done)
                    while running:
                        done, running = wait(running, return_when=FIRST_COMPLETED)
                        yield from (each.result() for each in done)
                except BrokenProcessPool as error:
                    hint = "run the same command again: it goes on from here; --workers 1 needs less memory"
                    raise PlaceError("a process that predicts was ended from outside", hint=hint) from error
                finally:
                    pool.shutdown(wait=True, cancel_futures=True)

        return answers

    def create_answerer(self, predictor: Predictor) -> _RowAnswerer:
        """Create the object that answers a part's rows."""
        return _RowAnswerer(predictor, self._source, self._columns, self._sets)

    def load_predictor(self, threads: int) -> Predictor:
        """Load the bundle's predictor."""
        return Predictor.of(self._bundle, threads=threads)

    def write(self, part: FilePart, rows: Iterator[Row]) -> None:
        """Write a part atomically."""
        with atomic.open_for_writing(self.parts / f"{part.number:08d}") as file:
            self._table.write(rows, self._header, file)

    def finish(self) -> dict[str, Any]:
        """Join the parts into the output, and return the row counts."""
        with atomic.open_for_writing(self._target, is_private=False) as file:
            self._table.join([self.parts / f"{n:08d}" for n in range(self._count)], self._header, file)
        bad_address = f"{self._address}.bad.jsonl"
        if self._bad:
            (self.parts / "bad").replace(self._bad_path)
            addresses.deliver(self._bad_path, bad_address)
        else:
            self._bad_path.unlink(missing_ok=True)
        addresses.deliver(self._target, self._address)
        atomic.remove_directory(self.parts)
        bad_rows_in = {"bad_rows_in": bad_address} if self._bad else {}
        left_out = {"left_out": self._unread} if self._unread else {}
        return {"rows": self._rows, "bad_rows": self._bad, **bad_rows_in, **left_out}


class _PartsDirectory:
    """A directory of parts, locked by one process; parts of other inputs or settings are removed."""

    def __init__(self, directory: Path, facts: Mapping[str, Any], *, can_resume: bool) -> None:
        self._directory, self._facts, self._can_resume = directory, facts, can_resume
        self._stack = ExitStack()

    def __enter__(self) -> set[int]:
        with atomic.disk_errors(self._directory):
            atomic.make_directory(self._directory)
        self._stack.enter_context(atomic.lock_directory(self._directory))
        facts = self._directory / "work.json"
        recorded = json.loads(facts.read_text("utf-8")) if facts.is_file() else None
        if recorded != self._facts or not self._can_resume:
            for old in self._directory.glob("[0-9]*"):
                old.unlink()
            atomic.write_text(facts, json.dumps(self._facts))
        return {int(path.name) for path in self._directory.glob("[0-9]*")}

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Keep the parts for the next run, unless there is nothing to resume."""
        with self._stack:
            is_bad_input = kind is not None and issubclass(kind, DataError | SpecError)
            if self._directory.exists() and (is_bad_input or not self._can_resume or not self._has_parts()):
                atomic.remove_directory(self._directory)

    def _has_parts(self) -> bool:
        return any(self._directory.glob("[0-9]*"))


class _PartWorker:
    """Answers the parts of a file, with the bundle loaded."""

    def __init__(self, work: _FilePrediction, threads: int) -> None:
        self._work = work
        self._answer = work.create_answerer(work.load_predictor(threads))

    def __call__(self, part: FilePart) -> tuple[int, int]:
        """Answer a part and write it; return its number and its number of rows."""
        self._work.write(part, self._answer(part.rows))
        return part.number, len(part.rows.lines)


_part_worker: list[_PartWorker] = []
"""The worker of a process in the pool."""


def _start_worker(work: _FilePrediction, threads: int, parent: int) -> None:
    end_with_parent(parent)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each core has a process already
    _part_worker.append(_PartWorker(work, threads))


def _answer_part(part: FilePart) -> tuple[int, int]:
    return _part_worker[0](part)


def _check_output(source: str, output: str | Path) -> Path:
    """Return the path to write to; raise an error for a bad output before anything is read."""
    suffix = Path(output).suffix.lower()
    if suffix not in SUFFIXES:
        raise SpecError(f"cannot write {output}: no such format", hint=f"one of: {', '.join(SUFFIXES)}")
    if suffix == ".parquet":
        check_parquet()
    if not inputs.is_utf8(str(output)):
        raise SpecError("the output's name is not UTF-8", hint="name another")
    both_exist = source != inputs.STANDARD_INPUT and Path(output).exists() and Path(source).exists()
    if source == str(output) or (both_exist and Path(output).samefile(source)):
        raise SpecError(f"{output} is also the input", hint="write the answers to another file")
    target = addresses.choose_staging_path(output)
    if target.is_dir():
        raise PlaceError(f"cannot write {target}: it is a directory")
    return target


def _inspect_source(address: str) -> Source:
    """Inspect a file whose numbers and truth values keep their types."""
    return replace(inspect(address, Layout()), keeps_types=True)


def _make_no_rows_error(address: str) -> DataError:
    return DataError(f"{address} has no row to answer", hint="is it the right file?")


def _split_parts(batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        for first in range(0, len(batch.lines), ROWS_A_PART):
            rows = slice(first, first + ROWS_A_PART)
            yield Batch(batch.lines[rows], {name: cells[rows] for name, cells in batch.columns.items()})


def _read_texts(batch: Batch, columns: Sequence[str]) -> Iterator[Any]:
    cells = [[_as_text(value) for value in batch.columns[column]] for column in columns]
    return iter(cells[0]) if len(cells) == 1 else zip(*cells, strict=True)


def _as_text(value: Any) -> str:
    parsed = cell(value)
    return parsed if isinstance(parsed, str) else " ".join(parsed or ())


def name_input_columns(columns: Sequence[str]) -> dict[str, str]:
    """Return the name of each input column in the output."""
    names = {name: name for name in columns if name not in OURS}
    for name in columns:
        if name in OURS:
            kept = f"input_{name}"
            while kept in names.values():
                kept = f"input_{kept}"
            names[name] = kept
    return names


def _copy_input_columns(batch: Batch, index: int, names: Mapping[str, str]) -> Row:
    return {
        names[name]: list(c) if isinstance(c := cells[index], tuple) else c for name, cells in batch.columns.items()
    }
