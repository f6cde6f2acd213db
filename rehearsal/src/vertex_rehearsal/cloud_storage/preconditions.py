"""Preconditions: what must be true of an object, or of its absence, for a request to go on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from vertex_rehearsal.cloud_storage import errors


class Versioned(Protocol):
    """What a precondition looks at."""

    @property
    def generation(self) -> int: ...
    @property
    def metageneration(self) -> int: ...
    @property
    def etags(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Preconditions:
    """As a request gives them; none of them set lets everything pass."""

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None
    etags_match: tuple[str, ...] = ()
    etags_not_match: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, parameters: Mapping[str, str], *, prefix: str = "if", headers: Mapping[str, str] | None = None
    ) -> "Preconditions":
        """Those of a request's parameters (`ifGenerationMatch`, `ifSourceGenerationMatch`) and of its headers."""

        def read_number(what: str) -> int | None:
            name = prefix + what
            value = parameters.get(name)
            if value is None:
                return None
            if not value.removeprefix("-").isascii() or not value.removeprefix("-").isdigit():
                raise errors.invalid_request(
                    f"Invalid value for '{name}': '{value}' is not a valid integer.", location=name
                )
            return int(value)

        headers = headers or {}
        return cls(
            read_number("GenerationMatch"),
            read_number("GenerationNotMatch"),
            read_number("MetagenerationMatch"),
            read_number("MetagenerationNotMatch"),
            _parse_etags(headers.get("if-match", "")),
            _parse_etags(headers.get("if-none-match", "")),
        )

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> "Preconditions":
        """Those that `asdict` wrote down, after their way through JSON."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in kept.items()
        }
        return cls(**values)

    def check(self, found: Versioned | None, *, reading: bool = False) -> None:
        """Refuse unless all hold; for a reader, one that asks for something else than it has is answered with 304."""
        self._check_matches(found)
        unwanted = errors.not_modified if reading else errors.unmet_precondition
        if self.generation_not_match is not None and (not found or found.generation == self.generation_not_match):
            raise unwanted("ifGenerationNotMatch")
        if self.metageneration_not_match is not None and (
            not found or found.metageneration == self.metageneration_not_match
        ):
            raise unwanted("ifMetagenerationNotMatch")
        if found and self.etags_not_match and _any_match(self.etags_not_match, found):
            raise unwanted("If-None-Match")

    def _check_matches(self, found: Versioned | None) -> None:
        if self.generation_match is not None and self.generation_match != (found.generation if found else 0):
            raise errors.unmet_precondition("ifGenerationMatch")
        if self.metageneration_match is not None and (not found or self.metageneration_match != found.metageneration):
            raise errors.unmet_precondition("ifMetagenerationMatch")
        if self.etags_match and (not found or not _any_match(self.etags_match, found)):
            raise errors.unmet_precondition("If-Match")


ANY = Preconditions()


def _parse_etags(header: str) -> tuple[str, ...]:
    return tuple(part.strip().removeprefix("W/").strip('"') for part in header.split(",") if part.strip())


def _any_match(etags: tuple[str, ...], found: Versioned) -> bool:
    return "*" in etags or any(etag in etags for etag in found.etags)
