"""A training image that is really built, and a job of it that really runs as a container; see `make training-image`.

It needs podman or docker, and an image to build on: it runs only where a variable names that.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagline import gcp
from tagline.gcp import cloud_storage
from tagline.images import dockerfiles
from tagline.jobs import emulator

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import ENDED, PARENT, Rehearsal, rehearsing, until

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
BASE = os.environ.get("TAGLINE_TRAINING_BASE", "")
"""An image with Python in it; one of localhost/ has packages for its pip, torch for CPUs among them."""
INDEX = "" if BASE.startswith("localhost/") else None
"""An image of this machine's own brings packages with it; another gets torch from where PyTorch keeps it."""
ENGINE = next((name for name in ("podman", "docker") if shutil.which(name)), "")
SMALL = (
    "model.family=encoder", "model.max_tokens=32", "data.fraction=0.1", "training.epochs=1", "training.baseline=false",
    "training.export=false", "--json",
)  # fmt: skip

pytestmark = [
    pytest.mark.skipif(not BASE, reason="TAGLINE_TRAINING_BASE names no image to build on"),
    pytest.mark.skipif(not ENGINE, reason="there is neither podman nor docker"),
]


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with (
        rehearsing(tmp_path_factory.mktemp("rehearsal"), *emulator.start_options()) as running,
        gcp.use_rehearsal(running.address, running.token),
    ):
        running.http("POST", "/storage/v1/b?project=demo", {"name": "demo-data"})
        cloud_storage.upload(SUPPORT / "messages.csv", "gs://demo-data/messages.csv")
        yield running


@pytest.fixture(scope="module")
def image(rehearsal: Rehearsal) -> Iterator[str]:
    """Built by the Cloud Build of the rehearsal, from an archive in a bucket."""
    context = dockerfiles.create_training_context(
        dockerfiles.repository_path("demo", "us-central1"), extras=("train", "vertex"), base=BASE, index=INDEX
    )
    said: list[str] = []
    place = {"project": "demo", "region": "us-central1", "bucket": "demo-data"}
    assert (
        dockerfiles.deliver_image(context, **place, builder="cloud-build", say=said.append, poll_s=0.2) == "cloud-build"
    )
    assert said[0] == f"building {context.image}: there is no {context.image} yet"
    assert dockerfiles.deliver_image(context, **place, builder="cloud-build", say=said.append) == ""  # it is there
    assert dockerfiles.deliver_image(context, **place, builder=ENGINE, say=said.append) == ""
    yield context.image
    subprocess.run([ENGINE, "rmi", context.image], check=True, stdout=subprocess.DEVNULL)


def test_a_job_of_the_image_learns_what_is_learned_here(rehearsal: Rehearsal, image: str, tmp_path: Path) -> None:
    pool = {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "container_spec": {"image_uri": image, "args": ["train", "gs://demo-data/messages.csv", *SMALL]},
    }
    jobs = gcp.vertex_client("JobServiceClient", "us-central1")
    job = jobs.create_custom_job(
        parent=PARENT, custom_job={"display_name": "an image", "job_spec": {"worker_pool_specs": [pool]}}
    )
    ended = until(lambda: (now := rehearsal.job(job.name))["state"] in ENDED and now, "the job to end", patience_s=600)
    assert ended["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(job.name)
    printed = rehearsal.entries(job.name, 'AND severity="INFO"')
    lines = [str(entry["jsonPayload"].get("message")) for entry in printed if "jsonPayload" in entry]
    assert {"{", "}"} < set(lines), lines
    there = json.loads("\n".join(lines[lines.index("{") : len(lines) - lines[::-1].index("}")]))
    words = ["train", str(SUPPORT / "messages.csv"), *SMALL, "--runs", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "tagline", *words], check=True, capture_output=True, text=True)
    figures = [found["report"]["test"] for found in (there, json.loads(done.stdout))]
    numbers = [{name: each for name, each in found.items() if isinstance(each, float)} for found in figures]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-4)  # the same, but for sums in another order
    assert len(numbers[0]) > 5


def test_the_image_has_no_root_and_no_xla(image: str) -> None:
    code = (
        "import os, torch; print(os.getuid(), os.environ['USE_TORCH_XLA'], torch.version.cuda, os.access('.', os.W_OK))"
    )
    asked = [ENGINE, "run", "--rm", "--network=host", "--entrypoint", "python3", image, "-c", code]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["10001", "0", "None", "True"]
