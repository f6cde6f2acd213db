"""The training image: its Dockerfile and the source of torch for each kind of machine, its tag, and why it is built."""

import re
from collections.abc import Callable

import pytest

from tagline.errors import SpecError
from tagline.images import dockerfiles, wheels
from tagline.images.sdist import ExtraPackages

REPOSITORY = dockerfiles.repository_path("demo", "us-central1")
BASE = "python:3.12-slim"
EXTRA = ExtraPackages(("nltk>=3.9",), (("own-1.0-py3-none-any.whl", b"a wheel"),))
Golden = Callable[[str, str], None]


def context(**more: object) -> dockerfiles.BuildContext:
    return dockerfiles.create_training_context(REPOSITORY, extras=("train", "vertex"), **({"base": BASE} | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Dockerfile-training-cpu.txt", {}),
        ("Dockerfile-training-gpu.txt", {"accelerator": "NVIDIA_TESLA_T4"}),
        ("Dockerfile-training-packages.txt", {"extra": EXTRA}),
        ("Dockerfile-training-reduction.txt", {"accelerator": "NVIDIA_TESLA_V100", "reduction_server": True}),
    ],
)
def test_the_dockerfile_of_each_kind(golden: Golden, name: str, more: dict[str, object]) -> None:
    made = context(**more)
    wheel = wheels.build_wheel().file
    text = made.files["Dockerfile"].decode()
    source = [line for line in made.files["torch.txt"].decode().splitlines() if line.startswith(("--", "torch=="))]
    version = re.escape(next(pin for pin in wheels.list_pins(of="torch") if pin.startswith("torch==")))
    shown = "\n".join(["", "# torch.txt, of which:", *(re.sub(version, "torch==VERSION", line) for line in source), ""])
    golden(name, text.replace(wheel, "WHEEL") + shown)
    copied = [line.split()[1] for line in text.splitlines() if line.startswith("COPY ")]
    assert {"Dockerfile", *copied} == set(made.files)


def test_every_package_is_pinned_once_and_torch_is_a_layer_of_its_own() -> None:
    made = context(accelerator="NVIDIA_L4")
    first, second = (made.files[name].decode().splitlines() for name in ("torch.txt", "requirements.txt"))
    pins = [line for line in first + second if not line.startswith("--")]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.+!]+", pin) for pin in pins)
    assert len({pin.partition("==")[0] for pin in pins}) == len(pins)
    wanted = {pin.partition("==")[0] for pin in wheels.list_pins("train", "vertex")}
    assert {pin.partition("==")[0] for pin in pins} == wanted
    assert {"torch", "transformers", "google-cloud-storage"} < wanted
    assert not {"pytest", "spacy", "wandb"} & wanted
    assert {"spacy", "wandb"} < {pin.partition("==")[0] for pin in wheels.list_pins("train", "ulmfit", "track")}


def test_the_tag_changes_with_what_goes_in_and_with_nothing_else() -> None:
    made = context()
    assert re.fullmatch(rf"{re.escape(REPOSITORY)}/tagline-training:[0-9a-f]{{16}}", made.image)
    assert context() == made
    assert context().archive() == made.archive()
    others = [
        context(accelerator="NVIDIA_L4"),
        context(reduction_server=True),
        context(base="python:3.13-slim"),
        context(index=""),
        dockerfiles.create_training_context(REPOSITORY, extras=("train", "vertex", "ulmfit"), base=BASE),
        context(extra=EXTRA),
        context(extra=ExtraPackages(EXTRA.requirements, ((EXTRA.wheels[0][0], b"another"),))),
    ]
    assert len({made.image, *(each.image for each in others)}) == 8
    assert context(extra=ExtraPackages()) == made
    assert context(extra=EXTRA).files["packages.txt"] == b"nltk>=3.9\n/opt/packages/own-1.0-py3-none-any.whl\n"
    elsewhere = dockerfiles.create_training_context(
        dockerfiles.repository_path("example.com:other", "europe-west4"), extras=("train", "vertex")
    )
    assert elsewhere.image.startswith("europe-west4-docker.pkg.dev/example.com/other/tagline/tagline-training:")


@pytest.mark.parametrize(
    ("accelerator", "version", "variant"),
    [
        ("", "2.13.0", "cpu"), ("NVIDIA_TESLA_T4", "2.13.0", "cu126"), ("NVIDIA_TESLA_V100", "2.14.1", "cu126"),
        ("NVIDIA_B200", "2.13.0", ""), ("NVIDIA_L4", "2.15.0", ""), ("", "2.15.0", "cpu"),
    ],
)  # fmt: skip
def test_torch_is_built_for_the_accelerator(accelerator: str, version: str, variant: str) -> None:
    assert dockerfiles.choose_torch_variant(accelerator, version) == variant


def test_an_accelerator_that_torch_has_left_behind_is_refused() -> None:
    with pytest.raises(SpecError, match=r"torch 2\.15\.0 has no build for NVIDIA_TESLA_V100"):
        dockerfiles.choose_torch_variant("NVIDIA_TESLA_V100", "2.15.0")


def test_why_it_is_built_is_a_sentence() -> None:
    made = context()
    facts = dict(made.facts)
    assert dockerfiles.explain_build(made, {}) == f"there is no {made.image} yet"
    assert dockerfiles.explain_build(made, facts) == f"{made.image} has been built before, and is gone"
    before = facts | {"numpy": "2.1", "wandb": "0.31.0"}
    del before["torch"]
    changes = f"numpy changed 2.1 -> {facts['numpy']}, torch {facts['torch']} is new, wandb is gone"
    assert dockerfiles.explain_build(made, before) == f"no image has this tag: {changes}"
    many = dict.fromkeys(facts, "0")
    assert dockerfiles.explain_build(made, many).endswith(f"and {len(facts) - 5} more")
