"""Google AutoML Text's import files: CSV rows `[ml_use,]text,label...` and JSON lines with `textContent`."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tagline.data.readers import BadRows, Block, Cell, Layout, Source, find_undecodable, group_into_blocks, split_lines
from tagline.data.readers.delimited import read_records
from tagline.data.readers.jsonlines import parse_line, read_objects

COLUMNS = ("ml_use", "text", "labels")
ML_USES = {"train": "train", "training": "train", "validation": "validation", "test": "test", "unassigned": ""}
ML_USE_KEY = "aiplatform.googleapis.com/ml_use"
JSON_KEYS = {"textContent", "textGcsUri"}


def recognises(sample: str, *, name: str) -> bool:  # noqa: ARG001 - the contract's signature
    """Return whether these lines are an AutoML import file: by its JSON keys, or an ml_use before every text."""
    first = next((line for line in split_lines(sample) if line.strip()), "")
    if first.lstrip().startswith("{"):
        row, _ = parse_line(first)
        return bool(row and JSON_KEYS & row.keys())
    cells = [row for row in csv.reader(io.StringIO(sample, newline="")) if row]
    return len(cells) > 0 and all(map(_begins_with_use, cells[:50]))


def _begins_with_use(row: Sequence[str]) -> bool:
    """Return whether a CSV row begins with an ml_use and a text; after an empty ml_use a label is required too."""
    return (len(row) > 1 and row[0].lower() in ML_USES) or (len(row) > 2 and row[0] == "")


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:  # noqa: ARG001 - the contract's signature
    """Return the three columns that both forms have; ml_use is the split column."""
    is_json = sample.lstrip().startswith("{")
    return {"columns": COLUMNS, "separator": "" if is_json else ",", "split_column": "ml_use"}


def blocks(source: Source, bad: BadRows) -> Iterator[Block]:
    """Yield the rows of a file in blocks."""
    return group_into_blocks(_read_rows(source, bad))


def _read_rows(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Yield each item: its ml_use, its text and its labels."""
    yield from _csv_rows(source, bad) if source.separator else _json_rows(source, bad)


def _csv_rows(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    for line, _, cells, fault in read_records(source, quoted=True):
        use, *rest = cells if cells[0].lower() in ML_USES or (cells[0] == "" and len(cells) > 2) else ("", *cells)
        labels = tuple(label.strip() for label in rest[1:] if label.strip())
        if fault:
            bad.add(source.name, line, fault)
        elif source.encoding.damaged and (why := find_undecodable(cells, source.encoding)):
            bad.add(source.name, line, why)
        elif not rest:
            bad.add(source.name, line, "an ml_use and no text")
        elif rest[0].startswith("gs://"):
            bad.add(source.name, line, _explain_remote_text(rest[0]))
        else:
            yield line, (ML_USES[use.lower()] if use else "", rest[0], labels)


def _json_rows(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    for line, item in read_objects(source, bad):
        text = item.get("textContent")
        resource_labels = item.get("dataItemResourceLabels")
        use = resource_labels.get(ML_USE_KEY, "") if isinstance(resource_labels, Mapping) else ""
        if item.get("textGcsUri"):
            bad.add(source.name, line, _explain_remote_text(str(item["textGcsUri"])))
        elif not isinstance(text, str):
            bad.add(source.name, line, "no textContent")
        elif str(use).lower() not in {*ML_USES, ""}:
            bad.add(source.name, line, f'{ML_USE_KEY} is "{use}"; it may be training, validation or test')
        elif (labels := _read_labels(item)) is None:
            bad.add(source.name, line, 'an annotation that is not of the form {"displayName": "LABEL"}')
        else:
            yield line, (ML_USES.get(str(use).lower(), ""), text, labels)


def _read_labels(item: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the labels of an item, from the singular or the plural key; None if an annotation has no name."""
    value = item.get("classificationAnnotations") or item.get("classificationAnnotation") or []
    annotations = value if isinstance(value, list) else [value]
    names = [a["displayName"] for a in annotations if isinstance(a, Mapping) and isinstance(a.get("displayName"), str)]
    return tuple(name.strip() for name in names if name.strip()) if len(names) == len(annotations) else None


def _explain_remote_text(address: str) -> str:
    return f"the text stands in another file, {address}, which cannot be read from here"
