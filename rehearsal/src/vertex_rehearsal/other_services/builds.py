"""Runs one build, from its source to its images, by podman, docker or buildah, and writes its log."""

import os
import shutil
import subprocess
import tarfile
import threading
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.cloud_storage.errors import StorageError
from vertex_rehearsal.execution import containers, processes
from vertex_rehearsal.execution.processes import MARK
from vertex_rehearsal.other_services.build_logs import BuildLog
from vertex_rehearsal.other_services.build_specs import parse_duration
from vertex_rehearsal.project.project_file import IMAGE

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context
    from vertex_rehearsal.other_services.artifact_registry import ArtifactRegistry

GRACE_S = 10.0
"""Grace period for a builder to clean up."""
NO_BUILDER = "Nothing can be built here: neither podman, docker nor buildah works on this machine."


@dataclass(frozen=True)
class BuildOutcome:
    """The outcome of a build."""

    status: str
    detail: str = ""
    failure: str = ""
    """The failure type of FailureInfo."""
    results: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[Mapping[str, Any]] = ()


class _BuildFailed(Exception):
    """The build cannot continue."""

    def __init__(self, detail: str, failure: str = "USER_BUILD_STEP", status: str = "FAILURE") -> None:
        super().__init__(detail)
        self.outcome = BuildOutcome(status, detail, failure)


