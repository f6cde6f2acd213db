"""The metadata server of Google Cloud's machines, from which jobs get application default credentials."""

import os
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from vertex_rehearsal.connections import HAS_KEY

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
HEADERS = {"Metadata-Flavor": "Google"}
ROOT = "/computeMetadata/v1/"


class MetadataServer:
    """Serves metadata of the project, the machine and its service account."""

    def __init__(self, token: str, *, project: str = "rehearsal", number: str = "100000000000") -> None:
        self._token = token
        self._account = f"{number}-compute@developer.gserviceaccount.com"
        self._texts = {
            "project/project-id": project,
            "project/numeric-project-id": number,
            "instance/id": "1",
            "instance/zone": f"projects/{number}/zones/us-central1-a",
            "universe/universe-domain": "googleapis.com",
            "universe/universe_domain": "googleapis.com",
        }

    async def handle_request(self, request: Request) -> Response:
        """Answer a metadata request; 403 without the Metadata-Flavor header."""
        if request.headers.get("metadata-flavor") != "Google":
            return PlainTextResponse("Missing Metadata-Flavor:Google header.", 403, HEADERS)
        path = request.scope["path"].removeprefix(ROOT.rstrip("/")).strip("/")
        if path in self._texts:
            return PlainTextResponse(self._texts[path], headers=HEADERS)
        kind, _, rest = path.removeprefix("instance/").partition("/")
        if kind != "service-accounts":
            inside = self._list_directory(path)
            return PlainTextResponse(inside or "not found", 200 if inside else 404, HEADERS)
        name, _, item = rest.partition("/")
        if name not in ("default", self._account):
            return PlainTextResponse(
                f"default/\n{self._account}/\n" if not name else "not found", 404 if name else 200, HEADERS
            )
        return self._answer_account(request, item)

    def _list_directory(self, path: str) -> str:
        """Return the names in a directory, one per line; Node's client requests one to detect the server."""
        below = f"{path}/" if path else ""
        names = (*self._texts, "instance/service-accounts/default")
        steps = {name.removeprefix(below).partition("/")[:2] for name in names if name.startswith(below)}
        return "".join(f"{step}{slash}\n" for step, slash in sorted(steps))

    def _answer_account(self, request: Request, item: str) -> Response:
        if item == "token":
            has_key = request.scope.get("extensions", {}).get(HAS_KEY, False)
            if self._token and not has_key and not is_same_user(request):
                text = "The token is for processes of the same user, and for addresses that hold it."
                return PlainTextResponse(text, 403, HEADERS)
            token = {"access_token": self._token or "rehearsal", "expires_in": 3599, "token_type": "Bearer"}
            return JSONResponse(token, headers=HEADERS)
        about: dict[str, Any] = {"email": self._account, "scopes": [SCOPE], "aliases": ["default"]}
        if item == "":
            return JSONResponse(about, headers=HEADERS)
        if item == "email":
            return PlainTextResponse(self._account, headers=HEADERS)
        if item == "scopes":
            return PlainTextResponse(f"{SCOPE}\n", headers=HEADERS)
        return PlainTextResponse("not found", 404, HEADERS)


def is_same_user(request: Request) -> bool:
    """Whether the peer of a loopback connection belongs to the same user or to root; False if unknown."""
    if request.client is None:
        return False
    host, port = request.client
    packed = "".join(f"{int(part):02X}" for part in reversed(host.split(".")))
    try:
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return False
    users = {fields[7] for line in lines if (fields := line.split())[1] == f"{packed}:{port:04X}"}
    return bool(users) and users <= {str(os.getuid()), "0"}
