"""How an emulator is run: ports, limits, and the images that run as processes."""

import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vertex_rehearsal.errors import InvalidSettings


@dataclass(frozen=True)
class ProcessImage:
    """Images that need no container runtime: a local command replaces their content."""

    prefix: str
    """The prefix of the last part of an image's name."""
    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    """Default arguments, if the request has no command or arguments; $(NAME) is an environment variable."""

    def matches(self, image: str) -> bool:
        """Whether an image is one of these."""
        return image.rpartition("/")[2].startswith(self.prefix)


def parse_process_images(entrypoints: Iterable[str], arguments: Iterable[str]) -> tuple[ProcessImage, ...]:
    """Read `PREFIX=COMMAND` options, and `PREFIX=ARGUMENTS` for some of their prefixes."""
    commands = dict(_split_option("--process-image", option) for option in entrypoints)
    defaults = dict(_split_option("--process-image-args", option) for option in arguments)
    if unknown := sorted(defaults.keys() - commands.keys()):
        raise InvalidSettings(
            f"--process-image-args {unknown[0]}: no --process-image has this prefix",
            hint=f"--process-image '{unknown[0]}=COMMAND'",
        )
    return tuple(
        ProcessImage(prefix, (_find_program(words[0]), *words[1:]), defaults.get(prefix, ()))
        for prefix, words in commands.items()
    )


def _split_option(option: str, value: str) -> tuple[str, tuple[str, ...]]:
    prefix, _, command = value.partition("=")
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise InvalidSettings(f"{option} {value}: {error}") from error
    if not prefix or not words:
        raise InvalidSettings(f"{option} {value}: not of the form PREFIX=COMMAND", hint=f"{option} 'my-=python -m my'")
    return prefix, words


def _find_program(word: str) -> str:
    return sys.executable if word in ("python", "python3") else word


@dataclass(frozen=True)
class Settings:
    """How an emulator is run."""

    directory: Path = Path("rehearsal")
    port: int = 0
    grpc_port: int = 0
    """0 for any free port."""
    tls: bool = False
    is_open: bool = False
    """Whether every local process may call the emulator without a token."""
    token: str = ""
    """Of this start; the app keeps it."""
    at_once: int = 5
    """Number of jobs that run at the same time; others are queued."""
    strict: bool = False
    grace_s: float = 30.0
    """Grace period between SIGTERM and SIGKILL."""
    ready_s: float = 600.0
    """Time within which a model's server must become healthy."""
    sets_torch_variables: bool = True
    """Whether replicas get RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""
    process_images: tuple[ProcessImage, ...] = ()

    def process_image(self, image: str) -> ProcessImage | None:
        """The command that stands for an image; None where it takes a container runtime."""
        return next((known for known in self.process_images if known.matches(image)), None)
