"""The emulator by itself: without Tagline, and as the distributions that are built of it."""

import tarfile
import zipfile
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from rehearsing import custom_job, python, rehearsing

ROOT = Path(__file__).parents[1]
WITHOUT = """
import sys
for name in ("tagline", "torch", "onnxruntime", "tokenizers", "transformers", "pyarrow", "sklearn"):
    sys.modules[name] = None  # an import of it fails
from vertex_rehearsal.cli import run
sys.exit(run(sys.argv[1:]))
"""


def test_it_starts_and_runs_a_job_without_tagline(tmp_path: Path) -> None:
    with rehearsing(tmp_path / "here", program=("-c", WITHOUT)) as rehearsal:
        job = rehearsal.run(custom_job(python("print('hello')")))
        assert job["state"] == "JOB_STATE_SUCCEEDED"
        assert "hello" in rehearsal.said(job["name"])


def test_the_distributions_hold_the_facts_about_machines_as_a_file(tmp_path: Path) -> None:
    facts = (ROOT.parent / "src" / "tagline" / "gcp" / "machines.py").read_bytes()
    source = next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path)))
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    [unpacked] = (tmp_path / "unpacked").iterdir()
    for directory in (ROOT, unpacked):  # from the repository, and from the source distribution as pip does
        wheel = next(WheelBuilder(str(directory)).build(directory=str(tmp_path / "dist"), versions=["standard"]))
        with zipfile.ZipFile(wheel) as archive:
            assert archive.read("vertex_rehearsal/machines.py") == facts
            assert "vertex_rehearsal/console/page.html" in archive.namelist()
            assert not [name for name in archive.namelist() if name.startswith("tagline")]
