"""TensorBoard: event files in the run's directory, written with TensorBoard's own package, without torch."""

import os
import socket
import time
from collections.abc import Sequence

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from tagline import spec as specs
from tagline.runs.run import Run
from tagline.runs.trackers import Point, format_parameter, last_step, list_parameters, record_id, report_figures


class TensorBoard:
    """Writes `<run>/tensorboard/`: one file per attempt, which TensorBoard shows as one record."""

    def begin(self, run: Run, *, resumed_at: int) -> None:
        """Open a new event file; its first entry makes TensorBoard drop the steps that will come again."""
        directory = run.directory / "tensorboard"
        directory.mkdir(exist_ok=True)
        number = len(list(directory.iterdir()))  # TensorBoard reads the files in the order of their names
        name = f"events.out.tfevents.{int(time.time()):010d}.{number:04d}.{socket.gethostname()}.{os.getpid()}"
        self._writer = RecordWriter((directory / name).open("wb"))
        self._write_event(Event(file_version="brain.Event:2"))
        self._write_event(Event(session_log=SessionLog(status=SessionLog.START), step=resumed_at + 1))
        if not number:
            spec = run.spec()
            values = {
                key: value if isinstance(value, bool | int | float) else format_parameter(value)
                for key, value in list_parameters(spec).items()
            }
            self._write_event(Event(summary=hparams_pb(values, trial_id=record_id(run))))
            self._write_text("spec", _indent_block(specs.to_toml(spec, with_place=False)), step=0)
        self._writer.flush()

    def record(self, points: Sequence[Point]) -> None:
        """Write scalars and flush them: TensorBoard reads while the run writes."""
        for point in points:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in point.figures.items()]
            self._write_event(Event(summary=Summary(value=values), step=point.step), at=point.time)
        self._writer.flush()

    def end(self, run: Run) -> None:
        """Write the report's figures as scalars, the report and the bundle's address as texts."""
        state, step = run.state().name, last_step(run)
        if state == "succeeded":
            self.record([Point(step, time.time(), report_figures(run))])
            self._write_text("report", _indent_block((run.directory / "report.json").read_text("utf-8")), step=step)
            self._write_text("bundle", run.bundle_address, step=step)
        self._write_text("state", state, step=step)
        self._writer.close()

    def _write_text(self, tag: str, text: str, *, step: int) -> None:
        metadata = create_summary_metadata(display_name=tag, description="")
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype=DT_STRING, tensor_shape=shape, string_val=[text.encode()])
        self._write_event(
            Event(summary=Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]), step=step)
        )

    def _write_event(self, event: Event, *, at: float | None = None) -> None:
        event.wall_time = time.time() if at is None else at
        self._writer.write(event.SerializeToString())


def _indent_block(text: str) -> str:
    """Format text as a Markdown code block."""
    return "".join(f"    {line}\n" for line in text.splitlines())
