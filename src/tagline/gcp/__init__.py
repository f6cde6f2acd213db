"""Access to Google Cloud: its address, clients and credentials, and its errors as Tagline's.

Files, in the order of their imports:

- machines.py: Machine types, accelerators, regions and prices of Vertex AI, each as documented on its date.
- cloud_storage.py: Cloud Storage: buckets, and objects that are read and written with generation preconditions.
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
"""The environment variable that holds, in JSON, the secret versions to set as variables when a job starts."""
REHEARSAL, TOKEN = "REHEARSAL_ADDRESS", "REHEARSAL_TOKEN"
"""The environment variables with the emulator's address and token: set in its jobs, and by `use_rehearsal`."""
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
"""The role that grants a submitter of jobs the permissions with this prefix."""
Answer = TypeVar("Answer")
LOG_IN = "log in: gcloud auth application-default login; or set GOOGLE_APPLICATION_CREDENTIALS"


def find_rehearsal() -> str:
    """Return the address of the emulator in use in place of Google Cloud; "" for Google Cloud itself."""
    return os.environ.get(REHEARSAL, "").rstrip("/")


def find_place() -> str:
    """Return the name of the place in use, as `--on` takes it."""
    return "rehearsal" if find_rehearsal() else "vertex"


def rehearsal_facts() -> str:
    """Return the path of the file that describes the running emulator; "" if the emulator does not name one."""
    if not find_rehearsal():
        return ""
    with translate_errors("the rehearsal"):
        return str(_send_request("GET", f"{find_rehearsal()}/-/status", None).get("facts", ""))


@contextmanager
def use_rehearsal(address: str, token: str = "") -> Iterator[None]:
    """Use an emulator in place of Google Cloud, as its own jobs do."""
    variables = {REHEARSAL: address, TOKEN: token, "STORAGE_EMULATOR_HOST": address}
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
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
    """Return the project to work in: this one, or that of the environment, of gcloud, or of the credentials."""
    if project := find_configured_project(given):
        return project
    with suppress(PlaceError):
        if project := _load_credentials()[1]:
            return project
    raise SpecError(
        "no Google Cloud project is named", hint="set vertex.project, or: gcloud config set project PROJECT"
    )


def find_configured_project(given: str = "") -> str:
    """Return the project as far as it is known without credentials and network; "" if it is not."""
    if project := given or os.environ.get("GOOGLE_CLOUD_PROJECT") or os.environ.get("CLOUDSDK_CORE_PROJECT", ""):
        return project
    return REHEARSED_PROJECT if find_rehearsal() else _gcloud_property("core", "project")


def sign_in() -> None:
    """Check that there are valid credentials, refreshing them if needed; an emulator accepts any."""
    credentials = _load_credentials()[0]
    if not find_rehearsal() and not credentials.valid:
        with translate_errors("Google Cloud"):
            from google.auth.transport.requests import Request

            credentials.refresh(Request())


def vertex_client(client: str, region: str) -> Any:
    """Return a client of `google.cloud.aiplatform_v1`, such as JobServiceClient, for a region."""
    with translate_errors(f"Vertex AI in {region}"):
        return _create_vertex_client(client, region)


def require_clients(what: str) -> None:
    """Raise PlaceError if Google's client libraries are not installed."""
    module = None
    with suppress(ModuleNotFoundError):  # of a parent package
        module = find_spec("google.cloud.aiplatform_v1")
    if module is None:
        raise PlaceError(f"{what} needs google-cloud-aiplatform, which is not installed", hint=INSTALL)


def with_retries(what: str, call: Callable[[], Answer]) -> Answer:
    """Call a function, retrying for a while on transient errors and on concurrent modification."""
    with translate_errors(what):
        from google.api_core.retry import Retry, if_transient_error

        retry = Retry(
            predicate=lambda error: if_transient_error(error) or _read_status(error) == "ABORTED", timeout=PATIENCE_S
        )
        answer: Answer = retry(call)()
        return answer


def get_or_none(what: str, get: Callable[[], Answer]) -> Answer | None:
    """Get a resource, or None if it does not exist."""
    try:
        return with_retries(what, get)
    except PlaceError as error:
        if _read_status(error.__cause__) == "NOT_FOUND":
            return None
        raise


def get_or_create(what: str, get: Callable[[], Answer], create: Callable[[], Answer]) -> Answer:
    """Get a resource, or create it; if another process creates it at the same time, get that one."""
    if (resource := get_or_none(what, get)) is not None:
        return resource
    try:
        return with_retries(what, create)
    except PlaceError as error:
        if _read_status(error.__cause__) == "ALREADY_EXISTS":
            return with_retries(what, get)
        raise


def _read_status(error: BaseException | None) -> str:
    """Return the canonical code of a Google error; REST raises one exception for codes that gRPC tells apart."""
    if code := getattr(error, "grpc_status_code", None):
        return str(code.name)
    with suppress(AttributeError, ValueError, KeyError, TypeError):
        return str(error.response.json()["error"]["status"])  # type: ignore[union-attr]
    return ""


def build_message(kind: str, value: Mapping[str, Any]) -> Any:
    """Build a message of `google.cloud.aiplatform_v1` from its REST form; unknown fields are refused."""
    with translate_errors("Vertex AI"):
        from google.cloud import aiplatform_v1
        from google.protobuf.json_format import ParseDict

        message = getattr(aiplatform_v1, kind)()
        ParseDict(value, type(message).pb(message))
        return message


