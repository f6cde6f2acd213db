"""Google's packages for Node against the rehearsal, unmodified; TAGLINE_NODE=1 installs them, which takes its time."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rehearsing import IMAGE, rehearsing

PACKAGES = ("@google-cloud/storage@7.22.0", "@google-cloud/aiplatform@6.11.0")


@pytest.mark.skipif("TAGLINE_NODE" not in os.environ, reason="TAGLINE_NODE=1 asks for npm and the network")
def test_storage_and_jobs_from_node(tmp_path: Path) -> None:
    install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(tmp_path), *PACKAGES]
    subprocess.run(install, check=True, timeout=600)
    shutil.copy(Path(__file__).with_name("rehearsal_client.js"), tmp_path)
    with rehearsing(tmp_path / "here", "--grace", "1") as rehearsal:
        metadata = rehearsal.address.removeprefix("http://")
        environment = os.environ | {"GCE_METADATA_HOST": metadata, "GCE_METADATA_IP": metadata}
        ended = subprocess.run(
            ["node", "rehearsal_client.js", rehearsal.keyed_address, rehearsal.facts["grpc"], IMAGE, rehearsal.token],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["objects"] == {
        "listed": [["a/large.bin", 3_000_000], ["a/small.txt", 5]],
        "both": "hellohello",
        "large": True,
        "overwritten": 412,
        "missing": 404,
    }
    job = {"state": "JOB_STATE_SUCCEEDED", "listed": True}
    assert found["rest"] == job | {"unnamed": 400, "gone": 404}
    assert found["grpc"] == job | {"unnamed": 3, "gone": 5}
