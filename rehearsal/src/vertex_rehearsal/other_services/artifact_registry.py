"""Artifact Registry: repositories that are made, and in them the images of this machine that are named for them."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from vertex_rehearsal.api.errors import Problem, invalid
from vertex_rehearsal.execution import containers
from vertex_rehearsal.machines import REGIONS
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.other_services.documents import Documents
from vertex_rehearsal.other_services.methods import Asked, Method
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
class _Image:
    """An image with one of its tags."""

    package: str
    tag: str
    digest: str
    size: int


class ArtifactRegistry:
    """The methods of artifactregistry.googleapis.com that tell whether an image is there."""

    METHODS: Sequence[Method] = (
        Method("artifactregistry.projects.locations.repositories.get", "GET", f"{IN}/{{repository}}", "get",
               "artifactregistry.repositories.get"),
        Method("artifactregistry.projects.locations.repositories.list", "GET", IN, "list_repositories",
               "artifactregistry.repositories.list"),
        Method("artifactregistry.projects.locations.repositories.create", "POST", IN, "create",
               "artifactregistry.repositories.create", "Of format DOCKER."),
        Method("artifactregistry.projects.locations.operations.get", "GET",
               "v1/projects/{project}/locations/{location}/operations/{operation}", "get_operation"),
        Method("artifactregistry.projects.locations.repositories.dockerImages.list", "GET",
               f"{IN}/{{repository}}/dockerImages", "list_images", "artifactregistry.dockerimages.list",
               PRESENT),
        Method("artifactregistry.projects.locations.repositories.dockerImages.get", "GET",
               f"{IN}/{{repository}}/dockerImages/{{image=**}}", "get_image", "artifactregistry.dockerimages.get",
               PRESENT),
        Method("artifactregistry.projects.locations.repositories.packages.tags.list", "GET",
               f"{IN}/{{repository}}/packages/{{package}}/tags", "list_tags", "artifactregistry.tags.list",
               PRESENT),
        Method("artifactregistry.projects.locations.repositories.packages.tags.get", "GET",
               f"{IN}/{{repository}}/packages/{{package}}/tags/{{tag}}", "get_tag", "artifactregistry.tags.get",
               PRESENT),
        Method("artifactregistry.projects.locations.repositories.packages.versions.get", "GET",
               f"{IN}/{{repository}}/packages/{{package}}/versions/{{version=**}}", "get_version",
               "artifactregistry.versions.get", PRESENT),
    )  # fmt: skip

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._documents = Documents(context.database)

    def get(self, asked: Asked) -> Any:
        """A repository."""
        found = self.repository(asked["project"], asked["location"], asked["repository"])
        if found is None:
            raise Problem("NOT_FOUND", "Requested entity was not found.")
        return found

    def repository(self, project: str, location: str, name: str) -> dict[str, Any] | None:
        """A repository that was created, or that project.json names."""
        full = f"projects/{project}/locations/{location}/repositories/{name}"
        found = self._documents.find(full)
        return found or (_repository(full) if f"{location}/{name}" in self._given(project) else None)

    def _given(self, project: str) -> set[str]:
        """The repositories of project.json, with those of its images, as REGION/NAME."""
        now = self._context.project.now()
        images = (found.groups() for image in now.images if (found := IMAGE.fullmatch(image)))
        return {*now.repositories, *(f"{words[0]}/{words[2]}" for words in images if words[1] == project)}

    def list_repositories(self, asked: Asked) -> Any:
        """The repositories of a location."""
        parent = f"projects/{asked['project']}/locations/{asked['location']}/repositories"
        made = {found["name"]: found for found in self._documents.inside(parent)}
        for given in self._given(asked["project"]):
            location, _, name = given.partition("/")
            if location == asked["location"]:
                made.setdefault(f"{parent}/{name}", _repository(f"{parent}/{name}"))
        return asked.page([made[name] for name in sorted(made)], "repositories")

    def create(self, asked: Asked) -> Any:
        """A new repository, by an operation."""
        name, location = asked.last("repositoryId"), asked["location"]
        if location not in LOCATIONS:
            raise invalid("parent", f'Location "{location}" is not supported.')
        if not NAME.fullmatch(name):
            raise invalid("repository_id", f'Invalid repository ID "{name}": lowercase letters, digits and hyphens.')
        kind = asked.body.get("format")
        if kind not in ("DOCKER", 1):  # the clients for Python write the numbers of names
            raise invalid("repository.format", f"Only repositories of format DOCKER are played, not {kind}.")
        if self.repository(asked["project"], location, name):
            raise Problem("ALREADY_EXISTS", "the repository already exists")
        parent = f"projects/{asked['project']}/locations/{location}"
        made = _repository(f"{parent}/repositories/{name}")
        made |= {key: asked.body[key] for key in ("description", "labels", "dockerConfig") if key in asked.body}
        self._documents.add(made["name"], made)
        operation = f"{parent}/operations/{new_id()}"
        begun = {"name": operation, "metadata": {"@type": f"{KIND}OperationMetadata"}}
        self._documents.add(operation, begun | {"done": True, "response": {"@type": f"{KIND}Repository"} | made})
        return begun

    def get_operation(self, asked: Asked) -> Any:
        """An operation, which is done by now."""
        location = f"projects/{asked['project']}/locations/{asked['location']}"
        return self._documents.get(f"{location}/operations/{asked['operation']}")

    def list_images(self, asked: Asked) -> Any:
        """The images of a repository, each with its tags."""
        return asked.page(self._images(asked), "dockerImages")

    def get_image(self, asked: Asked) -> Any:
        """One image, by its digest or by one of its tags."""
        package, _, digest = unquote(asked["image"]).partition("@")
        package, _, tag = package.partition(":")
        for found in self._images(asked):
            name = found["name"].rpartition("/dockerImages/")[2].replace("%2F", "/")
            if name == f"{package}@{digest}" or (name.startswith(f"{package}@") and tag in found["tags"]):
                return found
        raise Problem("NOT_FOUND", "Requested entity was not found.")

    def list_tags(self, asked: Asked) -> Any:
        """The tags of an image."""
        self.get(asked)
        package = unquote(asked["package"])
        found = [_tag(asked, one) for one in sorted(self._present(asked), key=lambda one: one.tag)
                 if one.package == package]  # fmt: skip
        return asked.page(found, "tags")

    def get_tag(self, asked: Asked) -> Any:
        """A tag, which names a version."""
        self.get(asked)
        for one in self._present(asked):
            if (one.package, one.tag) == (unquote(asked["package"]), asked["tag"]):
                return _tag(asked, one)
        raise Problem("NOT_FOUND", "Requested entity was not found.")

    def get_version(self, asked: Asked) -> Any:
        """A version, which is a digest."""
        self.get(asked)
        package = unquote(asked["package"])
        tags = [_tag(asked, one) for one in self._present(asked)
                if (one.package, one.digest) == (package, asked["version"])]  # fmt: skip
        if not tags:
            raise Problem("NOT_FOUND", "Requested entity was not found.")
        return {"name": tags[0]["version"], "relatedTags": tags}

    def _images(self, asked: Asked) -> list[dict[str, Any]]:
        self.get(asked)
        by_version: dict[tuple[str, str], list[_Image]] = {}
        for one in self._present(asked):
            by_version.setdefault((one.package, one.digest), []).append(one)
        return [_image(asked, tagged) for _, tagged in sorted(by_version.items())]

    def _present(self, asked: Asked) -> Iterator[_Image]:
        """Every tag in a repository: an image of this machine is where its name says."""
        where = (asked["location"], asked["project"], asked["repository"])
        seen = set()
        for found in containers.images():
            words = IMAGE.fullmatch(found.name)
            if words and words.groups()[:3] == where:
                seen.add(found.name)
                yield _Image(words[4], words[5], found.digest, found.size)
        for name in self._context.project.now().images:
            words = IMAGE.fullmatch(name)
            if words and words.groups()[:3] == where and name not in seen:
                yield _Image(words[4], words[5], f"sha256:{hashlib.sha256(name.encode()).hexdigest()}", 0)


def _repository(name: str) -> dict[str, Any]:
    _, project, _, location, _, short = name.split("/")
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {
        "name": name, "format": "DOCKER", "mode": "STANDARD_REPOSITORY", "createTime": now, "updateTime": now,
        "registryUri": f"{location}-docker.pkg.dev/{project}/{short}",
    }  # fmt: skip


def _inside(asked: Asked) -> str:
    return f"projects/{asked['project']}/locations/{asked['location']}/repositories/{asked['repository']}"


def _image(asked: Asked, tagged: Sequence[_Image]) -> dict[str, Any]:
    one = tagged[0]
    uri = f"{asked['location']}-docker.pkg.dev/{asked['project']}/{asked['repository']}/{one.package}@{one.digest}"
    return {
        "name": f"{_inside(asked)}/dockerImages/{_quoted(one.package)}@{one.digest}", "uri": uri,
        "tags": sorted(each.tag for each in tagged), "imageSizeBytes": str(one.size), "mediaType": MEDIA_TYPE,
    }  # fmt: skip


def _tag(asked: Asked, one: _Image) -> dict[str, Any]:
    package = f"{_inside(asked)}/packages/{_quoted(one.package)}"
    return {"name": f"{package}/tags/{one.tag}", "version": f"{package}/versions/{one.digest}"}


def _quoted(package: str) -> str:
    """A package's name, in which Artifact Registry writes %2F for a slash."""
    return package.replace("/", "%2F")
