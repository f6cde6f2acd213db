"""Examples that are the same every time, however slow the machine is, and a place where nobody is signed in."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tagline import gcp

settings.register_profile(
    "unit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("unit")


@pytest.fixture
def signed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody is known to Google here, and no client that an earlier test has made is used again."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "REHEARSAL_ADDRESS", "GCE_METADATA_HOST", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name in ("CLOUDSDK_CONFIG", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    gcp._clear_clients()
    yield
    gcp._clear_clients()
