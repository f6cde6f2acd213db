"""The one door to Google Cloud: where it is, its clients, credentials, and its errors as ours."""

import configparser
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from tagline.errors import DataError, PlaceError, SpecError, first_line

SCHEME = "gs://"
REHEARSAL, TOKEN = "REHEARSAL_ADDRESS", "REHEARSAL_TOKEN"
"""Where a rehearsal answers, and what it demands of its clients: set inside its jobs, and by `entered`."""
REHEARSED_PROJECT = "rehearsal"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
PATIENCE_S = 60.0
INSTALL = 'pip install "tagline[vertex]"'
QUOTA_HINT = "ask for more on the page of quotas in the Cloud console, or name another region or accelerator"
ROLES = {
    "storage.": "roles/storage.objectUser",
    "aiplatform.": "roles/aiplatform.user",
    "iam.serviceAccounts.actAs": "roles/iam.serviceAccountUser",
    "logging.": "roles/logging.viewer",
    "cloudbuild.": "roles/cloudbuild.builds.editor",
    "artifactregistry.": "roles/artifactregistry.writer",
    "secretmanager.": "roles/secretmanager.secretAccessor",
    "serviceusage.": "roles/serviceusage.serviceUsageConsumer",
}
"""The role that brings the permissions that begin so."""
Answer = TypeVar("Answer")
LOG_IN = "log in: gcloud auth application-default login; or set GOOGLE_APPLICATION_CREDENTIALS"


def rehearsal() -> str:
    """The address of the rehearsal that stands for Google here; "" where Google itself is meant."""
    return os.environ.get(REHEARSAL, "").rstrip("/")


@contextmanager
def entered(address: str, token: str = "") -> Iterator[None]:
    """Let a rehearsal stand for Google, as it does inside its own jobs."""
    ours = {REHEARSAL: address, TOKEN: token, "STORAGE_EMULATOR_HOST": address}
    before = {name: os.environ.get(name) for name in ours}
    os.environ |= ours
    _forget()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        _forget()


def project(given: str = "") -> str:
    """The project to work in: the one that is given, of the environment, of gcloud, or of the credentials."""
    if found := given or os.environ.get("GOOGLE_CLOUD_PROJECT") or os.environ.get("CLOUDSDK_CORE_PROJECT", ""):
        return found
    if rehearsal():
        return REHEARSED_PROJECT
    if found := _gcloud_property("core", "project"):
        return found
    with suppress(PlaceError):
        if found := _credentials()[1]:
            return found
    raise SpecError(
        "no Google Cloud project is named", hint="set vertex.project, or: gcloud config set project PROJECT"
    )


def vertex(client: str, region: str) -> Any:
    """A client of `google.cloud.aiplatform_v1`, such as JobServiceClient, for a region."""
    with errors(f"Vertex AI in {region}"):
        return _vertex(client, region)


def require(what: str) -> None:
    """Refuse what needs Google's clients where they are not installed."""
    with errors(what):
        if find_spec("google.cloud.aiplatform_v1") is None:
            raise PlaceError(f"{what} needs google-cloud-aiplatform", hint=INSTALL)


def persistent(what: str, ask: Callable[[], Answer]) -> Answer:
    """What is answered; asked again for a while where the network or Google fails, or where somebody else has changed
    what was to be changed."""
    with errors(what):
        from google.api_core.retry import Retry, if_transient_error

        again = Retry(
            predicate=lambda error: if_transient_error(error) or _status(error) == "ABORTED", timeout=PATIENCE_S
        )
        answer: Answer = again(ask)()
        return answer


def found(what: str, get: Callable[[], Answer]) -> Answer | None:
    """What there is; None where there is no such thing."""
    try:
        return persistent(what, get)
    except PlaceError as error:
        if _status(error.__cause__) == "NOT_FOUND":
            return None
        raise


def ensured(what: str, get: Callable[[], Answer], make: Callable[[], Answer]) -> Answer:
    """What there is; made where there is no such thing, and found where somebody else has just made it."""
    if (there := found(what, get)) is not None:
        return there
    try:
        return persistent(what, make)
    except PlaceError as error:
        if _status(error.__cause__) == "ALREADY_EXISTS":
            return persistent(what, get)
        raise


