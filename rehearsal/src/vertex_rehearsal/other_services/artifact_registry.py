"""Artifact Registry: repositories that were created, and in them the local images with their names."""

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
PRESENT = "The local images of podman, docker or buildah, and those of project.json."
IN = "v1/projects/{project}/locations/{location}/repositories"


@dataclass(frozen=True)
class _TaggedImage:
    """An image with one of its tags."""

    package: str
    tag: str
    digest: str
    size: int


class ArtifactRegistry:
    """The methods of artifactregistry.googleapis.com about repositories and their images."""

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

    def get(self, request: ServiceRequest) -> Any:
        """Return a repository."""
        repository = self.find_repository(request["project"], request["location"], request["repository"])
        if repository is None:
            raise ApiError("NOT_FOUND", "Requested entity was not found.")
        return repository

    def find_repository(self, project: str, location: str, name: str) -> dict[str, Any] | None:
        """Return a repository that was created or that project.json names; None if there is none."""
        full = f"projects/{project}/locations/{location}/repositories/{name}"
        created = self._documents.find(full)
        return created or (
            _build_repository(full) if f"{location}/{name}" in self._read_project_repositories(project) else None
        )

    def _read_project_repositories(self, project: str) -> set[str]:
        """Return the repositories of project.json and of its images, as REGION/NAME."""
        project_file = self._context.project.load_current()
        images = (match.groups() for image in project_file.images if (match := IMAGE.fullmatch(image)))
        return {*project_file.repositories, *(f"{words[0]}/{words[2]}" for words in images if words[1] == project)}

    def list_repositories(self, request: ServiceRequest) -> Any:
        """Return a page of a location's repositories."""
        parent = f"projects/{request['project']}/locations/{request['location']}/repositories"
        repositories = {repository["name"]: repository for repository in self._documents.list_collection(parent)}
        for entry in self._read_project_repositories(request["project"]):
            location, _, name = entry.partition("/")
            if location == request["location"]:
                repositories.setdefault(f"{parent}/{name}", _build_repository(f"{parent}/{name}"))
        return request.build_page([repositories[name] for name in sorted(repositories)], "repositories")

    def create(self, request: ServiceRequest) -> Any:
        """Create a repository and return its operation."""
        name, location = request.get_parameter("repositoryId"), request["location"]
        if location not in LOCATIONS:
            raise invalid_argument("parent", f'Location "{location}" is not supported.')
        if not NAME.fullmatch(name):
            raise invalid_argument(
                "repository_id", f'Invalid repository ID "{name}": lowercase letters, digits and hyphens.'
            )
        kind = request.body.get("format")
        if kind not in ("DOCKER", 1):  # the Python clients send enum values as numbers
            raise invalid_argument("repository.format", f"Only repositories of format DOCKER are played, not {kind}.")
        if self.find_repository(request["project"], location, name):
            raise ApiError("ALREADY_EXISTS", "the repository already exists")
        parent = f"projects/{request['project']}/locations/{location}"
        repository = _build_repository(f"{parent}/repositories/{name}")
        repository |= {
            key: request.body[key] for key in ("description", "labels", "dockerConfig") if key in request.body
        }
        self._documents.add(repository["name"], repository)
        operation = f"{parent}/operations/{new_id()}"
        pending = {"name": operation, "metadata": {"@type": f"{KIND}OperationMetadata"}}
        self._documents.add(
            operation, pending | {"done": True, "response": {"@type": f"{KIND}Repository"} | repository}
        )
        return pending

    def get_operation(self, request: ServiceRequest) -> Any:
        """Return an operation, which is done from the start."""
        location = f"projects/{request['project']}/locations/{request['location']}"
        return self._documents.get(f"{location}/operations/{request['operation']}")

    def list_images(self, request: ServiceRequest) -> Any:
        """Return a page of a repository's images, each with its tags."""
        return request.build_page(self._collect_images(request), "dockerImages")

    def get_image(self, request: ServiceRequest) -> Any:
        """Return an image, by its digest or by one of its tags."""
        package, _, digest = unquote(request["image"]).partition("@")
        package, _, tag = package.partition(":")
        for image in self._collect_images(request):
            name = image["name"].rpartition("/dockerImages/")[2].replace("%2F", "/")
            if name == f"{package}@{digest}" or (name.startswith(f"{package}@") and tag in image["tags"]):
                return image
        raise ApiError("NOT_FOUND", "Requested entity was not found.")

    def list_tags(self, request: ServiceRequest) -> Any:
        """Return a page of an image's tags."""
        self.get(request)
        package = unquote(request["package"])
        tags = [
            _build_tag(request, image)
            for image in sorted(self._iter_tagged_images(request), key=lambda image: image.tag)
            if image.package == package
        ]
        return request.build_page(tags, "tags")

    def get_tag(self, request: ServiceRequest) -> Any:
        """Return a tag, which names a version."""
        self.get(request)
        for image in self._iter_tagged_images(request):
            if (image.package, image.tag) == (unquote(request["package"]), request["tag"]):
                return _build_tag(request, image)
        raise ApiError("NOT_FOUND", "Requested entity was not found.")

    def get_version(self, request: ServiceRequest) -> Any:
        """Return a version, which is a digest."""
        self.get(request)
        package = unquote(request["package"])
        tags = [
            _build_tag(request, image)
            for image in self._iter_tagged_images(request)
            if (image.package, image.digest) == (package, request["version"])
        ]
        if not tags:
            raise ApiError("NOT_FOUND", "Requested entity was not found.")
        return {"name": tags[0]["version"], "relatedTags": tags}

    def _collect_images(self, request: ServiceRequest) -> list[dict[str, Any]]:
        self.get(request)
        by_version: dict[tuple[str, str], list[_TaggedImage]] = {}
        for image in self._iter_tagged_images(request):
            by_version.setdefault((image.package, image.digest), []).append(image)
        return [_build_image(request, tagged) for _, tagged in sorted(by_version.items())]

    def _iter_tagged_images(self, request: ServiceRequest) -> Iterator[_TaggedImage]:
        """Iterate over the tags in a repository: local images are placed by their names."""
        repository = (request["location"], request["project"], request["repository"])
        seen = set()
        for image in containers.list_images():
            words = IMAGE.fullmatch(image.name)
            if words and words.groups()[:3] == repository:
                seen.add(image.name)
                yield _TaggedImage(words[4], words[5], image.digest, image.size)
        for name in self._context.project.load_current().images:
            words = IMAGE.fullmatch(name)
            if words and words.groups()[:3] == repository and name not in seen:
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


def _repository_name(request: ServiceRequest) -> str:
    return f"projects/{request['project']}/locations/{request['location']}/repositories/{request['repository']}"


def _build_image(request: ServiceRequest, tagged: Sequence[_TaggedImage]) -> dict[str, Any]:
    image = tagged[0]
    registry = f"{request['location']}-docker.pkg.dev/{request['project']}/{request['repository']}"
    return {
        "name": f"{_repository_name(request)}/dockerImages/{_quote_package(image.package)}@{image.digest}",
        "uri": f"{registry}/{image.package}@{image.digest}",
        "tags": sorted(tagged_image.tag for tagged_image in tagged),
        "imageSizeBytes": str(image.size),
        "mediaType": MEDIA_TYPE,
    }


def _build_tag(request: ServiceRequest, image: _TaggedImage) -> dict[str, Any]:
    package = f"{_repository_name(request)}/packages/{_quote_package(image.package)}"
    return {"name": f"{package}/tags/{image.tag}", "version": f"{package}/versions/{image.digest}"}


def _quote_package(package: str) -> str:
    """Return a package's name with %2F for each slash, as in Artifact Registry."""
    return package.replace("/", "%2F")
