"""What is fuzzed: functions that take any bytes, and raise only what a user or a client may be answered with."""

import asyncio
import contextlib
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tagline.data import readers
from tagline.data.readers import BadRows, Layout, encoding, inspect, read_batches
from tagline.errors import DataError, SpecError, TaglineError
from tagline.prediction.bundle import Bundle, Manifest
from tagline.serving import protocol
from tagline.serving.http import HttpConnection, HttpRequest, HttpResponse, HttpServer
from tagline.serving.protocol import Limits, RefusedRequest


class RecordingTransport(asyncio.Transport):
    """Takes what a connection writes, and closes when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None:
        assert not self.closed, "written after the end"

    def write_eof(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def fuzz_connection(data: bytes) -> None:
    """A client's bytes are the same requests in one piece and byte by byte, and never an error of ours."""
    whole = parse_requests([data])
    assert whole == parse_requests([bytes([each]) for each in data])


def parse_requests(pieces: list[bytes]) -> list[tuple[str, str, bytes, int]]:
    """The requests that a connection hands over, by method, path, body and whether something was wrong with them."""
    seen: list[tuple[str, str, bytes, int]] = []

    async def answer(request: HttpRequest) -> HttpResponse:
        seen.append((request.method, request.path, request.body, request.problem.status if request.problem else 0))
        return HttpResponse(b"{}")

    async def feed() -> None:
        connection = HttpConnection(HttpServer(answer, body_bytes=100), asyncio.get_running_loop())
        transport = RecordingTransport()
        connection.connection_made(transport)
        for piece in pieces:
            if transport.is_closing():
                break
            connection.data_received(piece)
        for _ in range(3 * len(seen) + 10):
            await asyncio.sleep(0)
        transport.close()
        connection.connection_lost(None)

    asyncio.run(feed())
    return [each for each in seen if each[3] == 0]


def fuzz_wire(data: bytes) -> None:
    """A body asks for something, or is refused with a status of the client's."""
    for pair in (False, True):
        try:
            protocol.parse_request(data, pair=pair, limits=Limits(body_bytes=1000, instances=10, characters=100))
        except RefusedRequest as refused:
            assert 400 <= refused.status < 500
            assert refused.message


def fuzz_manifest(data: bytes) -> None:
    """A manifest of any bytes loads, or is an error with exit code 4 that names the file; one that fits is sealed."""
    with contextlib.suppress(ValidationError):
        manifest = Manifest.model_validate_json(data)
        data = manifest.model_copy(update={"sha256": manifest.digest()}).to_json().encode()
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "tagline.json").write_bytes(data)
        try:
            Bundle.load(directory)
        except TaglineError as error:
            assert error.exit_code == 4, error
            assert directory in error.message, error


def fuzz_csv(data: bytes) -> None:
    """Rows of any bytes as CSV."""
    read_rows(data, "rows.csv")


def fuzz_jsonl(data: bytes) -> None:
    """Rows of any bytes as JSON lines."""
    read_rows(data, "rows.jsonl")


def read_rows(data: bytes, name: str) -> None:
    """Every row has a cell a column and a line; what cannot be read is an error of the data or the spec."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_bytes(data)
        bad = BadRows("skip")
        try:
            source = inspect(str(path), Layout())
            for batch in read_batches(source, bad=bad):
                assert tuple(batch.columns) == source.columns
                assert all(len(column) == len(batch.lines) for column in batch.columns.values())
                assert all(line >= 1 for line in batch.lines)
        except (DataError, SpecError) as error:
            assert name in error.message, error
        finally:
            readers._inspect_file.cache_clear()  # each input is a file of its own


def fuzz_encoding(data: bytes) -> None:
    """Bytes have an encoding in which they can be read to their end."""
    with contextlib.suppress(DataError):
        detected = encoding.detect_encoding(io.BytesIO(data))
        text = data.decode(detected.name, detected.errors)
        json.dumps(text, ensure_ascii=False)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "connection": fuzz_connection,
    "wire": fuzz_wire,
    "manifest": fuzz_manifest,
    "csv": fuzz_csv,
    "jsonl": fuzz_jsonl,
    "encoding": fuzz_encoding,
}
