"""The one door to Google Cloud: where it is, its clients, credentials, and its errors as ours.

Files, in the order of their imports:

- machines.py: Machine types, accelerators, regions and prices of Vertex AI: facts, as they were documented on their
  dates.
- cloud_storage.py: Cloud Storage: buckets, and the objects in them, each read and written as the very generation
  that was seen.
"""

import base64
import configparser
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from tagline.errors import DataError, PlaceError, SpecError, first_line

SCHEME = "gs://"
SECRETS = "TAGLINE_SECRETS"
"""Names, in JSON, the versions of secrets that become variables of a job when it starts."""
REHEARSAL, TOKEN = "REHEARSAL_ADDRESS", "REHEARSAL_TOKEN"
"""Where a rehearsal answers, and what it demands of its clients: set inside its jobs, and by `use_rehearsal`."""
REHEARSED_PROJECT = "rehearsal"
JOB_ID = "CLOUD_ML_JOB_ID"
"""Set in every process of a job."""
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
"""The role that brings whoever submits a job the permissions that begin so."""
Answer = TypeVar("Answer")
LOG_IN = "log in: gcloud auth application-default login; or set GOOGLE_APPLICATION_CREDENTIALS"


def find_rehearsal() -> str:
    """The address of the rehearsal that stands for Google here; "" where Google itself is meant."""
    return os.environ.get(REHEARSAL, "").rstrip("/")


def find_place() -> str:
    """The name of the place that Google is here, as `--on` takes it."""
    return "rehearsal" if find_rehearsal() else "vertex"


def rehearsal_facts() -> str:
    """The file that tells where the rehearsal is, as long as it runs; "" of one that does not name it."""
    if not find_rehearsal():
        return ""
    with translate_errors("the rehearsal"):
        return str(_send_request("GET", f"{find_rehearsal()}/-/status", None).get("facts", ""))


@contextmanager
def use_rehearsal(address: str, token: str = "") -> Iterator[None]:
    """Let a rehearsal stand for Google, as it does inside its own jobs."""
    ours = {REHEARSAL: address, TOKEN: token, "STORAGE_EMULATOR_HOST": address}
    before = {name: os.environ.get(name) for name in ours}
    os.environ |= ours
    _clear_clients()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        _clear_clients()


def find_project(given: str = "") -> str:
    """The project to work in: the one that is given, of the environment, of gcloud, or of the credentials."""
    if found := project_without_asking(given):
        return found
    with suppress(PlaceError):
        if found := _load_credentials()[1]:
            return found
    raise SpecError(
        "no Google Cloud project is named", hint="set vertex.project, or: gcloud config set project PROJECT"
    )


def project_without_asking(given: str = "") -> str:
    """The same as far as it is known without credentials and network; "" where it is not."""
    if found := given or os.environ.get("GOOGLE_CLOUD_PROJECT") or os.environ.get("CLOUDSDK_CORE_PROJECT", ""):
        return found
    return REHEARSED_PROJECT if find_rehearsal() else _gcloud_property("core", "project")


def sign_in() -> None:
    """Insist on credentials that Google takes now; a rehearsal takes any."""
    held = _load_credentials()[0]
    if not find_rehearsal() and not held.valid:
        with translate_errors("Google Cloud"):
            from google.auth.transport.requests import Request

            held.refresh(Request())


def vertex_client(client: str, region: str) -> Any:
    """A client of `google.cloud.aiplatform_v1`, such as JobServiceClient, for a region."""
    with translate_errors(f"Vertex AI in {region}"):
        return _create_vertex_client(client, region)


def require_clients(what: str) -> None:
    """Refuse what needs Google's clients where they are not installed."""
    there = None
    with suppress(ModuleNotFoundError):  # of a package above it
        there = find_spec("google.cloud.aiplatform_v1")
    if there is None:
        raise PlaceError(f"{what} needs google-cloud-aiplatform, which is not installed", hint=INSTALL)


