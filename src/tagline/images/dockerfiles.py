"""Container images: Dockerfiles, tags by the hash of the contents, and delivery to the registry."""

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagline import gcp
from tagline.errors import SpecError
from tagline.gcp import cloud_storage
from tagline.images import cloud_build, image_builders, image_registries, wheels
from tagline.images.sdist import ExtraPackages
from tagline.storage import hashing, inputs

NAME = "tagline-serving"
TRAINING = "tagline-training"
REPOSITORY = "tagline"
"""The repository in Artifact Registry to which training images are pushed."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
DIGESTS = {
    "3.11": "sha256:e41613d42d4891e4930f79523f93f81bbc7632584ec65e36ab055f41a800b41e",
    "3.13": "sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285",
    "3.14": "sha256:51dafde81dbdb6ebde285137a295cf18a47ca95234fe388a343719cb97305b3d",
}
"""Digests of Docker's official `python:VERSION-slim` (Debian 13, all platforms), as published in September 2026."""


def pin_base(python: str) -> str:
    """Return the base image for a version of Python: pinned by digest where that is known, else by tag."""
    tagged = f"python:{python}-slim"
    return f"{tagged}@{DIGESTS[python]}" if python in DIGESTS else tagged


BASE = pin_base(PYTHON)
"""The default base. Another needs this Python with venv, and useradd; with reduction servers, Debian."""
PLATFORM = "linux/amd64"
"""The platform of Vertex AI's machines."""
CLOUD_BUILD = "cloud-build"
CHOICES = ("auto", CLOUD_BUILD, *image_builders.COMMANDS)
"""Builders of training images; `auto` is Cloud Build, and builds nothing at a rehearsal."""
PORT = 8080
HEALTH_CHECK = (
    "import os, urllib.request as r; e = os.environ; "
    "r.urlopen('http://127.0.0.1:' + e['AIP_HTTP_PORT'] + e.get('AIP_HEALTH_ROUTE', '/health'), timeout=4)"
)
WHEELS = "https://download.pytorch.org/whl"
OLD_CUDA, NO_OLD_CUDA = "cu126", "2.15"
"""CUDA 12.6 runs on drivers since 525 and on every GPU but Blackwell's; torch has no build for it from this version on
(https://github.com/pytorch/pytorch/issues/190385, July 2026). PyPI's builds are for CUDA 13, which wants driver 580."""
BEFORE_TURING = ("NVIDIA_TESLA_P4", "NVIDIA_TESLA_P100", "NVIDIA_TESLA_V100")
"""Accelerators that CUDA 13 no longer supports."""
BLACKWELL = ("NVIDIA_B200", "NVIDIA_GB200", "NVIDIA_RTX_PRO_6000")
"""Accelerators that CUDA 12.6 does not support."""
DRIVER = """ENV LD_LIBRARY_PATH=/usr/local/nvidia/lib64 \\
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
"""
"""The driver's path on Google's machines, and the settings of NVIDIA's runtime, as in NVIDIA's own images."""
GOOGLE_APT = "https://packages.cloud.google.com/apt"
KEYRING = "/usr/share/keyrings/google-fast-socket.gpg"
REDUCTION_SERVER = f"""RUN apt-get update \\
 && apt-get install --yes --no-install-recommends ca-certificates curl gnupg \\
 && curl --fail --silent --show-error --location --output /tmp/key {GOOGLE_APT}/doc/apt-key.gpg \\
 && gpg --dearmor --output {KEYRING} /tmp/key \\
 && echo "deb [signed-by={KEYRING}] {GOOGLE_APT} google-fast-socket main" > /etc/apt/sources.list.d/google.list \\
 && apt-get update \\
 && apt-get install --yes --no-install-recommends google-reduction-server \\
 && rm -rf /var/lib/apt/lists/* /tmp/key
"""
"""NCCL's plug-in, by https://docs.cloud.google.com/vertex-ai/docs/training/distributed-training (2026)."""


@dataclass(frozen=True)
class BuildContext:
    """The build context of an image, and the image's name, which contains the context's hash."""

    image: str
    files: Mapping[str, bytes]
    facts: Mapping[str, str]
    """Its contents by name: packages with their versions, the base image and so on."""

    def write(self, directory: Path) -> None:
        """Write the context into a directory, for a builder."""
        for name, content in self.files.items():
            (directory / name).write_bytes(content)

    def archive(self) -> bytes:
        """Return the context as a reproducible tar.gz."""
        return wheels.pack_tarball(self.files)


