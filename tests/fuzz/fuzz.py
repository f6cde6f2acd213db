"""Fuzzes one target for a bounded time: python tests/fuzz/fuzz.py TARGET SECONDS.

An input that fails is kept as tests/fuzz/crashes/TARGET-...: from then on it is a case of test_fuzz_targets.py.
"""

import sys
import tempfile
from pathlib import Path

import atheris

HERE = Path(__file__).parent
with atheris.instrument_imports(include=["tagline"]):
    sys.path.insert(0, str(HERE))
    from targets import TARGETS


def main(name: str, seconds: str) -> None:
    (HERE / "crashes").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as grown:
        bounds = [f"-max_total_time={seconds}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=2048", "-verbosity=0"]
        crashes = f"-artifact_prefix={HERE / 'crashes' / name}-"
        arguments = [sys.argv[0], *bounds, crashes, grown, str(HERE / "seeds" / name)]
        atheris.Setup(arguments, TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
