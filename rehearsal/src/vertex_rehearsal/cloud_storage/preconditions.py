"""Preconditions on the generation, metageneration or ETag of a resource, or on its absence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from vertex_rehearsal.cloud_storage import errors


class Versioned(Protocol):
    """A resource that preconditions apply to."""

    @property
    def generation(self) -> int: ...
    @property
    def metageneration(self) -> int: ...
    @property
    def etags(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Preconditions:
    """The preconditions of a request; without any, every request passes."""

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
        """Read the preconditions of parameters (`ifGenerationMatch`, `ifSourceGenerationMatch`) and of headers."""

        def read_number(suffix: str) -> int | None:
            name = prefix + suffix
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
    def from_dict(cls, fields: Mapping[str, Any]) -> "Preconditions":
        """Build preconditions from the output of `asdict` after a JSON round trip."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
        }
        return cls(**values)

    def check(self, resource: Versioned | None, *, reading: bool = False) -> None:
        """Raise unless all hold; for a reader, an unmet not-match condition is answered with 304."""
        self._check_matches(resource)
        build_error = errors.not_modified if reading else errors.unmet_precondition
        if self.generation_not_match is not None and (not resource or resource.generation == self.generation_not_match):
            raise build_error("ifGenerationNotMatch")
        if self.metageneration_not_match is not None and (
            not resource or resource.metageneration == self.metageneration_not_match
        ):
            raise build_error("ifMetagenerationNotMatch")
        if resource and self.etags_not_match and _any_match(self.etags_not_match, resource):
            raise build_error("If-None-Match")

    def _check_matches(self, resource: Versioned | None) -> None:
        if self.generation_match is not None and self.generation_match != (resource.generation if resource else 0):
            raise errors.unmet_precondition("ifGenerationMatch")
        if self.metageneration_match is not None and (
            not resource or self.metageneration_match != resource.metageneration
        ):
            raise errors.unmet_precondition("ifMetagenerationMatch")
        if self.etags_match and (not resource or not _any_match(self.etags_match, resource)):
            raise errors.unmet_precondition("If-Match")


ANY = Preconditions()


def _parse_etags(header: str) -> tuple[str, ...]:
    return tuple(part.strip().removeprefix("W/").strip('"') for part in header.split(",") if part.strip())


def _any_match(etags: tuple[str, ...], resource: Versioned) -> bool:
    return "*" in etags or any(etag in etags for etag in resource.etags)
