"""A file of texts in, the same rows with answers out."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from tagline import storage
from tagline.bundle import Bundle
from tagline.errors import DataError, PlaceError, SpecError
from tagline.predictor import Predictor
from tagline.readers import BadRows, Batch, Layout, Source, batches, inspect

OURS = ("label", "labels", "score", "scores", "abstained", "set")
"""Keys of an answer; an input column of the same name is kept as `input_...`."""

ROWS_A_GROUP = 10_000

Row = dict[str, Any]


def predict_file(
    bundle: Bundle, source: str, output: str | Path, *, text: Sequence[str] = (), sets: float | None = None
) -> None:
    """Answer every row of a file into another, whole or not at all."""
    suffix = Path(output).suffix.lower()
    if suffix not in WRITERS:
        raise SpecError(f"cannot write {output}: no such format", hint=f"one of: {', '.join(WRITERS)}")
    if not storage.is_utf8(str(output)):
        raise SpecError("the output's name is not UTF-8", hint="name another")
    if source != storage.STANDARD_INPUT and Path(output).exists() and Path(output).samefile(source):
        raise SpecError(f"{output} is also the input", hint="write the answers to another file")
    with storage.writing(storage.local(output)) as file:
        WRITERS[suffix](answered(bundle, source, text=text, sets=sets), file)


def answered(
    bundle: Bundle, address: str, *, text: Sequence[str] = (), sets: float | None = None
) -> Iterator[Row]:  # fmt: skip
    """Each row of a file with its own columns and its answer."""
    predictor = Predictor.of(bundle)
    source = inspect(address, Layout())
    columns = text_columns(bundle, source, text)
    bad = BadRows("stop", hint="mend them: every row gets an answer, or none does")
    names, rows = _own_names(source.columns), 0
    for batch in batches(source, bad=bad):
        rows += len(batch.lines)
        texts = list(_texts(batch, columns))
        for index, prediction in enumerate(predictor.predict(texts, sets=sets)):
            yield _own_columns(batch, index, names) | prediction.to_dict()
    bad.settle()
    if not rows:
        raise DataError(f"{address} has no row to answer", hint="is it the right file?")


def text_columns(bundle: Bundle, source: Source, named: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns to read: those named, those of the training data, or the only ones that there are."""
    trained = bundle.manifest.spec["data"]["text"]
    wanted = tuple(named) or ((trained,) if isinstance(trained, str) else tuple(trained))
    if set(wanted) <= set(source.columns):
        return wanted
    # The only columns there are will do, unless what was taken for their names may be the first text.
    if not named and len(source.columns) == len(wanted) and all(map(str.isidentifier, source.columns)):
        return source.columns
    missing = next(name for name in wanted if name not in source.columns)
    hint = "say which column holds the text: --text COLUMN"
    raise SpecError(f'{source.name} has no column "{missing}"; it has: {", ".join(source.columns)}', hint=hint)


def _texts(batch: Batch, columns: Sequence[str]) -> Iterator[Any]:
    cells = [[cell if isinstance(cell, str) else " ".join(cell or ()) for cell in batch.columns[c]] for c in columns]
    return iter(cells[0]) if len(cells) == 1 else zip(*cells, strict=True)


def _own_names(columns: Sequence[str]) -> dict[str, str]:
    """Under which name each input column is kept."""
    names = {name: name for name in columns if name not in OURS}
    for name in columns:
        if name in OURS:
            kept = f"input_{name}"
            while kept in names.values():
                kept = f"input_{kept}"
            names[name] = kept
    return names


def _own_columns(batch: Batch, index: int, names: Mapping[str, str]) -> Row:
    return {
        names[name]: list(c) if isinstance(c := cells[index], tuple) else c for name, cells in batch.columns.items()
    }


def _write_jsonl(rows: Iterator[Row], file: IO[bytes]) -> None:
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _write_csv(rows: Iterator[Row], file: IO[bytes], *, delimiter: str = ",") -> None:
    writer: csv.DictWriter[str] | None = None
    for row in map(_flat, rows):
        if writer is None:
            writer = csv.DictWriter(_Lines(file), list(row), delimiter=delimiter, lineterminator="\r\n")
            writer.writeheader()
        writer.writerow(row)


class _Lines:
    """Where a CSV writer writes: rows end in a line feed. (A writer told so itself leaves a lone CR unquoted.)"""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, row: str) -> None:
        self._file.write(row.removesuffix("\r\n").encode() + b"\n")


def _write_tsv(rows: Iterator[Row], file: IO[bytes]) -> None:
    _write_csv(rows, file, delimiter="\t")


def _write_parquet(rows: Iterator[Row], file: IO[bytes]) -> None:
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        hint = 'pip install "tagline[train]", or write csv or jsonl'
        raise PlaceError("writing Parquet needs pyarrow, which is not installed", hint=hint) from error
    flat = map(_flat, rows)
    first = next(flat)
    types = {"score": pa.float64(), "abstained": pa.bool_()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in first])
    with ParquetWriter(file, schema) as writer:
        remaining = chain([first], flat)
        while group := list(islice(remaining, ROWS_A_GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


def _flat(row: Row) -> Row:
    """A row for a table: several labels between bars, without the scores of all labels."""
    flat = {name: "|".join(map(str, value)) if isinstance(value, list) else value for name, value in row.items()}
    flat.pop("scores")
    return flat | {"abstained": row.get("abstained", False)}


WRITERS = {".jsonl": _write_jsonl, ".csv": _write_csv, ".tsv": _write_tsv, ".parquet": _write_parquet}