def is_transient(error: PlaceError) -> bool:
    """Return whether the service or the network failed, so that the request may have succeeded or may on a retry."""
    from google.api_core import exceptions
    from requests import RequestException

    return isinstance(error.__cause__, exceptions.ServerError | exceptions.RetryError | RequestException)


def is_exhausted(error: PlaceError) -> bool:
    """Return whether an error means that capacity or quota is exhausted."""
    from google.api_core import exceptions

    return isinstance(error.__cause__, exceptions.TooManyRequests)


def reveal_secrets(environment: MutableMapping[str, str]) -> None:
    """Set the secrets named for a job as environment variables; variables already set stay as they are."""
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
    """Return the response of another Google service, such as `serviceusage`, host a path."""
    host = f"{find_rehearsal()}/-/{service}" if find_rehearsal() else f"https://{service}.googleapis.com"
    with translate_errors(service):
        return _send_request(method, f"{host}/{path}", body, params)


def log_entries(project_id: str, query: str, *, size: int = 1000) -> Iterator[dict[str, Any]]:
    """Yield the Cloud Logging entries that match a query, oldest first, as its REST API returns them."""
    token = ""
    while True:
        request = {
            "resourceNames": [f"projects/{project_id}"],
            "filter": query,
            "orderBy": "timestamp asc",
            "pageSize": size,
            **({"pageToken": token} if token else {}),
        }
        host = find_rehearsal() or "https://logging.googleapis.com"
        page = with_retries("Cloud Logging", partial(_send_request, "POST", f"{host}/v2/entries:list", request))
        yield from page.get("entries", ())
        token = page.get("nextPageToken", "")
        if not token:
            return


def _send_request(
    method: str, address: str, body: Mapping[str, Any] | None, params: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Send a request and return the JSON response; Google's errors are raised as they are."""
    from google.api_core.exceptions import from_http_response

    response = _create_session().request(method, address, json=body, params=params, timeout=PATIENCE_S)
    if not response.ok:
        raise from_http_response(response)  # type: ignore[no-untyped-call]
    answer: dict[str, Any] = response.json() if response.content else {}
    return answer


def fetch_token() -> str:
    """Return an access token, for Google services that take one as a password: its image registries."""
    with translate_errors("Google Cloud"):
        from google.auth.transport.requests import Request

        credentials = _load_credentials()[0]
        if not credentials.valid:
            credentials.refresh(Request())
        return str(credentials.token)


def _gcloud_property(section: str, name: str) -> str:
    """Return a property of gcloud's active configuration, without running gcloud."""
    if value := os.environ.get(f"CLOUDSDK_{section}_{name}".upper()):
        return value
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
    """Return credentials and their project: the emulator's, or the default ones, with impersonation if configured."""
    with translate_errors("Google Cloud"):
        import google.auth
        from google.auth import impersonated_credentials
        from google.auth.credentials import AnonymousCredentials
        from google.oauth2.credentials import Credentials

        if find_rehearsal() and not os.environ.get("GCE_METADATA_HOST"):  # the emulator's jobs have default credentials
            token = os.environ.get(TOKEN)
            return Credentials(token) if token else AnonymousCredentials(), REHEARSED_PROJECT  # type: ignore[no-untyped-call]
        credentials: Any
        credentials, project = google.auth.default(scopes=SCOPES)
        if account := _gcloud_property("auth", "impersonate_service_account"):
            credentials = impersonated_credentials.Credentials(
                credentials, target_principal=account, target_scopes=list(SCOPES)
            )  # type: ignore[no-untyped-call]
        return credentials, project or ""


@cache
def _create_vertex_client(client: str, region: str) -> Any:
    from google.cloud import aiplatform_v1

    client_class = getattr(aiplatform_v1, client)
    if find_rehearsal():
        return client_class(
            credentials=_load_credentials()[0], transport="rest", client_options={"api_endpoint": find_rehearsal()}
        )
    options = {"api_endpoint": f"{region}-aiplatform.googleapis.com"}
    return client_class(credentials=_load_credentials()[0], client_options=options)


@cache
def _create_session() -> Any:
    from google.auth.transport.requests import AuthorizedSession

    return AuthorizedSession(_load_credentials()[0])  # type: ignore[no-untyped-call]


@cache
def storage_client() -> Any:
    """Return a Cloud Storage client; another emulator than ours is used without credentials."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    if os.environ.get("STORAGE_EMULATOR_HOST") and not find_rehearsal():
        return storage.Client(project=REHEARSED_PROJECT, credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]
    return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "none"), credentials=_load_credentials()[0])


def _clear_clients() -> None:
    """Drop cached clients and credentials, which belong to the place they were created for."""
    for cached in (_load_credentials, _create_vertex_client, _create_session, storage_client):
        cached.cache_clear()


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate Google's errors to Tagline's, each with a hint; `what` is an address, or the operation."""
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


def _suggest_permission(what: str, message: str) -> str:
    """Return what the caller lacks: an API to enable, or a role for the permission that the error names."""
    if match := re.search(r"(?:Enable it by visiting|enable.*?)\s*(https://\S*apis/api/([\w.]+))", message):
        return f"gcloud services enable {match[2]}"
    for prefix, role in ROLES.items():
        if re.search(rf"\b{re.escape(prefix)}", message):
            return f"whoever runs this needs {role}"
    return f"whoever runs this needs {ROLES['storage.']} on the bucket" if what.startswith(SCHEME) else LOG_IN
