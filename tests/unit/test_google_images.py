"""Whether Tagline fits into one of Google's images."""

from datetime import date

import pytest

from tagline.images import google_images

PLACE = "us-docker.pkg.dev/vertex-ai/training"
NEWEST = f"{PLACE}/pytorch-gpu.2-4.py310:latest"


def test_the_newest_of_googles_images_does_not_fit_for_every_reason_there_is() -> None:
    python, torch = google_images.find_minimum_versions()
    before, after = (google_images.find_misfits(NEWEST, date(2026, 7, day)) for day in (24, 25))
    assert [each.partition(";")[0] for each in before] == [
        f"pytorch-gpu.2-4.py310 has Python 3.10, and Tagline needs {python}",
        f"pytorch-gpu.2-4.py310 has torch 2.4, and Tagline needs {torch}",
    ]
    assert after[:2] == before
    assert after[2].startswith("pytorch-gpu.2-4.py310 has not been available since 2026-07-24;")
    assert all(each.endswith('; use our own image: vertex.image = ""') for each in after)


@pytest.mark.parametrize("name", google_images.ENDS)
def test_every_name_in_the_table_is_read(name: str) -> None:
    found = google_images.describe_image(f"europe-docker.pkg.dev/vertex-ai/training/{name}:latest")
    assert found is not None
    assert (found.name, found.ends) == (name, google_images.ENDS[name])
    assert found.python == ("3.10" if name.endswith(".py310") else "3.7")
    assert google_images.find_misfits(f"{PLACE}/{name}", date(2026, 11, 1))


def test_one_that_is_newer_than_the_table_is_judged_by_its_name() -> None:
    assert google_images.find_misfits(f"{PLACE}/pytorch-gpu.2-9.py312:latest", date(2027, 1, 1), gpu=True) == []
    (wrong,) = google_images.find_misfits(f"{PLACE}/pytorch-xla.2-9.py312:latest", date(2027, 1, 1), gpu=True)
    assert "is for CPUs, and would leave the machine's GPUs idle" in wrong
    assert google_images.find_misfits(f"{PLACE}/pytorch-xla.2-9.py312:latest", date(2027, 1, 1), gpu=False) == []


@pytest.mark.parametrize("name", ["tf-gpu.2-17.py310:latest", "pytorch-gpu.latest", "xgboost-cpu.2-1:latest"])
def test_one_without_torch_that_we_know_of_is_refused(name: str) -> None:
    (wrong,) = google_images.find_misfits(f"{PLACE}/{name}", date(2026, 1, 1))
    assert "is none of Google's images with PyTorch" in wrong


def test_only_googles_are_prebuilt() -> None:
    assert google_images.is_prebuilt(NEWEST)
    for image in (
        "",
        "us-docker.pkg.dev/vertex-ai/prediction/pytorch-gpu.2-4:latest",
        "me/vertex-ai/training/x:1",
        "us-docker.pkg.dev/me/training/pytorch-gpu.2-4.py310:latest",
    ):
        assert not google_images.is_prebuilt(image)
