"""Runs found by name, here or in a bucket: listed, opened, downloaded, and their bundles."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tagline.errors import Conflict, NameTaken, RunError
from tagline.gcp import cloud_storage
from tagline.prediction.bundle import MANIFEST
from tagline.runs.remote import STATE, TRIES, MirroredRun, create_remote_run
from tagline.runs.run import (
    Run,
    RunState,
    age_sort_key,
    check_name,
    is_run,
)
from tagline.runs.run import list_runs as list_local_runs
from tagline.spec import Spec
from tagline.storage import addresses, atomic


def new_run(where: str | Path, spec: Spec, lock: dict[str, Any], *, name: str = "") -> Run:
    """A new run in a directory or in Cloud Storage; a name of the user's own may be given."""
    if addresses.is_remote(where):
        return create_remote_run(str(where), name, spec, lock)
    return Run.create(addresses.require_local(where), spec, lock, name=name)


def check_name_free(name: str, where: str | Path) -> None:
    """Refuse a name that no run can have, or that one in this directory has; in a bucket that turns out later."""
    check_name(name)
    if not addresses.is_remote(where) and (addresses.require_local(where) / name).exists():
        hint = f"another --name; or remove it: tagline runs delete {name}"
        raise NameTaken(f"there is a run {name} in {where} already", hint=hint)


def open_run(address: str) -> Run:
    """The run of this address, which is known to be one."""
    return MirroredRun(address) if addresses.is_remote(address) else Run(Path(address))


def list_runs(where: str | Path) -> list[Run]:
    """The runs in a directory or below an address in Cloud Storage, oldest first."""
    if not addresses.is_remote(where):
        return list_local_runs(addresses.require_local(where))
    top = str(where).rstrip("/")
    found: dict[str, MirroredRun] = {}
    for each in cloud_storage.list_objects(f"{top}/"):
        name, _, rest = each.address.removeprefix(f"{top}/").partition("/")
        if rest:
            run = found.get(name) or found.setdefault(name, MirroredRun(f"{top}/{name}"))
            run._there[rest] = each
    return sorted((run for run in found.values() if run._is_run()), key=age_sort_key)


def find_run(name: str, where: str | Path) -> Run:
    """A run by its path, its address, its name, or `last` for the newest."""
    if addresses.is_remote(name):
        return MirroredRun.at(name)
    if name == "last":
        if not (known := list_runs(where)):
            raise _make_no_run_error(where)
        return known[-1]
    if is_run(addresses.require_local(name)):
        return Run(addresses.require_local(name))
    if addresses.is_remote(where):
        return MirroredRun.at(f"{str(where).rstrip('/')}/{name}")
    if is_run(addresses.require_local(where) / name):
        return Run(addresses.require_local(where) / name)
    raise RunError(_describe_missing(name, where, what="run"), hint=f"tagline runs list shows those in {where}")


def find_last_with_bundle(where: str | Path) -> tuple[Run, list[Run]]:
    """The newest run that has a bundle, and the newer ones that have none; an error where no run has one."""
    without: list[Run] = []
    for run in reversed(list_runs(where)):
        if _has_bundle(run):
            return run, without
        without.append(run)
    raise _make_no_bundle_error(without[0]) if without else _make_no_run_error(where)


def find_bundle(name: str, where: str | Path) -> Path:
    """A bundle's directory from its own path or address, or from the run that made it."""
    return addresses.fetch_copy(locate_bundle(name, where))


def locate_bundle(name: str, where: str | Path) -> str | Path:
    """Where a bundle is: its directory, or its address in Cloud Storage, at which another may stand some day."""
    if addresses.is_remote(name):
        return _find_bundle_address(name.rstrip("/"))
    path = addresses.require_local(name)
    if (path / MANIFEST).is_file():
        return path
    try:
        run = find_last_with_bundle(where)[0] if name == "last" else find_run(name, where)
    except RunError as error:
        if name == "last" or addresses.is_remote(where):
            raise
        if not path.exists():
            hint = f"tagline runs list shows the runs in {where}; a bundle is the directory bundle/ inside a run"
            raise RunError(_describe_missing(name, where, what="run or bundle"), hint=hint) from error
        return path
    if addresses.is_remote(run.address):
        return _find_bundle_address(run.address)
    if not run.bundle.is_dir():
        raise _make_no_bundle_error(run)
    return run.bundle


def _find_bundle_address(address: str) -> str:
    """Of the bundle in a run; where there is no run, the address itself: reading it says what is there."""
    if cloud_storage.object_at(f"{address}/bundle/{MANIFEST}"):
        return f"{address}/bundle"
    try:
        run = MirroredRun.at(address)
    except RunError:
        return address
    raise _make_no_bundle_error(run)


def download_run(address: str, where: Path) -> Run:
    """A copy of a run that is in Cloud Storage, without its checkpoints, in a directory of runs: whole or not at all.

    One that was brought before is replaced if the run has gone on since.
    """
    run = MirroredRun.at(address)
    home = where / run.name
    for _ in range(TRIES):
        if is_run(home):
            here, there = Run(home)._read_as(RunState, STATE), run._read_as(RunState, STATE)
            if here.created != there.created:
                raise RunError(f"{home} is another run", hint="remove it, or name another place with --runs DIR")
            if here == there:
                return Run(home)
        left_out = ("checkpoints/",) if f"bundle/{MANIFEST}" in run._there else ("checkpoints/", "bundle/")
        wanted = [each for name, each in run._there.items() if not name.startswith(left_out)]
        try:
            with atomic.writing_directory(home) as scratch:
                addresses.copy_down(wanted, scratch, below=run.address)
                atomic.remove_directory(home)
        except Conflict:
            run.refresh()
            continue
        return Run(home)
    raise Conflict(f"{run.address} changes faster than it can be read", hint="try again")


def _has_bundle(run: Run) -> bool:
    """Whether a run has a complete bundle, without bringing it here."""
    if isinstance(run, MirroredRun):
        return f"bundle/{MANIFEST}" in run._there
    return (run.bundle / MANIFEST).is_file()


def _make_no_run_error(where: str | Path) -> RunError:
    return RunError(f"there is no run in {where}", hint="tagline train DATA makes one")


def _describe_missing(name: str, where: str | Path, *, what: str) -> str:
    """The sentence for a name that is nothing's, with the one that it is closest to."""
    close = get_close_matches(name, ["last", *(run.name for run in list_runs(where))], n=1)
    return f"there is no {what} {name}" + (f"; did you mean {close[0]}?" if close else "")


def _make_no_bundle_error(run: Run) -> RunError:
    state = run.state()
    return RunError(f"run {run.name} has no bundle: it is {state.name}", hint=state.reason)