def with_retries(what: str, ask: Callable[[], Answer]) -> Answer:
    """What is answered; asked again for a while where the network or Google fails, or where somebody else has changed
    what was to be changed."""
    with translate_errors(what):
        from google.api_core.retry import Retry, if_transient_error

        again = Retry(
            predicate=lambda error: if_transient_error(error) or _read_status(error) == "ABORTED", timeout=PATIENCE_S
        )
        answer: Answer = again(ask)()
        return answer


def get_or_none(what: str, get: Callable[[], Answer]) -> Answer | None:
    """What there is; None where there is no such thing."""
    try:
        return with_retries(what, get)
    except PlaceError as error:
        if _read_status(error.__cause__) == "NOT_FOUND":
            return None
        raise


def get_or_create(what: str, get: Callable[[], Answer], make: Callable[[], Answer]) -> Answer:
    """What there is; made where there is no such thing, and found where somebody else has just made it."""
    if (there := get_or_none(what, get)) is not None:
        return there
    try:
        return with_retries(what, make)
    except PlaceError as error:
        if _read_status(error.__cause__) == "ALREADY_EXISTS":
            return with_retries(what, get)
        raise


def _read_status(error: BaseException | None) -> str:
    """The canonical code of one of Google's errors; REST has one exception for some that gRPC tells apart."""
    if code := getattr(error, "grpc_status_code", None):
        return str(code.name)
    with suppress(AttributeError, ValueError, KeyError, TypeError):
        return str(error.response.json()["error"]["status"])  # type: ignore[union-attr]
    return ""


def build_message(kind: str, value: Mapping[str, Any]) -> Any:
    """A message of `google.cloud.aiplatform_v1` from what its REST API takes; unknown fields are refused."""
    with translate_errors("Vertex AI"):
        from google.cloud import aiplatform_v1
        from google.protobuf.json_format import ParseDict

        made = getattr(aiplatform_v1, kind)()
        ParseDict(value, type(made).pb(made))
        return made


def is_transient(error: PlaceError) -> bool:
    """Whether a request may have got through, or may do so next time: the service or the network was away."""
    from google.api_core import exceptions
    from requests import RequestException

    return isinstance(error.__cause__, exceptions.ServerError | exceptions.RetryError | RequestException)


def is_exhausted(error: PlaceError) -> bool:
    """Whether there was no room or no quota."""
    from google.api_core import exceptions

    return isinstance(error.__cause__, exceptions.TooManyRequests)


def reveal_secrets(environment: MutableMapping[str, str]) -> None:
    """Give a job the secrets that it is told the names of, as variables; one that is set stays as it is."""
    if not environment.get(SECRETS):
        return
    for name, version in json.loads(environment[SECRETS]).items():
        if name not in environment:
            answer = call_rest("secretmanager", "GET", f"v1/{version}:access")
            environment[name] = base64.b64decode(answer["payload"]["data"]).decode()


