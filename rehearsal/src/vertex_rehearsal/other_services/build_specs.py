"""Validation of a build's specification and its substitutions, before the build is accepted."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument

BUILDER = re.compile(r"gcr\.io/cloud-builders/docker(:[\w.-]+|@sha256:[0-9a-f]{64})?")
COMMANDS = ("build", "push", "tag", "pull")
READ = (
    "source", "steps", "images", "logsBucket", "timeout", "tags", "substitutions", "options", "serviceAccount",
)  # fmt: skip
"""Fields of a build that are kept."""
FOR_STEPS = ("name", "args", "env", "dir", "id", "waitFor", "entrypoint", "timeout")
LOGGING = {1: "LEGACY", 2: "GCS_ONLY", 3: "STACKDRIVER_ONLY", 4: "NONE", 5: "CLOUD_LOGGING_ONLY"}
"""By the enum numbers that the Python clients send."""
NEEDS_LOG = (
    "if 'build.service_account' is specified, the build must either (a) specify 'build.logs_bucket', (b) use the "
    "REGIONAL_USER_OWNED_BUCKET build.options.default_logs_bucket_behavior option, or (c) use either "
    "CLOUD_LOGGING_ONLY / NONE logging options"
)
LONGEST_S = 24 * 3600
DEFAULT_S = 3600
SUBSTITUTION = re.compile(r"\$(?:\$|\{(\w+)\}|(_?[A-Z][A-Z0-9_]*))")


def validate_build(body: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """Return a build with its substitutions applied; refuse it with the field at fault."""
    build = {key: body[key] for key in READ if body.get(key)}
    values = {**known, **_read_substitutions(build)}
    build["steps"] = [
        _validate_step(step, f"build.steps[{number}]", values) for number, step in enumerate(_read_steps(body))
    ]
    build["images"] = [
        _fill_substitutions(image, values, "build.images")
        for image in _require_texts(build.get("images"), "build.images")
    ]
    _check_source(build)
    build["timeout"] = f"{parse_duration(build.get('timeout', f'{DEFAULT_S}s'), 'build.timeout'):g}s"
    owns_log = build.get("logsBucket") or read_logging(build) in ("CLOUD_LOGGING_ONLY", "NONE")
    if build.get("serviceAccount") and not owns_log:
        raise invalid_argument("build.logs_bucket", NEEDS_LOG)
    return build


def read_logging(build: Mapping[str, Any]) -> str:
    """Return the logging mode of a build."""
    value = build.get("options", {}).get("logging", "LEGACY")
    mode = LOGGING.get(value, value) if isinstance(value, int) else value
    return "CLOUD_LOGGING_ONLY" if mode == "STACKDRIVER_ONLY" else str(mode)


def parse_duration(duration: Any, at: str) -> float:
    """Parse a duration such as 600s."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)s", duration) if isinstance(duration, str) else None
    if not match or not 0 < float(match[1]) <= LONGEST_S:
        raise invalid_argument(at, f'"{duration}" is no duration up to {LONGEST_S}s, as 600s.')
    return float(match[1])


def _read_substitutions(build: Mapping[str, Any]) -> dict[str, str]:
    substitutions = build.get("substitutions", {})
    for name, value in substitutions.items() if isinstance(substitutions, dict) else [("", substitutions)]:
        if not re.fullmatch(r"_[A-Z0-9_]+", name) or not isinstance(value, str):
            raise invalid_argument(
                "build.substitutions", f'"{name}" is no substitution: _NAME and a text are expected.'
            )
    return dict(substitutions)


def _read_steps(body: Mapping[str, Any]) -> Sequence[Any]:
    steps = body.get("steps")
    if not isinstance(steps, list) or not steps:
        raise invalid_argument("build.steps", "invalid build: no build steps were specified")
    return steps


def _validate_step(step: Any, at: str, values: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(step, dict):
        raise invalid_argument(at, "An object is expected.")
    name = step.get("name", "")
    if not isinstance(name, str) or not BUILDER.fullmatch(name):
        text = f'The builder "{name}" is not played by this rehearsal: gcr.io/cloud-builders/docker is.'
        raise ApiError("UNIMPLEMENTED", text, f"{at}.name")
    if unknown := sorted({key for key, value in step.items() if value} - set(FOR_STEPS)):
        raise ApiError(
            "UNIMPLEMENTED", f"{unknown[0]} of a step is not played by this rehearsal.", f"{at}.{unknown[0]}"
        )
    if step.get("entrypoint", "") not in ("", "docker"):
        raise ApiError("UNIMPLEMENTED", "Entrypoints other than docker are not played.", f"{at}.entrypoint")
    arguments = [
        _fill_substitutions(word, values, f"{at}.args") for word in _require_texts(step.get("args"), f"{at}.args")
    ]
    if not arguments or arguments[0] not in COMMANDS:
        text = f"Of docker, {', '.join(COMMANDS)} are played, not {' '.join(arguments[:1]) or 'nothing'}."
        raise ApiError("UNIMPLEMENTED", text, f"{at}.args")
    directory = PurePosixPath(step.get("dir", ""))
    if directory.is_absolute() or ".." in directory.parts:
        raise ApiError("UNIMPLEMENTED", "Only directories of the source are played.", f"{at}.dir")
    variables = [
        _fill_substitutions(word, values, f"{at}.env") for word in _require_texts(step.get("env"), f"{at}.env")
    ]
    if malformed := [word for word in variables if "=" not in word]:
        raise invalid_argument(f"{at}.env", f'"{malformed[0]}" is no variable: NAME=VALUE is expected.')
    if step.get("timeout"):
        parse_duration(step["timeout"], f"{at}.timeout")
    return step | {"args": arguments, "env": variables}


def _check_source(build: Mapping[str, Any]) -> None:
    source = build.get("source")
    if source is None:
        return
    if not isinstance(source, dict) or set(source) != {"storageSource"}:
        raise ApiError("UNIMPLEMENTED", "Of sources, an archive in a bucket is played: storageSource.", "build.source")
    archive = source["storageSource"]
    for key in ("bucket", "object"):
        if not isinstance(archive, dict) or not isinstance(archive.get(key), str) or not archive[key]:
            at = f"build.source.storage_source.{key}"
            raise invalid_argument(at, f"invalid build: source.storage_source.{key} is empty")
    if not archive["object"].endswith((".tar.gz", ".tgz", ".zip")):
        raise invalid_argument(
            "build.source.storage_source.object", "the source must be a .tar.gz, .tgz or .zip archive"
        )


def _require_texts(value: Any, at: str) -> list[str]:
    if value is None or (isinstance(value, list) and all(isinstance(text, str) for text in value)):
        return value or []
    raise invalid_argument(at, "A list of texts is expected.")


def _fill_substitutions(text: str, values: Mapping[str, str], at: str) -> str:
    """Replace $PROJECT_ID, ${_MINE} and the like in a text; $$ is a dollar."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            return "$"
        if name not in values:
            raise invalid_argument(at, f'key in the template "{name}" is not a valid built-in substitution')
        return values[name]

    return SUBSTITUTION.sub(value, text)
