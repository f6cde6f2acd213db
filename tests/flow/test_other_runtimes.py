"""A real TorchServe with an archive of ours, and a real container of our image; see `make torchserve` and `make image`.

Both need what few machines have, so that each runs only where a variable names it.
"""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline.exports import export, pack
from tagline.prediction.bundle import Bundle

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
TORCHSERVE = os.environ.get("TAGLINE_TORCHSERVE", "")
"""The Python of an environment that TorchServe is installed in."""
IMAGE_BASE = os.environ.get("TAGLINE_IMAGE_BASE", "")
"""An image with Python in it that podman has, or can fetch."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tagline.Run:
    """A fine-tuned MiniLM in the form that is served."""
    made = tagline.train(
        SUPPORT / "messages.csv",
        "model.family=encoder",
        "training.epochs=1",
        "training.baseline=false",
        runs=tmp_path_factory.mktemp("runs"),
    )
    if not Bundle.load(made.bundle).manifest.runtime:
        export.export(made.bundle, "onnx", measured=made.predictions())
    return made


@pytest.mark.skipif(not TORCHSERVE, reason="TAGLINE_TORCHSERVE names no Python with TorchServe")
def test_torchserve_gives_the_answers_that_were_measured(run: tagline.Run, tmp_path: Path) -> None:
    pack.pack(run.bundle, "torchserve", output=tmp_path / "out", measured=run.predictions())
    with torchserve(tmp_path / "out") as address:
        check(run, f"{address}/predictions/tagline")


@pytest.mark.skipif(not IMAGE_BASE, reason="TAGLINE_IMAGE_BASE names no image to build on")
def test_a_container_of_the_image_gives_the_answers_that_were_measured(run: tagline.Run, tmp_path: Path) -> None:
    found = pack.pack(run.bundle, "image", output=tmp_path / "out", base=IMAGE_BASE)
    assert found["built_by"]
    with container(found["image"]) as (address, name):
        check(run, f"{address}/predict")
        code = "import importlib.util as u, os; print(u.find_spec('torch'), os.getuid())"
        assert podman("exec", name, "python3", "-c", code).split() == ["None", "10001"]
        podman("healthcheck", "run", name)
        podman("stop", "--time", "20", name)
        assert podman("inspect", "--format", "{{.State.ExitCode}}", name).strip() == "0"


def check(run: tagline.Run, address: str) -> None:
    """The run's test rows, many in a request and one in each, then what is refused."""
    measured = run.predictions()
    predicted = [each.to_dict() for each in tagline.load(run.bundle).predict([row["text"] for row in measured])]
    status, body = ask(address, {"instances": [row["text"] for row in measured]})
    assert (status, body["predictions"]) == (200, predicted)
    assert [each["label"] for each in predicted] == [row["label"] for row in measured]
    for row in measured[:10]:
        status, body = ask(address, {"instances": [row["text"]]})
        assert (status, body["predictions"][0]["label"]) == (200, row["label"])
    status, body = ask(address, {"instances": [3]})
    assert (status, list(body)) == (400, ["error"])
    assert ask(address, b"{")[0] == 400
    assert ask(address, {"instances": ["still there"]})[0] == 200


def ask(address: str, body: Any) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(address, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@contextmanager
def torchserve(directory: Path) -> Iterator[str]:
    """TorchServe with the settings that were exported, but on ports that are free."""
    ports = free_ports(5)
    settings = (directory / "config.properties").read_text()
    for before, port in zip((8080, 8081, 8082), ports[:3], strict=True):
        settings = settings.replace(f":{before}", f":{port}")
    settings += f"grpc_inference_port={ports[3]}\ngrpc_management_port={ports[4]}\n"
    (directory / "config.properties").write_text(settings)
    binaries = Path(TORCHSERVE).parent
    environment = os.environ | {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "LOG_LOCATION": str(directory / "logs"),
        "METRICS_LOCATION": str(directory / "logs"),
        "TEMP": str(directory),
    }
    command = [
        str(binaries / "torchserve"),
        "--start",
        "--foreground",
        "--ncs",
        "--disable-token-auth",
        "--ts-config",
        "config.properties",
    ]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            address = f"http://127.0.0.1:{ports[0]}"
            wait_for(lambda: ask_get(f"{address}/ping") == {"status": "Healthy"}, process, log)
            yield address
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)


@contextmanager
def container(image: str) -> Iterator[tuple[str, str]]:
    (port,) = free_ports(1)
    name = f"tagline-test-{os.getpid()}"
    podman("run", "--detach", "--name", name, "--network", "host", "--env", f"AIP_HTTP_PORT={port}", image)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(lambda: ask_get(f"{address}/health") == {"status": "ready"})
        yield address, name
    finally:
        podman("rm", "--force", name)
        podman("rmi", image)


def podman(*arguments: str) -> str:
    return subprocess.run(["podman", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def ask_get(address: str) -> Any:
    try:
        with urllib.request.urlopen(address, timeout=10) as response:
            return json.load(response)
    except OSError:
        return None


def wait_for(is_there: Callable[[], bool], process: Any = None, log: Any = None) -> None:
    ends = time.monotonic() + 300
    while not is_there():
        if time.monotonic() > ends or (process is not None and process.poll() is not None):
            if log is not None:
                log.seek(0)
            raise AssertionError(log.read().decode()[-5000:] if log is not None else "it did not come up")
        time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
