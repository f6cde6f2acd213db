"""A small model server for tests of the rehearsal's endpoints, and the JSON of what holds it."""

from typing import Any

from rehearsing import PARENT, Rehearsal, until

IMAGE = "us-docker.pkg.dev/demo/repository/local-serving:1"
MACHINE = {"machineType": "n1-standard-2"}
SERVER = """
import http.server, json, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, content):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    def do_GET(self):
        self.answer(200 if self.path == os.environ["AIP_HEALTH_ROUTE"] else 404, b"")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Type"] != "application/json":
            return self.answer(200, body[::-1])
        given = json.loads(body)
        about = {
            "environment": {k: v for k, v in os.environ.items() if k.startswith(("AIP_", "GREETING"))},
            "parameters": given.get("parameters"), "port": os.environ["AIP_HTTP_PORT"],
        }
        found = []
        for one in given["instances"]:
            one = one if isinstance(one, dict) else {"text": one}
            if one.get("die"):
                os._exit(3)
            if one.get("status"):
                return self.answer(int(one["status"]), {"error": one["text"]})
            if one.get("nonsense"):
                return self.answer(200, b"[1]")
            if one.get("wait"):
                time.sleep(one["wait"])
            while "until" in one and not os.path.exists(one["until"]):
                time.sleep(0.02)
            found.append({"text": one.get("text"), **about})
        self.answer(200, {"predictions": found})
    def log_message(self, *_):
        pass
print("serving", flush=True)
http.server.ThreadingHTTPServer.request_queue_size = 200
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["AIP_HTTP_PORT"])), Handler).serve_forever()
"""


def container(code: str = SERVER, **more: Any) -> dict[str, Any]:
    """A model's container, which is a bare Python process."""
    routes = {"predictRoute": "/predict", "healthRoute": "/health"}
    return {"imageUri": IMAGE, "command": ["python", "-S", "-c", code], **routes, **more}


def done(rehearsal: Rehearsal, answer: tuple[int, Any]) -> dict[str, Any]:
    """What an operation answers, or its error."""
    status, begun = answer
    assert status == 200, begun
    ended = until(
        lambda: (now := rehearsal.http("GET", f"/v1/{begun['name']}")[1]).get("done") and now, "an operation to be done"
    )
    return {"error": ended["error"]} if "error" in ended else dict(ended["response"])


def upload(rehearsal: Rehearsal, spec: dict[str, Any] | None = None, *, name: str = "a model", **more: Any) -> str:
    """A new model's name."""
    body = {"model": {"displayName": name, "containerSpec": spec or container(), **more}}
    return str(done(rehearsal, rehearsal.http("POST", f"/v1/{PARENT}/models:upload", body))["model"])


def endpoint(rehearsal: Rehearsal, name: str = "an endpoint") -> str:
    """A new endpoint's name."""
    return str(done(rehearsal, rehearsal.http("POST", f"/v1/{PARENT}/endpoints", {"displayName": name}))["name"])


def deploy(rehearsal: Rehearsal, place: str, model: str, *, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """The deployed model, or the error of the operation."""
    resources = {"machineSpec": MACHINE, "minReplicaCount": replicas}
    body = {"deployedModel": {"model": model, "dedicatedResources": resources}, "trafficSplit": {"0": 100}, **more}
    return done(rehearsal, rehearsal.http("POST", f"/v1/{place}:deployModel", body))
