"""Reads the instances of a batch prediction from files in Cloud Storage, in the form Vertex AI sends to servers."""

import base64
import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class InvalidInstance:
    """A line that cannot be read as an instance, and the reason."""

    line: str
    reason: str


def find_files(context: "Context", uris: Sequence[str], at: str) -> list[Path]:
    """Return the files that URIs, with or without wildcards, refer to; raise NOT_FOUND if a URI matches none."""
    paths: list[Path] = []
    for uri in uris:
        path = context.resolve_uri(uri, at)
        if WILD.search(uri):
            bucket = context.resolve_uri("/".join(uri.split("/")[:3]), at)
            try:
                matching = sorted(file for file in bucket.glob(path.relative_to(bucket).as_posix()) if file.is_file())
            except ValueError as error:
                raise invalid_argument(at, f'"{uri}" cannot be understood: {error}') from error
        else:
            matching = [path] if path.is_file() else []
        if not matching:
            raise ApiError("NOT_FOUND", f"No file matches {uri}.", at)
        paths += matching
    return paths


def read_instances(context: "Context", paths: Sequence[Path], form: str, *, as_objects: bool) -> Iterator[Any]:
    """Yield the instances of files in jsonl, csv or file-list format; an unreadable line as an InvalidInstance."""
    for path in paths:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            if form == "csv":
                yield from _read_csv_rows(file, as_objects=as_objects)
                continue
            for line in file:
                text = line.strip()
                if text:
                    yield _parse_json_line(text) if form == "jsonl" else _read_instance_file(context, text)


def _parse_json_line(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return InvalidInstance(text, f"This is no JSON: {error}")


def _read_instance_file(context: "Context", uri: str) -> Any:
    try:
        return {"b64": base64.b64encode(context.resolve_uri(uri).read_bytes()).decode()}
    except ApiError as problem:
        return InvalidInstance(uri, problem.message)
    except OSError as error:
        return InvalidInstance(uri, f"{uri} cannot be read: {error.strerror}")


def _read_csv_rows(file: Iterator[str], *, as_objects: bool) -> Iterator[Any]:
    """Yield the rows below the header: quoted values are strings, all others numbers."""
    header = next(csv.reader(file), None)
    if header is None:
        return
    for line in file:
        if not line.strip():
            continue
        try:
            row = next(csv.reader([line], quoting=csv.QUOTE_NONNUMERIC, strict=True))
        except (ValueError, csv.Error) as error:
            yield InvalidInstance(line.rstrip("\r\n"), f"Texts must be in double quotes, on one line: {error}")
            continue
        if len(row) != len(header):
            yield InvalidInstance(line.rstrip("\r\n"), f"There are {len(row)} values and {len(header)} columns.")
        else:
            yield dict(zip(header, row, strict=True)) if as_objects else row


def check_instance_type(form: str, kind: str, at: str) -> None:
    """Raise INVALID_ARGUMENT if an instance type is set for a format other than csv."""
    if kind and form != "csv":
        raise invalid_argument(at, f'instance_type is "{kind}", which is for csv and not for {form}.')