def render_serving_dockerfile(wheel: str, *, base: str, signature: str) -> str:
    """Return the Dockerfile of a server; what changes least comes first, for the layer cache."""
    check_base(base)
    return f"""{signature}: a server of the bundle beside this file. There is no torch in it.
FROM {base}
RUN useradd --system --no-create-home --uid 10001 tagline
COPY requirements.txt /opt/
RUN python3 -m venv /opt/tagline && /opt/tagline/bin/pip install --no-cache-dir --requirement /opt/requirements.txt
COPY {wheel} /opt/
RUN /opt/tagline/bin/pip install --no-cache-dir --no-deps --no-index /opt/{wheel}
COPY bundle /bundle
ENV PATH=/opt/tagline/bin:/usr/local/bin:/usr/bin:/bin AIP_HTTP_PORT={PORT} PYTHONUNBUFFERED=1
EXPOSE {PORT}
USER 10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD {json.dumps(["python3", "-c", HEALTH_CHECK])}
CMD ["tagline", "serve", "/bundle"]
"""


def create_training_context(
    repository: str,
    *,
    extras: tuple[str, ...],
    accelerator: str = "",
    reduction_server: bool = False,
    base: str = BASE,
    index: str | None = None,
    extra: ExtraPackages | None = None,
) -> BuildContext:
    """Create the build context of a training image, without using the network.

    `repository` is its destination, from `repository_path`. `accelerator` is its name in the API, or "" for CPUs; it
    determines the build of torch, unless `index` names another index ("": the default of pip in the base image).
    `extra` is installed beside Tagline's dependencies, whose versions it cannot change.
    """
    check_base(base)
    wheel = wheels.build_wheel()
    torch_pins = wheels.list_pins(of="torch")
    others = [pin for pin in wheels.list_pins(*extras) if pin not in torch_pins]
    torch = next(pin for pin in torch_pins if pin.startswith("torch=="))
    variant = "" if index is not None else choose_torch_variant(accelerator, torch.removeprefix("torch=="))
    source = f"{WHEELS}/{variant}" if variant else index
    torch_lines = [f"--extra-index-url {source}"] if source else []
    torch_lines += [f"{pin}+{variant}" if pin == torch and variant else pin for pin in torch_pins]
    files = {
        "torch.txt": "".join(f"{line}\n" for line in torch_lines).encode(),
        "requirements.txt": "".join(f"{line}\n" for line in others).encode(),
        wheel.file: wheel.content,
    }
    own_wheels = dict(extra.wheels) if extra else {}
    if extra and (extra.requirements or own_wheels):
        lines = [*extra.requirements, *(f"/opt/packages/{name}" for name in own_wheels)]
        files |= {"packages.txt": "".join(f"{line}\n" for line in lines).encode(), **own_wheels}
    text = render_training_dockerfile(
        wheel.file,
        base=base,
        gpu=bool(accelerator),
        reduction_server=reduction_server,
        packages=["packages.txt", *own_wheels] if "packages.txt" in files else (),
    )
    files["Dockerfile"] = text.encode()
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    facts = dict(line.split("==") for line in (*torch_lines, *others) if "==" in line)
    if "packages.txt" in files:
        facts["vertex.packages"] = hashlib.sha256(b"".join([files["packages.txt"], *own_wheels.values()])).hexdigest()[
            :12
        ]
    facts |= {
        "tagline": wheel.version,
        "the base image": base,
        "the source of torch": source or "",
        "the Dockerfile": hashlib.sha256(text.replace(wheel.file, "").encode()).hexdigest()[:12],
    }
    return BuildContext(
        f"{repository}/{TRAINING}:{hashing.combine_hashes(hashes)[:16]}", files, dict(sorted(facts.items()))
    )


def repository_path(project: str, region: str) -> str:
    """Return the repository of a project's training images; domain-scoped projects have the domain in front."""
    return f"{region}-docker.pkg.dev/{project.replace(':', '/')}/{REPOSITORY}"


def choose_torch_variant(accelerator: str, version: str) -> str:
    """Return the build of torch for an accelerator: cpu, cu126, or "" for PyPI's."""
    from packaging.version import Version

    if not accelerator:
        return "cpu"
    if Version(version) < Version(NO_OLD_CUDA):
        return "" if accelerator in BLACKWELL else OLD_CUDA
    if accelerator in BEFORE_TURING:
        hint = f'install an older one here: pip install "torch<{NO_OLD_CUDA}"; or name another vertex.accelerator'
        raise SpecError(f"torch {version} has no build for {accelerator}", hint=hint)
    return ""


