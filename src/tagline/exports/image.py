"""A container image that serves the bundle: Dockerfile and context, built if there is a builder."""

import shlex
from pathlib import Path
from typing import ClassVar

from tagline.exports import SIGNATURE
from tagline.images import dockerfiles, image_builders, wheels

DOCKERFILE = "Dockerfile"


class ServingImage:
    """The export `image`."""

    signed: ClassVar[str] = DOCKERFILE

    def __init__(self, *, base: str = dockerfiles.BASE, build: bool = True) -> None:
        dockerfiles.check_base(base)
        self._base = base
        self._build = build

    def pack(self, directory: Path) -> None:
        """Write the build context: bundle, wheel and versions, each a layer of its own."""
        wheel = wheels.build_wheel()
        (directory / wheel.file).write_bytes(wheel.content)
        (directory / "requirements.txt").write_text("".join(f"{line}\n" for line in wheels.list_pins()), "utf-8")
        text = dockerfiles.render_serving_dockerfile(wheel.file, base=self._base, signature=SIGNATURE)
        (directory / DOCKERFILE).write_text(text, "utf-8")

    def deliver(self, directory: Path) -> dict[str, str]:
        """Build the image, if possible; return its name and builder, or the command that builds it."""
        image = dockerfiles.compute_tag(directory)
        builder = image_builders.find_builder() if self._build else ""
        if not builder:
            return {
                "image": image,
                "built_by": "",
                "next": shlex.join(image_builders.build_command("docker", directory, image)),
            }
        image_builders.build_image(builder, directory, image)
        run = "podman" if builder == "buildah" else builder
        return {
            "image": image,
            "built_by": builder,
            "next": f"{run} run --publish {dockerfiles.PORT}:{dockerfiles.PORT} {image}",
        }
