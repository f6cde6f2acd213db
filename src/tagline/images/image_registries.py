"""Image registries: look up images, create repositories in Artifact Registry, and log in temporarily."""

import json
import re
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tagline import gcp
from tagline.errors import PlaceError, SpecError, first_line

ARTIFACTS = re.compile(
    r"(?P<region>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>(?:[\w-]+\.[\w.-]+/)?[\w-]+)/"
    r"(?P<repository>[\w-]+)/(?P<package>.+)"
)
"""An image in Artifact Registry; domain-scoped projects have the domain in front."""
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json"
)
PATIENCE_S = 60.0
LONGEST_WAIT_S = 300.0


@dataclass(frozen=True)
class ImageName:
    """The parts of an image's name."""

    host: str
    path: str
    version: str
    """A tag, or a digest that begins with sha256:."""

    @classmethod
    def parse(cls, image: str) -> "ImageName":
        """Parse a name as docker does: the default host is Docker Hub, the default tag latest."""
        whole, _, digest = image.partition("@")
        first, slash, rest = whole.partition("/")
        has_host = slash and ("." in first or ":" in first or first == "localhost")
        host, path = (first, rest) if has_host else ("docker.io", whole)
        path, _, tag = path.partition(":")
        if not re.fullmatch(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*", path) or not re.fullmatch(r"[\w.-]*", tag):
            raise SpecError(
                f"{image!r} names no image", hint="such as REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME:TAG"
            )
        if host == "docker.io" and "/" not in path:
            path = f"library/{path}"
        return cls(host, path, digest or tag or "latest")


def has_image(image: str) -> bool:
    """Return whether an image exists in its registry."""
    name = ImageName.parse(image)
    place = ARTIFACTS.fullmatch(f"{name.host}/{name.path}")
    if place is None:
        return _has_manifest(image, name)
    package = quote(place["package"], safe="")
    if name.version.startswith("sha256:"):
        return _resource_exists(f"{_repository_name(place)}/dockerImages/{package}@{name.version}")
    return _resource_exists(f"{_repository_name(place)}/packages/{package}/tags/{name.version}")


def create_repository(image: str) -> bool:
    """Create the repository of an image in Artifact Registry unless it exists; returns whether it was created."""
    name = ImageName.parse(image)
    place = ARTIFACTS.fullmatch(f"{name.host}/{name.path}")
    if place is None or _resource_exists(_repository_name(place)):
        return False
    parent, _, repository_id = _repository_name(place).rpartition("/")
    body = {"format": "DOCKER", "description": "Images that Tagline has built"}
    try:
        operation = gcp.call_rest(
            "artifactregistry", "POST", f"v1/{parent}", body, params={"repositoryId": repository_id}
        )
    except PlaceError as error:
        if _http_status(error) == 409:  # created meanwhile by another process
            return False
        if _http_status(error) == 403:
            options = f"--repository-format=docker --location={place['region']} --project={place['project']}"
            hint = (
                "whoever has roles/artifactregistry.admin: gcloud artifacts repositories create "
                f"{repository_id} {options}"
            )
            raise PlaceError(f"there is no repository {repository_id}, and you may not make it", hint=hint) from error
        raise
    until = time.monotonic() + LONGEST_WAIT_S
    while operation.get("name") and not operation.get("done"):
        if time.monotonic() > until:
            raise PlaceError(f"the repository {repository_id} is still being made", hint="run the same command again")
        time.sleep(1.0)
        operation = gcp.call_rest("artifactregistry", "GET", f"v1/{operation['name']}")
    if problem := operation.get("error"):
        raise PlaceError(f"the repository {repository_id} could not be made: {problem.get('message', problem)}")
    return True


@contextmanager
def temporary_login(image: str) -> Iterator[Path | None]:
    """Yield a temporary file of credentials for pushing to Google's registries; None for other registries."""
    host = ImageName.parse(image).host
    if not host.endswith(("-docker.pkg.dev", "gcr.io")):
        yield None
        return
    secret = b64encode(f"oauth2accesstoken:{gcp.fetch_token()}".encode()).decode()
    with tempfile.TemporaryDirectory() as directory:  # with mode 0700
        path = Path(directory) / "config.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps({"auths": {host: {"auth": secret}}}), "utf-8")
        yield path


def _repository_name(place: "re.Match[str]") -> str:
    project = place["project"].replace("/", ":")
    return f"projects/{project}/locations/{place['region']}/repositories/{place['repository']}"


def _resource_exists(resource: str) -> bool:
    try:
        gcp.call_rest("artifactregistry", "GET", f"v1/{resource}")
    except PlaceError as error:
        if _http_status(error) == 404:
            return False
        raise
    return True


def _http_status(error: PlaceError) -> int:
    """Return the HTTP status behind an error; 0 if there is none."""
    return int(getattr(error.__cause__, "code", None) or 0)


def _has_manifest(image: str, name: ImageName) -> bool:
    """Look up a manifest by the registry API without a login, with an anonymous token where one is required."""
    import requests

    host = "registry-1.docker.io" if name.host == "docker.io" else name.host
    scheme = "http" if re.match(r"(localhost|127\.)", host) else "https"
    address = f"{scheme}://{host}/v2/{name.path}/manifests/{name.version}"
    hint = f"is the name right? Whoever may see it can ask: docker manifest inspect {image}"
    try:
        response = requests.head(address, headers={"Accept": MANIFESTS}, timeout=PATIENCE_S)
        if response.status_code == 401 and (
            token := _fetch_token_anonymously(response.headers.get("WWW-Authenticate", ""))
        ):
            headers = {"Accept": MANIFESTS, "Authorization": f"Bearer {token}"}
            response = requests.head(address, headers=headers, timeout=PATIENCE_S)
    except requests.RequestException as error:
        raise PlaceError(f"{name.host} cannot be asked for {image}: {first_line(error)}", hint=hint) from error
    if response.status_code not in (200, 404):
        status = f"{response.status_code} {response.reason}"
        raise PlaceError(f"{name.host} does not say whether it has {image}: {status}", hint=hint)
    return bool(response.status_code == 200)


def _fetch_token_anonymously(challenge: str) -> str:
    """Fetch an anonymous token from a registry's token service; "" if there is none."""
    import requests

    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    if not challenge.startswith("Bearer ") or not fields.get("realm", "").startswith("https://"):
        return ""
    query = {key: fields[key] for key in ("service", "scope") if key in fields}
    response = requests.get(fields["realm"], params=query, timeout=PATIENCE_S)
    payload = response.json() if response.ok else {}
    return str(payload.get("token") or payload.get("access_token") or "")
