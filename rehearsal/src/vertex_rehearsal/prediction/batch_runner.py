"""Runs one batch prediction job: starts the servers, sends the instances, writes the result files."""

import json
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import as_dict
from vertex_rehearsal.execution.queue import CANCELLED, Ending
from vertex_rehearsal.prediction import batch_inputs, models
from vertex_rehearsal.prediction.batch_inputs import InvalidInstance
from vertex_rehearsal.prediction.servers import ModelServerPool, ModelServerSpec
from vertex_rehearsal.prediction.service import parse_predictions

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

BATCH = 64
"""Default number of instances in a request to a server."""
LONGEST_S = 600.0
ATTEMPTS = 3
MOST_PARTIAL_FAILURES = 20


class BatchRun:
    """Runs one job; `run` blocks the calling thread, the other methods are thread-safe."""

    def __init__(self, job: Any, context: "Context", *, on_start: Callable[[], None] = lambda: None) -> None:
        self._job = job
        self._context = context
        self._on_start = on_start
        self._count = job.dedicated_resources.starting_replica_count
        self._id = job.name.rpartition("/")[2]
        self._directory = context.settings.directory / "jobs" / self._id
        self._stopped: Ending | None = None
        self._servers: ModelServerPool | None = None
        self._lock = threading.Lock()
        self._succeeded = self._failed = 0
        self._errors: Counter[str] = Counter()
        self._problems: list[ApiError] = []
        self._output = ""
        self._start_time = 0.0

    def check(self) -> None:
        """Raise ApiError if the model's servers cannot run on this machine."""
        self._build_server_spec().check_runnable()

    def cancel(self) -> None:
        """Cancel the job; predictions made so far are kept."""
        self._stop_servers(Ending("CANCELLED", CANCELLED))

    def stop(self, reason: str) -> None:
        """End the job because the emulator stops."""
        self._stop_servers(Ending("FAILED", ApiError("ABORTED", reason)))

    def _stop_servers(self, ending: Ending) -> None:
        with self._lock:
            self._stopped = self._stopped or ending
            servers = self._servers
        if servers:
            servers.end()

    def write_results(self, job: Any) -> None:
        """Write the counts, the output directory and the errors of the run into a job."""
        job.completion_stats.successful_count = self._succeeded
        job.completion_stats.failed_count = self._failed
        job.completion_stats.incomplete_count = -1 if self._stopped else 0
        if self._output:
            job.output_info.gcs_output_directory = self._output
        for problem in self._problems:
            job.partial_failures.append(problem.status())
        if self._start_time:
            job.resources_consumed.replica_hours = self._count * (time.monotonic() - self._start_time) / 3600

    def run(self) -> Ending:
        """Predict all instances; raise ApiError if the job fails as a whole."""
        config = self._job.input_config
        paths = batch_inputs.find_files(self._context, config.gcs_source.uris, "batch_prediction_job.input_config")
        as_objects = self._job.instance_config.instance_type == "object"
        source = batch_inputs.read_instances(self._context, paths, config.instances_format, as_objects=as_objects)
        with self._lock:
            if self._stopped:
                return self._stopped
            self._servers = servers = ModelServerPool(self._build_server_spec(), self._context, self._log_lines)
        self._start_time = time.monotonic()
        try:
            servers.wait_until_ready()
            self._on_start()
            self._predict_all(source, servers)
        except ApiError:
            if self._stopped is None:
                raise
        finally:
            servers.end()
        if self._stopped:
            return self._stopped
        if self._failed and not self._succeeded:
            raise ApiError("INTERNAL", f"All {self._failed} instances failed. {self._errors.most_common(1)[0][0]}")
        return Ending("SUCCEEDED")

    def _build_server_spec(self) -> ModelServerSpec:
        model = models.find_version(self._context, f"{self._job.model}@{self._job.model_version_id}")
        machine = self._job.dedicated_resources.machine_spec
        return ModelServerSpec(
            self._job.name,
            self._id,
            model,
            models.get_storage_uri(self._context, model),
            self._count,
            machine,
            self._directory,
            self._context.settings,
        )

    def _log_lines(self, lines: Sequence[str], severity: str, replica: str) -> None:
        _, project, _, region, _, number = self._job.name.split("/")
        self._context.logs.write_lines(
            lines,
            job=number,
            task=f"workerpool0-{replica.rpartition('-')[2]}",
            project=project,
            region=region,
            severity=severity,
        )

    def _predict_all(self, source: Iterator[Any], servers: ModelServerPool) -> None:
        """Predict all instances with one thread per replica and publish the finished result files."""
        unfinished = self._directory / "results"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        names = [f"prediction.results-{index:05}-of-{self._count:05}" for index in range(self._count)]
        errors: list[BaseException] = []
        with ExitStack() as stack:
            result_files = [stack.enter_context((unfinished / name).open("w", encoding="utf-8")) for name in names]

            def run_worker(file: IO[str]) -> None:
                try:
                    self._predict_batches(source, servers, file)
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=run_worker, args=(file,), daemon=True) for file in result_files]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        lines = [f"{(reason, count)!r}\n" for reason, count in self._errors.most_common()]
        (unfinished / "prediction.errors_stats-00000-of-00001").write_text("".join(lines), encoding="utf-8")
        self._publish_results(unfinished, servers.server_spec.model.display_name)
        if errors:
            raise errors[0]

    def _publish_results(self, unfinished: Path, model: str) -> None:
        name = re.sub(r"[^\w-]+", "-", model)
        prefix = self._job.output_config.gcs_destination.output_uri_prefix.rstrip("/")
        while True:
            now = datetime.now(UTC)
            timestamp = f"{now:%Y_%m_%dT%H_%M_%S}_{now.microsecond // 1000:03}Z"
            self._output = f"{prefix}/prediction-{name}-{timestamp}"
            target = self._context.resolve_uri(self._output)
            try:
                target.mkdir(parents=True)
                break
            except FileExistsError:  # another job finished in the same millisecond
                continue
        for path in sorted(unfinished.iterdir()):
            shutil.move(path, target / path.name)
        unfinished.rmdir()

    def _predict_batches(self, source: Iterator[Any], servers: ModelServerPool, file: IO[str]) -> None:
        size = self._job.manual_batch_tuning_parameters.batch_size or BATCH
        parameters = {}
        if self._job.HasField("model_parameters"):
            parameters = {"parameters": as_dict(self._job.model_parameters)}
        while not self._stopped:
            with self._lock:
                batch = list(islice(source, size))
            if not batch:
                return
            valid = [instance for instance in batch if not isinstance(instance, InvalidInstance)]
            for instance in batch:
                if isinstance(instance, InvalidInstance):
                    text = f"{instance.reason} Got: {instance.line[:200]}"
                    self._count_failure(1, ApiError("INVALID_ARGUMENT", text))
            if valid:
                self._predict_batch(valid, parameters, servers, file)

    def _predict_batch(
        self, batch: Sequence[Any], parameters: dict[str, Any], servers: ModelServerPool, file: IO[str]
    ) -> None:
        """Predict one batch and write its results; a failed request counts as a failure of every instance in it."""
        body = json.dumps({"instances": batch, **parameters}, ensure_ascii=False).encode()
        try:
            predictions = self._post_with_retries(body, servers)
        except ApiError as problem:
            if not self._stopped:
                self._count_failure(len(batch), problem)
            return
        if len(predictions) != len(batch):
            text = f"The server answered {len(batch)} instances with {len(predictions)} predictions."
            self._count_failure(len(batch), ApiError("INTERNAL", text))
            return
        for instance, prediction in zip(batch, predictions, strict=True):
            file.write(json.dumps({"instance": instance, "prediction": prediction}, ensure_ascii=False) + "\n")
        with self._lock:
            self._succeeded += len(batch)

    def _post_with_retries(self, body: bytes, servers: ModelServerPool) -> list[Any]:
        """Return the predictions for a request; retry only if the server is UNAVAILABLE."""
        attempt = 1
        while True:
            try:
                answer = servers.send_request(
                    servers.server_spec.predict_route, body, "application/json", timeout_s=LONGEST_S
                )
                predictions: list[Any] = parse_predictions(answer)["predictions"]
                return predictions
            except ApiError as problem:
                if problem.code != "UNAVAILABLE" or self._stopped or attempt == ATTEMPTS:
                    raise
            attempt += 1

    def _count_failure(self, count: int, problem: ApiError) -> None:
        with self._lock:
            self._failed += count
            self._errors[f"Post request fails. Cannot get predictions. Error: {problem.message}"] += count
            if len(self._problems) < MOST_PARTIAL_FAILURES:
                self._problems.append(problem)