class BuildRunner:
    """Runs a build; `run_build` blocks, `stop` may be called from any other thread."""

    def __init__(self, build: Mapping[str, Any], context: "Context", registry: "ArtifactRegistry") -> None:
        self.name = str(build["name"])
        self._build = build
        self._context = context
        self._registry = registry
        self._directory = context.settings.directory / "builds" / build["id"]
        self._mark = context.build_mark("builds", build["id"])
        self._stopped = threading.Event()
        self._deadline = 0.0

    def stop(self) -> None:
        """Stop the build."""
        self._stopped.set()

    def run_build(self) -> BuildOutcome:
        """Run all steps and return the outcome; only images and the log remain."""
        self._deadline = time.monotonic() + parse_duration(self._build["timeout"], "timeout")
        workspace = self._directory / "workspace"
        workspace.mkdir(parents=True)
        steps = [dict(step) for step in self._build["steps"]]
        with BuildLog(self._context, self._build) as log:
            log.write_lines(f'starting build "{self._build["id"]}"')
            try:
                if not containers.find_builder():
                    raise _BuildFailed(NO_BUILDER)
                self._fetch_source(workspace, log)
                for number, step in enumerate(steps):
                    self._run_step(number, step, workspace, log)
                outcome = BuildOutcome("SUCCESS", results={"images": self._push_images(log)}, steps=steps)
                log.write_lines("DONE")
            except _BuildFailed as error:
                log.write_lines(f"ERROR: {error.outcome.detail}")
                outcome = BuildOutcome(error.outcome.status, error.outcome.detail, error.outcome.failure, steps=steps)
            finally:
                processes.end_processes([], self._mark)
                shutil.rmtree(self._directory, ignore_errors=True)
        return outcome

    def _fetch_source(self, workspace: Path, log: BuildLog) -> None:
        source = self._build.get("source", {}).get("storageSource")
        if source is None:
            return
        address = f"gs://{source['bucket']}/{source['object']}"
        log.write_lines(f"FETCHSOURCE\nFetching storage object: {address}")
        generation = int(source["generation"]) if source.get("generation") else None
        try:
            _, file = self._context.store.read(source["bucket"], source["object"], generation=generation)
            with file:
                if source["object"].endswith(".zip"):
                    zipfile.ZipFile(file).extractall(workspace)  # noqa: S202 - it strips what leads outside
                else:
                    with tarfile.open(fileobj=file, mode="r:gz") as archive:
                        archive.extractall(workspace, filter="data")
        except StorageError as error:
            raise _BuildFailed(f"could not fetch {address}: {error.message}", "FETCH_SOURCE_FAILED") from error
        except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
            raise _BuildFailed(f"could not unpack {address}: {error}", "FETCH_SOURCE_FAILED") from error

    def _run_step(self, number: int, step: dict[str, Any], workspace: Path, log: BuildLog) -> None:
        """Run a step and record its status in it."""
        command, *rest = step["args"]
        label = f"Step #{number}" + (f' - "{step["id"]}"' if step.get("id") else "")
        log.write_lines(f"Starting {label}")
        if command == "push":
            step["status"] = "FAILURE"
            for image in [word for word in rest if not word.startswith("-")]:
                self._push_image(image, log)
            step["status"] = "SUCCESS"
            return
        directory = workspace / step.get("dir", "")
        if not directory.is_dir():
            raise _BuildFailed(f'build step {number}: the source has no directory "{step["dir"]}"')
        limit_s = parse_duration(step["timeout"], "timeout") if step.get("timeout") else float("inf")
        code = self._run_command(
            _build_arguments(command, rest),
            directory,
            step["env"],
            log,
            deadline=min(self._deadline, time.monotonic() + limit_s),
        )
        step |= {"status": "SUCCESS" if code == 0 else "FAILURE", "exitCode": code}
        if code:
            raise _BuildFailed(f'build step {number} "{step["name"]}" failed: step exited with non-zero status: {code}')
        log.write_lines(f"Finished {label}")

    def _run_command(
        self, words: list[str], directory: Path, variables: Sequence[str], log: BuildLog, *, deadline: float
    ) -> int:
        """Run a command, stream its output to the log, and return its exit code."""
        variables_by_name = dict(variable.split("=", 1) for variable in variables)
        process = subprocess.Popen(
            words,
            cwd=directory,
            env={**os.environ, **variables_by_name, MARK: self._mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        processes.brand_process(process.pid, self._mark)  # containers inherit the mark
        assert process.stdout is not None
        watcher = threading.Thread(target=self._watch_process, args=(process, deadline), daemon=True)
        watcher.start()
        for lines in processes.read_lines(process.stdout):
            log.write_lines(*lines)
        code = process.wait()
        watcher.join()
        if self._stopped.is_set():
            raise _BuildFailed("The build was stopped.", "", "CANCELLED")
        if time.monotonic() >= deadline:
            raise _BuildFailed("The build took longer than its timeout.", "", "TIMEOUT")
        return code

    def _watch_process(self, process: "subprocess.Popen[bytes]", deadline: float) -> None:
        """Terminate a process when the build is stopped or its time is up."""
        while process.poll() is None:
            if self._stopped.wait(min(0.2, max(0.0, deadline - time.monotonic()))) or time.monotonic() >= deadline:
                # A builder cleans up after itself if only the step that it runs is terminated.
                for pid in processes.find_by_mark(self._mark) - {process.pid} or {process.pid}:
                    with suppress(ProcessLookupError):
                        os.kill(pid, SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_S)
                processes.end_processes([process.pid], self._mark)
                return

    def _push_images(self, log: BuildLog) -> list[dict[str, Any]]:
        """Check that the images of the build exist by now, and return them with their digests."""
        for image in self._build["images"]:
            self._push_image(image, log)
        local = {local_image.name: local_image for local_image in containers.list_images()}
        return [{"name": image, "digest": local[_add_default_tag(image)].digest} for image in self._build["images"]]

    def _push_image(self, image: str, log: BuildLog) -> None:
        if _add_default_tag(image) not in {local_image.name for local_image in containers.list_images()}:
            text = f'An image does not exist locally with the tag: "{image}"'
            raise _BuildFailed(text, "PUSH_IMAGE_NOT_FOUND")
        if match := IMAGE.fullmatch(_add_default_tag(image)):
            location, project, repository = match.groups()[:3]
            if not self._registry.find_repository(project, location, repository):
                text = f'name unknown: Repository "{repository}" not found in {location} of project {project}'
                raise _BuildFailed(f"push {image}: {text}", "PUSH_FAILED")
        log.write_lines(f"Pushing {image}: it stays on this machine, where the rehearsal's jobs find it.")


def _add_default_tag(image: str) -> str:
    return image if ":" in image.rpartition("/")[2] else f"{image}:latest"


def _build_arguments(command: str, rest: list[str]) -> list[str]:
    """Return a docker command for the builder that is installed; images are in docker format, for health checks."""
    builder = containers.find_builder()
    if command != "build" or Path(builder).name == "docker":
        return [builder, command, *rest]
    remaining, words = iter(rest), []
    for word in remaining:
        if word == "--cache-from":  # podman and buildah take no tag here, and use local layers anyway
            next(remaining, "")
        elif not word.startswith("--cache-from="):
            words.append(word)
    return [builder, "build", "--format", "docker", *words]
