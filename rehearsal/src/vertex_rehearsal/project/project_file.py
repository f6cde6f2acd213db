"""Reads and validates project.json in the emulator's directory, at the start and after every change."""

import difflib
import json
import re
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from vertex_rehearsal import machines
from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.errors import InvalidSettings
from vertex_rehearsal.project import quotas
from vertex_rehearsal.project.project import EVERYWHERE, SERVICES, Project, Secret

NAME = "project.json"
LARGEST_SECRET = 65_536
PERMISSION = re.compile(r"\*|[a-z]+(\.[A-Za-z]+)*(\.[A-Za-z]+|\.\*)")
SECRET = re.compile(r"[A-Za-z0-9_-]{1,255}")
REPOSITORY = re.compile(r"([a-z]+[a-z0-9-]*)/([a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)")
IMAGE = re.compile(r"([a-z0-9-]+)-docker\.pkg\.dev/([a-z0-9.:-]+)/([a-z0-9-]+)/([a-z0-9._/-]+):([\w.-]{1,128})")
"""Region, project, repository, package and tag of an image in Artifact Registry."""
ACCOUNT = re.compile(r"[a-z0-9.-]+@([a-z0-9.-]+\.)?gserviceaccount\.com")


class ProjectFile:
    """The project described by a file that may change at any time."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._lock = threading.Lock()
        self._state: tuple[int, ...] = ()
        self._project: Project | InvalidSettings = Project()
        self._check_for_changes()
        if isinstance(self._project, InvalidSettings):
            raise self._project

    def load_current(self) -> Project:
        """Return the current project; raise FAILED_PRECONDITION while the file is invalid."""
        with self._lock:
            has_changed, project = self._check_for_changes(), self._project
        if isinstance(project, Project):
            return project
        if has_changed:
            sys.stderr.write(f"{project.message}\n")
        raise ApiError("FAILED_PRECONDITION", f"The rehearsal cannot go on: {project.message}")

    def _check_for_changes(self) -> bool:
        """Reload the file if it has changed and return whether it has; a missing file is an empty project."""
        try:
            stat = self.path.stat()
            state: tuple[int, ...] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except FileNotFoundError:
            state = ()
        if state == self._state:
            return False
        self._state = state
        try:
            self._project = read_project(self.path) if state else Project()
        except InvalidSettings as error:
            self._project = error
        return True


def read_project(path: Path) -> Project:
    """Read a project from its file; raise InvalidSettings with all problems at once."""
    try:
        content = json.loads(path.read_text("utf-8"), object_pairs_hook=_parse_pairs)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSettings(f"{path} cannot be read: {error}", hint="it is one object of JSON, in UTF-8") from error
    parser = _ProjectParser(path.parent)
    project = parser.parse_project(content)
    if parser.problems:
        raise InvalidSettings.from_problems(str(path), parser.problems)
    return project


def _parse_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f'"{next(key for key in keys if keys.count(key) > 1)}" is there twice')
    return content


class _ProjectParser:
    """Parses one file and collects its problems."""

    def __init__(self, directory: Path) -> None:
        self.problems: list[str] = []
        self._directory = directory

    def parse_project(self, content: Any) -> Project:
        """Parse the whole file."""
        if not isinstance(content, dict):
            self._add_problem("the file", "an object is expected")
            return Project()
        readers: dict[str, Callable[[Any, str], Any]] = {
            "disabled_services": self._parse_services,
            "denied_permissions": self._parse_permissions,
            "quotas": self._parse_quotas,
            "no_capacity": self._parse_no_capacity,
            "secrets": self._parse_secrets,
            "repositories": self._parse_repositories,
            "images": self._parse_images,
            "missing_accounts": self._parse_accounts,
        }
        fields = {}
        for key, value in content.items():
            if key in readers:
                fields[key] = readers[key](value, key)
            else:
                self._add_problem(key, f"no such key{_suggest_name(key, readers)}")
        return Project(**fields)

    def _add_problem(self, at: str, problem: str) -> None:
        self.problems.append(f"{at}: {problem}")

    def _parse_texts(self, value: Any, at: str) -> list[str]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        self._add_problem(at, "a list of texts is expected")
        return []

    def _parse_services(self, value: Any, at: str) -> frozenset[str]:
        known = {f"{name}.googleapis.com" for name in SERVICES}
        values = self._parse_texts(value, at)
        for name in values:
            if name not in known:
                self._add_problem(at, f"{name} is no API that is known here{_suggest_name(name, known)}")
        return frozenset(values)

    def _parse_permissions(self, value: Any, at: str) -> tuple[str, ...]:
        values = self._parse_texts(value, at)
        for name in values:
            if not PERMISSION.fullmatch(name):
                self._add_problem(at, f'"{name}" is no permission, as aiplatform.customJobs.create or storage.*')
        return tuple(values)

    def _parse_quotas(self, value: Any, at: str) -> dict[str, dict[str, int]]:
        values: dict[str, dict[str, int]] = {}
        for key, limits in self._parse_entries(value, at):
            metric = key.removeprefix(f"{quotas.SERVICE}/")
            where = f"{at}.{metric}"
            if metric not in quotas.METRICS:
                self._add_problem(where, f"no such metric{_suggest_name(metric, quotas.METRICS)}")
                continue
            values[metric] = {}
            for region, limit in (
                self._parse_entries(limits, where) if isinstance(limits, dict) else [(EVERYWHERE, limits)]
            ):
                if region not in machines.REGIONS and region != EVERYWHERE:
                    self._add_problem(
                        where, f"{region} is no region of Vertex AI{_suggest_name(region, machines.REGIONS)}"
                    )
                if type(limit) is not int or limit < -1:
                    self._add_problem(where, f"{json.dumps(limit)} is no limit: a number, 0 for none, -1 for any")
                else:
                    values[metric][region] = limit
        return values

    def _parse_no_capacity(self, value: Any, at: str) -> frozenset[str]:
        known = {*quotas.ACCELERATORS, *machines.WITH_CHOICE, *machines.WITH_THEIR_OWN, *machines.WITHOUT}
        values = self._parse_texts(value, at)
        for place in values:
            region, _, kind = place.partition("/")
            if region not in machines.REGIONS:
                self._add_problem(
                    at, f'"{place}": {region} is no region of Vertex AI{_suggest_name(region, machines.REGIONS)}'
                )
            if kind not in known:
                self._add_problem(
                    at, f'"{place}": REGION/ACCELERATOR or REGION/MACHINE is expected{_suggest_name(kind, known)}'
                )
        return frozenset(values)

    def _parse_secrets(self, value: Any, at: str) -> dict[str, Secret]:
        values = {}
        for name, entry in self._parse_entries(value, at):
            where = f"{at}.{name}"
            if not SECRET.fullmatch(name):
                self._add_problem(where, "a secret's name has letters, digits, - and _")
            if isinstance(entry, str):
                values[name] = Secret(entry)
            elif isinstance(entry, dict) and set(entry) == {"file"} and isinstance(entry["file"], str):
                values[name] = Secret(file=self._directory / entry["file"])
            else:
                self._add_problem(where, 'its value, or {"file": PATH}, is expected')
                continue
            try:
                if len(values[name].read()) > LARGEST_SECRET:
                    self._add_problem(where, f"a secret has at most {LARGEST_SECRET:,} bytes")
            except OSError as error:
                self._add_problem(where, f"{error.filename}: {error.strerror}")
        return values

    def _parse_repositories(self, value: Any, at: str) -> frozenset[str]:
        values = self._parse_texts(value, at)
        for name in values:
            if not REPOSITORY.fullmatch(name):
                self._add_problem(at, f'"{name}" is no repository: REGION/NAME is expected')
        return frozenset(values)

    def _parse_images(self, value: Any, at: str) -> tuple[str, ...]:
        values = self._parse_texts(value, at)
        for name in values:
            if not IMAGE.fullmatch(name):
                self._add_problem(
                    at, f'"{name}" is no image: REGION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE:TAG is expected'
                )
        return tuple(values)

    def _parse_accounts(self, value: Any, at: str) -> frozenset[str]:
        values = self._parse_texts(value, at)
        for name in values:
            if not ACCOUNT.fullmatch(name):
                self._add_problem(
                    at, f'"{name}" is no service account: NAME@PROJECT.iam.gserviceaccount.com is expected'
                )
        return frozenset(values)

    def _parse_entries(self, value: Any, at: str) -> list[tuple[str, Any]]:
        if isinstance(value, dict):
            return list(value.items())
        self._add_problem(at, "an object is expected")
        return []


def _suggest_name(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
