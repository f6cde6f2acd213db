"""`vertex.packages`: what a job installs beside Tagline."""

import json
from pathlib import Path
from typing import Any

import pytest

from tagline import spec as specs
from tagline.errors import SpecError
from tagline.images import sdist
from tagline.jobs import preflight, prices
from tagline.jobs.launchers import Job
from tagline.jobs.launchers.vertex import VertexLauncher

PREBUILT = "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest"
OWN = "europe-west4-docker.pkg.dev/me/images/own:1"


def spec_of(*listed: str, **vertex: Any) -> specs.Spec:
    raw = {
        "data": {"train": "gs://b/a.csv", "text": "t", "labels": "l"},
        "model": {"family": "linear"},
        "vertex": {"bucket": "b", "project": "p", "packages": list(listed), **vertex},
    }
    return specs.parse(raw, where="a test")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own-1.0-py3-none-any.whl").write_bytes(b"a wheel")
    return "own-1.0-py3-none-any.whl"


@pytest.mark.parametrize("wrong", [
    "--index-url https://example.com", "pandas==", "a b", "", "pandas\n--pre", "own.whl", "own-1.0.tar.gz x",
    "pkg @ https://me:hunter2@example.com/pkg.whl#x",
])  # fmt: skip
def test_what_pip_would_not_take_is_refused(wrong: str) -> None:
    with pytest.raises(SpecError, match=r"vertex\.packages") as refused:
        spec_of("pandas>=2", wrong)
    assert "hunter2" not in refused.value.message


def test_a_plan_names_the_packages_and_its_image_has_them(wheel: str) -> None:
    plans = [
        VertexLauncher().plan(Job("name", spec_of(*listed, accelerators=0), "gs://b/tagline/runs", "p"))
        for listed in ((), ("nltk>=3.9", wheel))
    ]
    assert "packages" not in plans[0]
    assert plans[1]["packages"] == ["nltk>=3.9", wheel]
    assert plans[0]["code"]["image"] != plans[1]["code"]["image"]


def test_on_an_image_of_googles_they_come_with_the_package(wheel: str) -> None:
    plan = VertexLauncher().plan(Job("name", spec_of("nltk>=3.9", wheel, image=PREBUILT), "gs://b/tagline/runs", "p"))
    _, own = plan["job"]["jobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]["packageUris"]
    assert own.startswith("gs://b/tagline/packages/")
    assert own.endswith(f"/{wheel}")
    assert "nltk>=3.9" in sdist.build_sdist(("train",), requirements=("nltk>=3.9",)).requirements
    assert json.dumps(plan)  # no bytes in it


def test_what_cannot_be_installed_is_found_before(wheel: str) -> None:
    for spec, told in (
        (spec_of("nltk", image=OWN), "nothing is installed into"),
        (spec_of("gone-1-py3-none-any.whl"), "cannot read gone-1"),
    ):
        with pytest.raises(SpecError, match=told):
            VertexLauncher().plan(Job("name", spec, "gs://b/tagline/runs", "p"))
        found = preflight.check_offline(spec, prices.estimate_price(spec), today=preflight.date(2026, 11, 18))
        assert [each.severity for each in found if each.code == "packages" and told in each.message] == ["error"]
    sound = spec_of("nltk", wheel)
    found = preflight.check_offline(sound, prices.estimate_price(sound), today=preflight.date(2026, 11, 18))
    assert [each for each in found if each.code == "packages"] == []
    assert sdist.find_missing_packages(("no-such-thing>=1", "pydantic", wheel)) == ["no-such-thing", "own"]
