"""TorchServe: an archive of the bundle, a handler that answers in Vertex AI's form, and the server's settings."""

import json
from pathlib import Path
from shlex import quote
from typing import ClassVar

from tagline.exports import SIGNATURE
from tagline.images import wheels
from tagline.serving.protocol import Limits
from tagline.storage import atomic, hashing

MODEL = "tagline"
ARCHIVE = f"{MODEL}.mar"
CONFIG = "config.properties"
HANDLER = "tagline_handler.py"
REQUIREMENTS = "requirements.txt"
BATCH = 32
"""The batch size; TorchServe waits up to `maxBatchDelay` milliseconds to fill a batch."""

SETTINGS = f"""{SIGNATURE}; start in this directory:
# torchserve --start --foreground --ncs --disable-token-auth --ts-config {CONFIG}
inference_address=http://127.0.0.1:8080
management_address=http://127.0.0.1:8081
metrics_address=http://127.0.0.1:8082
model_store=.
load_models={ARCHIVE}
enable_model_api=true
install_py_dep_per_model=true
default_response_timeout=120
job_queue_size=1000
max_request_size={Limits().body_bytes}
"""
MODEL_SETTINGS = f"minWorkers: 1\nmaxWorkers: 1\nbatchSize: {BATCH}\nmaxBatchDelay: 5\nresponseTimeout: 120\n"


class TorchServe:
    """The export `torchserve`."""

    signed: ClassVar[str] = CONFIG

    def pack(self, directory: Path) -> None:
        """Write the archive, with everything but what pip installs; the bundle is moved into it."""
        wheel = wheels.build_wheel()
        requirements = ["--find-links .", f"{wheels.NAME}=={wheel.version}", *wheels.list_pins()]
        manifest = {
            "runtime": "python",
            "model": {
                "modelName": MODEL,
                "modelVersion": "1.0",
                "handler": HANDLER,
                "requirementsFile": REQUIREMENTS,
                "configFile": "model-config.yaml",
            },
            "archiverVersion": "0.12.0",
        }
        files: dict[str, bytes | Path] = {
            "MAR-INF/MANIFEST.json": json.dumps(manifest, indent=2).encode(),
            HANDLER: Path(__file__).with_name("torchserve_handler.py"),
            REQUIREMENTS: "".join(f"{line}\n" for line in requirements).encode(),
            "model-config.yaml": MODEL_SETTINGS.encode(),
            wheel.file: wheel.content,
        }
        bundle = directory / "bundle"
        files |= {path.relative_to(directory).as_posix(): path for path in hashing.files_below(bundle)}
        with (directory / ARCHIVE).open("wb") as target:
            wheels.write_zip(files, target)
        atomic.remove_directory(bundle)
        (directory / CONFIG).write_text(SETTINGS, "utf-8")

    def deliver(self, directory: Path) -> dict[str, str]:
        """Return the archive's path and the command that starts the server."""
        start = "torchserve --start --foreground --ncs --disable-token-auth"
        return {
            "archive": str(directory / ARCHIVE),
            "next": f"cd {quote(str(directory))} && {start} --ts-config {CONFIG}",
        }
