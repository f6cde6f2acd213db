"""Fifty jobs of three replicas submitted at once, five at a time: how long they take, and what they leave behind."""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from rehearsing import custom_job, python, rehearsing

COLLECTION = "/v1/projects/bench/locations/us-central1/customJobs"
PRIMARY = "import os; print(os.environ['CLUSTER_SPEC'])"
WORKER = """
import json, os, socket, time
spec = json.loads(os.environ["CLUSTER_SPEC"])
host, port = spec["cluster"][spec["task"]["type"]][spec["task"]["index"]].split(":")
server = socket.create_server((host, int(port)))
time.sleep(600)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50)
    count = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as directory, rehearsing(Path(directory) / "here") as rehearsal:
        begun = time.monotonic()
        spec = custom_job(python(PRIMARY), python(WORKER, replicas=2))
        with ThreadPoolExecutor(count) as pool:
            answers = list(pool.map(lambda _: rehearsal.http("POST", COLLECTION, spec)[0], range(count)))
        assert answers == [200] * count
        submitted_s = time.monotonic() - begun
        most = 0
        while True:
            jobs = rehearsal.http("GET", COLLECTION)[1]["customJobs"]
            states = [job["state"].removeprefix("JOB_STATE_") for job in jobs]
            most = max(most, sum(state in ("PENDING", "RUNNING") for state in states))
            if all(state in ("SUCCEEDED", "FAILED", "CANCELLED") for state in states):
                break
            time.sleep(0.05)
        ended_s = time.monotonic() - begun
        left = rehearsal.processes()
        ports = sum(":08AE " in line for line in Path("/proc/net/tcp").read_text().splitlines())
        print(f"ready in {rehearsal.ready_s:.2f} s")
        print(f"{count} jobs of 3 replicas: submitted in {submitted_s:.2f} s, ended in {ended_s:.2f} s")
        print(f"succeeded {states.count('SUCCEEDED')}, at most {most} at a time")
        print(f"left behind: {len(left)} processes, {ports} sockets on port 2222")
        if states != ["SUCCEEDED"] * count or most > 5 or left or ports:
            sys.exit(1)


if __name__ == "__main__":
    main()