def call_rest(
    service: str,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    params: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What another service of Google's, such as `serviceusage`, answers at a path."""
    at = f"{find_rehearsal()}/-/{service}" if find_rehearsal() else f"https://{service}.googleapis.com"
    with translate_errors(service):
        return _send_request(method, f"{at}/{path}", body, params)


def log_entries(project_id: str, query: str, *, size: int = 1000) -> Iterator[dict[str, Any]]:
    """The entries of Cloud Logging that match, oldest first, as its REST API has them."""
    token = ""
    while True:
        asked = {
            "resourceNames": [f"projects/{project_id}"],
            "filter": query,
            "orderBy": "timestamp asc",
            "pageSize": size,
            **({"pageToken": token} if token else {}),
        }
        at = find_rehearsal() or "https://logging.googleapis.com"
        page = with_retries("Cloud Logging", partial(_send_request, "POST", f"{at}/v2/entries:list", asked))
        yield from page.get("entries", ())
        token = page.get("nextPageToken", "")
        if not token:
            return


def _send_request(
    method: str, address: str, body: Mapping[str, Any] | None, params: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A JSON answer; Google's errors are its own."""
    from google.api_core.exceptions import from_http_response

    response = _create_session().request(method, address, json=body, params=params, timeout=PATIENCE_S)
    if not response.ok:
        raise from_http_response(response)  # type: ignore[no-untyped-call]
    answer: dict[str, Any] = response.json() if response.content else {}
    return answer


def fetch_token() -> str:
    """An access token, for those of Google's services that take one as a password: its registries of images."""
    with translate_errors("Google Cloud"):
        from google.auth.transport.requests import Request

        held = _load_credentials()[0]
        if not held.valid:
            held.refresh(Request())
        return str(held.token)


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
def _load_credentials() -> tuple[Any, str]:
    """Credentials, and the project they belong to: a rehearsal's, or the default ones, as whom they may act for."""
    with translate_errors("Google Cloud"):
        import google.auth
        from google.auth import impersonated_credentials
        from google.auth.credentials import AnonymousCredentials
        from google.oauth2.credentials import Credentials

        if find_rehearsal() and not os.environ.get("GCE_METADATA_HOST"):  # its jobs have default credentials
            token = os.environ.get(TOKEN)
            return Credentials(token) if token else AnonymousCredentials(), REHEARSED_PROJECT  # type: ignore[no-untyped-call]
        held: Any
        held, owner = google.auth.default(scopes=SCOPES)
        if account := _gcloud_property("auth", "impersonate_service_account"):
            held = impersonated_credentials.Credentials(held, target_principal=account, target_scopes=list(SCOPES))  # type: ignore[no-untyped-call]
        return held, owner or ""


@cache
def _create_vertex_client(client: str, region: str) -> Any:
    from google.cloud import aiplatform_v1

    made = getattr(aiplatform_v1, client)
    if find_rehearsal():
        return made(
            credentials=_load_credentials()[0], transport="rest", client_options={"api_endpoint": find_rehearsal()}
        )
    at = {"api_endpoint": f"{region}-aiplatform.googleapis.com"}
    return made(credentials=_load_credentials()[0], client_options=at)


@cache
def _create_session() -> Any:
    from google.auth.transport.requests import AuthorizedSession

    return AuthorizedSession(_load_credentials()[0])  # type: ignore[no-untyped-call]


@cache
def storage_client() -> Any:
    """Of Cloud Storage; an emulator that is not the rehearsal wants no credentials."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    if os.environ.get("STORAGE_EMULATOR_HOST") and not find_rehearsal():
        return storage.Client(project=REHEARSED_PROJECT, credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]
    return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "none"), credentials=_load_credentials()[0])


def _clear_clients() -> None:
    """Clients belong to the place they were made for."""
    for made in (_load_credentials, _create_vertex_client, _create_session, storage_client):
        made.cache_clear()


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
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
        raise PlaceError(
            f"{what} may not be used: {first_line(error)}", hint=_suggest_permission(what, str(error))
        ) from error
    except (exceptions.Unauthorized, GoogleAuthError) as error:
        raise PlaceError(f"{what} needs Google credentials: {first_line(error)}", hint=LOG_IN) from error
    except exceptions.TooManyRequests as error:
        raise PlaceError(f"{what}: {first_line(error)}", hint=QUOTA_HINT) from error
    except exceptions.BadRequest as error:
        raise PlaceError(
            f"{what} refused: {first_line(error)}", hint="tagline check SPEC --on vertex tells more"
        ) from error
    except (exceptions.GoogleAPIError, RequestException) as error:
        raise PlaceError(f"{what}: {first_line(error)}", hint="try again; is the network there?") from error


def _suggest_permission(what: str, said: str) -> str:
    """What whoever runs this lacks: an API, or a role for the permission that is named."""
    if found := re.search(r"(?:Enable it by visiting|enable.*?)\s*(https://\S*apis/api/([\w.]+))", said):
        return f"gcloud services enable {found[2]}"
    for prefix, role in ROLES.items():
        if re.search(rf"\b{re.escape(prefix)}", said):
            return f"whoever runs this needs {role}"
    return f"whoever runs this needs {ROLES['storage.']} on the bucket" if what.startswith(SCHEME) else LOG_IN