def _status(error: BaseException | None) -> str:
    """The canonical code of one of Google's errors; REST has one exception for some that gRPC tells apart."""
    if code := getattr(error, "grpc_status_code", None):
        return str(code.name)
    with suppress(AttributeError, ValueError, KeyError, TypeError):
        return str(error.response.json()["error"]["status"])  # type: ignore[union-attr]
    return ""


def rest(
    service: str, method: str, path: str, body: Mapping[str, Any] | None = None, *,
    params: Mapping[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What another service of Google's, such as `serviceusage`, answers at a path."""
    at = f"{rehearsal()}/-/{service}" if rehearsal() else f"https://{service}.googleapis.com"
    return _asked(service, method, f"{at}/{path}", body, params)


def log_entries(project_id: str, query: str, *, size: int = 1000) -> Iterator[dict[str, Any]]:
    """The entries of Cloud Logging that match, oldest first, as its REST API has them."""
    token = ""
    while True:
        asked = {
            "resourceNames": [f"projects/{project_id}"], "filter": query, "orderBy": "timestamp asc",
            "pageSize": size, **({"pageToken": token} if token else {}),
        }  # fmt: skip
        at = rehearsal() or "https://logging.googleapis.com"
        page = _asked("Cloud Logging", "POST", f"{at}/v2/entries:list", asked)
        yield from page.get("entries", ())
        token = page.get("nextPageToken", "")
        if not token:
            return


def _asked(
    what: str, method: str, address: str, body: Mapping[str, Any] | None, params: Mapping[str, str] | None = None
) -> dict[str, Any]:
    with errors(what):
        from google.api_core.exceptions import from_http_response

        response = _session().request(method, address, json=body, params=params, timeout=PATIENCE_S)
        if not response.ok:
            raise from_http_response(response)  # type: ignore[no-untyped-call]
        answer: dict[str, Any] = response.json() if response.content else {}
        return answer


def _gcloud_property(section: str, name: str) -> str:
    """A property of gcloud's active configuration, without gcloud."""
    if found := os.environ.get(f"CLOUDSDK_{section}_{name}".upper()):
        return found
    directory = Path(os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud")
    active = os.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME", "")
    if not active:
        with suppress(OSError):
            active = (directory / "active_config").read_text("utf-8").strip()
    parser = configparser.ConfigParser()
    with suppress(OSError, configparser.Error):
        parser.read_string((directory / "configurations" / f"config_{active or 'default'}").read_text("utf-8"))
    return parser.get(section, name, fallback="")


@cache
def _credentials() -> tuple[Any, str]:
    """Credentials, and the project they belong to: a rehearsal's, or the default ones, as whom they may act for."""
    with errors("Google Cloud"):
        import google.auth
        from google.auth import impersonated_credentials
        from google.auth.credentials import AnonymousCredentials
        from google.oauth2.credentials import Credentials

        if rehearsal() and not os.environ.get("GCE_METADATA_HOST"):  # its jobs have default credentials
            token = os.environ.get(TOKEN)
            return Credentials(token) if token else AnonymousCredentials(), REHEARSED_PROJECT  # type: ignore[no-untyped-call]
        held: Any
        held, owner = google.auth.default(scopes=SCOPES)
        if account := _gcloud_property("auth", "impersonate_service_account"):
            held = impersonated_credentials.Credentials(held, target_principal=account, target_scopes=list(SCOPES))  # type: ignore[no-untyped-call]
        return held, owner or ""


@cache
def _vertex(client: str, region: str) -> Any:
    from google.cloud import aiplatform_v1

    made = getattr(aiplatform_v1, client)
    if rehearsal():
        return made(credentials=_credentials()[0], transport="rest", client_options={"api_endpoint": rehearsal()})
    at = {"api_endpoint": f"{region}-aiplatform.googleapis.com"}
    return made(credentials=_credentials()[0], client_options=at)


@cache
def _session() -> Any:
    from google.auth.transport.requests import AuthorizedSession

    return AuthorizedSession(_credentials()[0])  # type: ignore[no-untyped-call]


def _forget() -> None:
    """Clients belong to the place they were made for."""
    for made in (_credentials, _vertex, _session, _client):
        made.cache_clear()


@dataclass(frozen=True)
class Object:
    """An object in Cloud Storage, as it is now."""

    address: str
    name: str
    """Without the bucket's."""
    generation: int


def objects(address: str) -> list[Object]:
    """The object at an address, or else those below it; a pattern is matched. Sorted by name; none: an empty list."""
    bucket, name = _parts(address)
    with errors(address):
        if any(mark in name for mark in "*?["):
            found = list(_client().list_blobs(bucket, match_glob=name))
        elif name and not name.endswith("/"):
            found = [blob] if (blob := _client().bucket(bucket).get_blob(name)) else []
            found = found or list(_client().list_blobs(bucket, prefix=f"{name}/"))
        else:
            found = list(_client().list_blobs(bucket, prefix=name))
    files = [blob for blob in found if not blob.name.endswith("/")]  # consoles make folders of such names
    return [Object(f"{SCHEME}{bucket}/{blob.name}", blob.name, blob.generation) for blob in files]


def download(found: Object, path: Path) -> None:
    """An object into a file, in the very form that was seen; its checksum is checked on the way."""
    with errors(found.address):
        bucket, name = _parts(found.address)
        blob = _client().bucket(bucket).blob(name, generation=found.generation)
        blob.download_to_filename(path, checksum="auto", raw_download=True)


def upload(path: Path, address: str) -> None:
    """A file to an object, whole or not at all."""
    with errors(address):
        bucket, name = _parts(address)
        _client().bucket(bucket).blob(name).upload_from_filename(path, checksum="crc32c")


def _parts(address: str) -> tuple[str, str]:
    bucket, _, name = address.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise DataError(f"{address} names no bucket", hint="gs://BUCKET/NAME")
    return bucket, name


@cache
def _client() -> Any:
    """Of Cloud Storage; an emulator that is not the rehearsal wants no credentials."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage  # type: ignore[attr-defined]

    if os.environ.get("STORAGE_EMULATOR_HOST") and not rehearsal():
        return storage.Client(project=REHEARSED_PROJECT, credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]
    return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "none"), credentials=_credentials()[0])


@contextmanager
def errors(what: str) -> Iterator[None]:
    """Google's errors as ours, each with what to do about it; `what` is an address, or what was asked."""
    try:
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError
        from requests import RequestException
    except ImportError as error:
        raise PlaceError(f"{what} needs {error.name}, which is not installed", hint=INSTALL) from error
    try:
        yield
    except exceptions.NotFound as error:
        if what.startswith(SCHEME):
            raise DataError(f"there is no {what}", hint="is the name of the bucket right?") from error
        raise PlaceError(f"{what}: {first_line(error)}", hint="are project, region and name right?") from error
    except exceptions.Forbidden as error:
        raise PlaceError(f"{what} may not be used: {first_line(error)}", hint=_permit(what, str(error))) from error
    except (exceptions.Unauthorized, GoogleAuthError) as error:
        raise PlaceError(f"{what} needs Google credentials: {first_line(error)}", hint=LOG_IN) from error
    except (exceptions.TooManyRequests, exceptions.ResourceExhausted) as error:
        raise PlaceError(f"{what}: {first_line(error)}", hint=QUOTA_HINT) from error
    except exceptions.BadRequest as error:
        raise PlaceError(
            f"{what} refused: {first_line(error)}", hint="tagline check SPEC --on vertex tells more"
        ) from error
    except (exceptions.GoogleAPIError, RequestException) as error:
        raise PlaceError(f"{what}: {first_line(error)}", hint="try again; is the network there?") from error


def _permit(what: str, said: str) -> str:
    """What whoever runs this lacks: an API, or a role for the permission that is named."""
    if found := re.search(r"(?:Enable it by visiting|enable.*?)\s*(https://\S*apis/api/([\w.]+))", said):
        return f"gcloud services enable {found[2]}"
    for prefix, role in ROLES.items():
        if re.search(rf"\b{re.escape(prefix)}", said):
            return f"whoever runs this needs {role}"
    return f"whoever runs this needs {ROLES['storage.']} on the bucket" if what.startswith(SCHEME) else LOG_IN