def render_training_dockerfile(
    wheel: str, *, base: str, gpu: bool, reduction_server: bool, packages: Sequence[str] = ()
) -> str:
    """Return the Dockerfile of a training; what changes least comes first, for the layer cache.

    `packages` are the files of further packages, their list first.
    """
    pip = "/opt/tagline/bin/pip install --no-cache-dir"
    more = "".join(f"COPY {name} /opt/packages/\n" for name in packages)
    if packages:
        more += f"RUN {pip} --constraint /opt/requirements.txt --requirement /opt/packages/packages.txt\n"
    return f"""# Made by `tagline train`: what runs as a job. CUDA comes with torch, the driver with the machine.
FROM {base}
{REDUCTION_SERVER if reduction_server else ""}\
RUN useradd --system --create-home --home-dir /var/lib/tagline --uid 10001 tagline && python3 -m venv /opt/tagline
COPY torch.txt /opt/
RUN {pip} --requirement /opt/torch.txt
COPY requirements.txt /opt/
RUN {pip} --requirement /opt/requirements.txt
{more}\
COPY {wheel} /opt/
RUN {pip} --no-deps --no-index /opt/{wheel}
{DRIVER if gpu else ""}\
ENV PATH=/opt/tagline/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 USE_TORCH_XLA=0
USER 10001
WORKDIR /var/lib/tagline
ENTRYPOINT ["python3", "-m", "tagline"]
"""


def explain_build(context: BuildContext, before: Mapping[str, str]) -> str:
    """Explain in a sentence why an image is built; `before` are the facts of the last image, if there was one."""
    if not before:
        return f"there is no {context.image} yet"
    if before == context.facts:
        return f"{context.image} has been built before, and is gone"
    changed = []
    for name in sorted({*before, *context.facts}):
        old, new = before.get(name), context.facts.get(name)
        if old != new:
            added, removed = f"{name} {new} is new", f"{name} is gone"
            changed.append(added if old is None else removed if new is None else f"{name} changed {old} -> {new}")
    more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
    return f"no image has this tag: {', '.join(changed[:5])}{more}"


def deliver_image(
    context: BuildContext,
    *,
    project: str,
    region: str,
    bucket: str,
    builder: str = "auto",
    say: Callable[[str], None],
    poll_s: float = cloud_build.POLL_S,
) -> str:
    """Build and push an image unless the registry has it; returns the builder, or "" where nothing was built.

    At a rehearsal, where Tagline's images run as processes, it is built only by a named builder, and not pushed.
    """
    if builder not in CHOICES:
        raise SpecError(f'no builder "{builder}"; there are: {", ".join(CHOICES)}')
    if builder in image_builders.COMMANDS and gcp.find_rehearsal():
        return _build_here(builder, context, say)
    if builder == "auto" and gcp.find_rehearsal():
        return ""
    if image_registries.has_image(context.image):
        return ""
    folder = f"{gcp.SCHEME}{bucket.removeprefix(gcp.SCHEME)}/tagline/images"
    before = _read_last_build(folder)
    say(f"building {context.image}: {explain_build(context, before.get('facts', {}))}")
    if image_registries.create_repository(context.image):
        say(f"made the repository {context.image.rpartition('/')[0]}")
    if builder in image_builders.COMMANDS:
        _build_here(builder, context, say)
        image_builders.push_image(builder, context.image)
    else:
        source = f"{folder}/{context.image.rpartition(':')[2]}.tar.gz"
        _upload_bytes(context.archive(), source)
        cloud_build.build_image(
            context.image,
            source,
            project=project,
            region=region,
            logs=f"{folder}/logs",
            before=before.get("image", ""),
            say=say,
            poll_s=poll_s,
        )
    _upload_bytes(json.dumps({"image": context.image, "facts": dict(context.facts)}).encode(), f"{folder}/last.json")
    return builder if builder in image_builders.COMMANDS else CLOUD_BUILD


def _build_here(name: str, context: BuildContext, say: Callable[[str], None]) -> str:
    if image_builders.has_image(name, context.image):
        return ""
    say(f"building {context.image} with {name}")
    with tempfile.TemporaryDirectory() as directory:
        context.write(Path(directory))
        image_builders.build_image(name, Path(directory), context.image, platform=PLATFORM)
    return name


def check_base(base: str) -> None:
    """Raise SpecError if the name of a base image would break the Dockerfile's line."""
    if (
        not base
        or not inputs.is_utf8(base)
        or any(not character.isprintable() or character == " " for character in base)
    ):
        raise SpecError(f"{base!r} names no image", hint=f"such as {BASE}")


def compute_tag(context: Path) -> str:
    """Return the name of an image, with a hash of its build context."""
    files = hashing.files_below(context)
    hashes = {path.relative_to(context).as_posix(): hashing.hash_file(path) for path in files}
    return f"{NAME}:{hashing.combine_hashes(hashes)[:16]}"


def _read_last_build(place: str) -> dict[str, Any]:
    """Read the name and facts of the last image; {} if there is none."""
    objects = cloud_storage.list_objects(f"{place}/last.json")
    if not objects:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "last.json"
        cloud_storage.download(objects[0], path)
        try:
            return dict(json.loads(path.read_text("utf-8")))
        except ValueError:  # not written by Tagline
            return {}


def _upload_bytes(content: bytes, address: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "content"
        path.write_bytes(content)
        cloud_storage.upload(path, address)
