"""Artifact Registry: repositories that are made, and in them the images of this machine that are named for them."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.execution import containers
from vertex_rehearsal.machines import REGIONS
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.other_services.documents import Documents
from vertex_rehearsal.other_services.methods import RestMethod, ServiceRequest
from vertex_rehearsal.project.project_file import IMAGE

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

LOCATIONS = REGIONS | {"us", "europe", "asia"}
NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
KIND = "type.googleapis.com/google.devtools.artifactregistry.v1."
MEDIA_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
PRESENT = "Those that podman, docker or buildah has here, and those of project.json."
IN = "v1/projects/{project}/locations/{location}/repositories"


@dataclass(frozen=True)
class _TaggedImage:
    """An image with one of its tags."""

    package: str
    tag: str
    digest: str
    size: int


class ArtifactRegistry:
    """The methods of artifactregistry.googleapis.com that tell whether an image is there."""

    METHODS: Sequence[RestMethod] = (
        RestMethod("artifactregistry.projects.locations.repositories.get", "GET", f"{IN}/{{repository}}", "get",
               "artifactregistry.repositories.get"),
        RestMethod("artifactregistry.projects.locations.repositories.list", "GET", IN, "list_repositories",
               "artifactregistry.repositories.list"),
        RestMethod("artifactregistry.projects.locations.repositories.create", "POST", IN, "create",
               "artifactregistry.repositories.create", "Of format DOCKER."),
        RestMethod("artifactregistry.projects.locations.operations.get", "GET",
               "v1/projects/{project}/locations/{location}/operations/{operation}", "get_operation"),
        RestMethod("artifactregistry.projects.locations.repositories.dockerImages.list", "GET",
               f"{IN}/{{repository}}/dockerImages", "list_images", "artifactregistry.dockerimages.list",
               PRESENT),
        RestMethod("artifactregistry.projects.locations.repositories.dockerImages.get", "GET",
               f"{IN}/{{repository}}/dockerImages/{{image=**}}", "get_image", "artifactregistry.dockerimages.get",
               PRESENT),
        RestMethod("artifactregistry.projects.locations.repositories.packages.tags.list", "GET",
               f"{IN}/{{repository}}/packages/{{package}}/tags", "list_tags", "artifactregistry.tags.list",
               PRESENT),
        RestMethod("artifactregistry.projects.locations.repositories.packages.tags.get", "GET",
               f"{IN}/{{repository}}/packages/{{package}}/tags/{{tag}}", "get_tag", "artifactregistry.tags.get",
               PRESENT),
        RestMethod("artifactregistry.projects.locations.repositories.packages.versions.get", "GET",
               f"{IN}/{{repository}}/packages/{{package}}/versions/{{version=**}}", "get_version",
               "artifactregistry.versions.get", PRESENT),
    )  # fmt: skip

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._documents = Documents(context.database)

    def get(self, asked: ServiceRequest) -> Any:
        """A repository."""
        found = self.find_repository(asked["project"], asked["location"], asked["repository"])
        if found is None:
            raise ApiError("NOT_FOUND", "Requested entity was not found.")
        return found

    def find_repository(self, project: str, location: str, name: str) -> dict[str, Any] | None:
        """A repository that was created, or that project.json names."""
        full = f"projects/{project}/locations/{location}/repositories/{name}"
        found = self._documents.find(full)
        return found or (
            _build_repository(full) if f"{location}/{name}" in self._read_project_repositories(project) else None
        )

    def _read_project_repositories(self, project: str) -> set[str]:
        """The repositories of project.json, with those of its images, as REGION/NAME."""
        now = self._context.project.load_current()
        images = (found.groups() for image in now.images if (found := IMAGE.fullmatch(image)))
        return {*now.repositories, *(f"{words[0]}/{words[2]}" for words in images if words[1] == project)}

    def list_repositories(self, asked: ServiceRequest) -> Any:
        """The repositories of a location."""
        parent = f"projects/{asked['project']}/locations/{asked['location']}/repositories"
        made = {found["name"]: found for found in self._documents.list_collection(parent)}
        for given in self._read_project_repositories(asked["project"]):
            location, _, name = given.partition("/")
            if location == asked["location"]:
                made.setdefault(f"{parent}/{name}", _build_repository(f"{parent}/{name}"))
        return asked.build_page([made[name] for name in sorted(made)], "repositories")

    def create(self, asked: ServiceRequest) -> Any:
        """A new repository, by an operation."""
        name, location = asked.get_parameter("repositoryId"), asked["location"]
        if location not in LOCATIONS:
            raise invalid_argument("parent", f'Location "{location}" is not supported.')
        if not NAME.fullmatch(name):
            raise invalid_argument(
                "repository_id", f'Invalid repository ID "{name}": lowercase letters, digits and hyphens.'
            )
        kind = asked.body.get("format")
        if kind not in ("DOCKER", 1):  # the clients for Python write the numbers of names
            raise invalid_argument("repository.format", f"Only repositories of format DOCKER are played, not {kind}.")
        if self.find_repository(asked["project"], location, name):
            raise ApiError("ALREADY_EXISTS", "the repository already exists")
        parent = f"projects/{asked['project']}/locations/{location}"
        made = _build_repository(f"{parent}/repositories/{name}")
        made |= {key: asked.body[key] for key in ("description", "labels", "dockerConfig") if key in asked.body}
        self._documents.add(made["name"], made)
        operation = f"{parent}/operations/{new_id()}"
        begun = {"name": operation, "metadata": {"@type": f"{KIND}OperationMetadata"}}
        self._documents.add(operation, begun | {"done": True, "response": {"@type": f"{KIND}Repository"} | made})
        return begun

    def get_operation(self, asked: ServiceRequest) -> Any:
        """An operation, which is done by now."""
        location = f"projects/{asked['project']}/locations/{asked['location']}"
        return self._documents.get(f"{location}/operations/{asked['operation']}")

    def list_images(self, asked: ServiceRequest) -> Any:
        """The images of a repository, each with its tags."""
        return asked.build_page(self._collect_images(asked), "dockerImages")

    def get_image(self, asked: ServiceRequest) -> Any:
        """One image, by its digest or by one of its tags."""
        package, _, digest = unquote(asked["image"]).partition("@")
        package, _, tag = package.partition(":")
        for found in self._collect_images(asked):
            name = found["name"].rpartition("/dockerImages/")[2].replace("%2F", "/")
            if name == f"{package}@{digest}" or (name.startswith(f"{package}@") and tag in found["tags"]):
                return found
        raise ApiError("NOT_FOUND", "Requested entity was not found.")

    def list_tags(self, asked: ServiceRequest) -> Any:
        """The tags of an image."""
        self.get(asked)
        package = unquote(asked["package"])
        found = [
            _build_tag(asked, one)
            for one in sorted(self._iter_tagged_images(asked), key=lambda one: one.tag)
            if one.package == package
        ]
        return asked.build_page(found, "tags")

    def get_tag(self, asked: ServiceRequest) -> Any:
        """A tag, which names a version."""
        self.get(asked)
        for one in self._iter_tagged_images(asked):
            if (one.package, one.tag) == (unquote(asked["package"]), asked["tag"]):
                return _build_tag(asked, one)
        raise ApiError("NOT_FOUND", "Requested entity was not found.")

    def get_version(self, asked: ServiceRequest) -> Any:
        """A version, which is a digest."""
        self.get(asked)
        package = unquote(asked["package"])
        tags = [
            _build_tag(asked, one)
            for one in self._iter_tagged_images(asked)
            if (one.package, one.digest) == (package, asked["version"])
        ]
        if not tags:
            raise ApiError("NOT_FOUND", "Requested entity was not found.")
        return {"name": tags[0]["version"], "relatedTags": tags}

    def _collect_images(self, asked: ServiceRequest) -> list[dict[str, Any]]:
        self.get(asked)
        by_version: dict[tuple[str, str], list[_TaggedImage]] = {}
        for one in self._iter_tagged_images(asked):
            by_version.setdefault((one.package, one.digest), []).append(one)
        return [_build_image(asked, tagged) for _, tagged in sorted(by_version.items())]

    def _iter_tagged_images(self, asked: ServiceRequest) -> Iterator[_TaggedImage]:
        """Every tag in a repository: an image of this machine is where its name says."""
        where = (asked["location"], asked["project"], asked["repository"])
        seen = set()
        for found in containers.list_images():
            words = IMAGE.fullmatch(found.name)
            if words and words.groups()[:3] == where:
                seen.add(found.name)
                yield _TaggedImage(words[4], words[5], found.digest, found.size)
        for name in self._context.project.load_current().images:
            words = IMAGE.fullmatch(name)
            if words and words.groups()[:3] == where and name not in seen:
                yield _TaggedImage(words[4], words[5], f"sha256:{hashlib.sha256(name.encode()).hexdigest()}", 0)


def _build_repository(name: str) -> dict[str, Any]:
    _, project, _, location, _, short = name.split("/")
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {
        "name": name,
        "format": "DOCKER",
        "mode": "STANDARD_REPOSITORY",
        "createTime": now,
        "updateTime": now,
        "registryUri": f"{location}-docker.pkg.dev/{project}/{short}",
    }


def _repository_name(asked: ServiceRequest) -> str:
    return f"projects/{asked['project']}/locations/{asked['location']}/repositories/{asked['repository']}"


def _build_image(asked: ServiceRequest, tagged: Sequence[_TaggedImage]) -> dict[str, Any]:
    one = tagged[0]
    uri = f"{asked['location']}-docker.pkg.dev/{asked['project']}/{asked['repository']}/{one.package}@{one.digest}"
    return {
        "name": f"{_repository_name(asked)}/dockerImages/{_quote_package(one.package)}@{one.digest}",
        "uri": uri,
        "tags": sorted(each.tag for each in tagged),
        "imageSizeBytes": str(one.size),
        "mediaType": MEDIA_TYPE,
    }


def _build_tag(asked: ServiceRequest, one: _TaggedImage) -> dict[str, Any]:
    package = f"{_repository_name(asked)}/packages/{_quote_package(one.package)}"
    return {"name": f"{package}/tags/{one.tag}", "version": f"{package}/versions/{one.digest}"}


def _quote_package(package: str) -> str:
    """A package's name, in which Artifact Registry writes %2F for a slash."""
    return package.replace("/", "%2F")
