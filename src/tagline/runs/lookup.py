"""Runs found by name, here or in a bucket: listed, opened, downloaded, and their bundles."""

from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

from tagline.errors import Conflict, NameTaken, RunError, TaglineError
from tagline.gcp import cloud_storage
from tagline.prediction.bundle import MANIFEST
from tagline.runs.names import LAST, STAMP, STAMPED, check_name
from tagline.runs.run import Run
from tagline.runs.stores.bucket import TRIES, BucketStore, list_stores
from tagline.storage import addresses, atomic


def check_name_free(name: str, where: str | Path) -> None:
    """Refuse a name that no run can have, or that one in this directory has; in a bucket that turns out later."""
    check_name(name)
    if not addresses.is_remote(where) and (addresses.require_local(where) / name).exists():
        hint = f"another --name; or remove it: tagline runs delete {name}"
        raise NameTaken(f"there is a run {name} in {where} already", hint=hint)


def list_runs(where: str | Path) -> list[Run]:
    """The runs in a directory or below an address in Cloud Storage, oldest first."""
    if addresses.is_remote(where):
        found = [Run(store) for store in list_stores(str(where))]
    else:
        directory, hidden = addresses.require_local(where), atomic.SCRATCH_PREFIX
        paths = directory.iterdir() if directory.is_dir() else ()
        found = [Run(path) for path in paths if not path.name.startswith(hidden)]
    return sorted((run for run in found if run.exists()), key=_age_sort_key)


def _age_sort_key(run: Run) -> tuple[str, str]:
    """What sorts runs from the oldest to the newest: the time in the name or, where a user chose it, in the state."""
    if found := STAMPED.match(run.name):
        return found[1], run.name
    with suppress(TaglineError, ValueError):
        return datetime.fromisoformat(run.created()).astimezone(UTC).strftime(STAMP), run.name
    return "", run.name


def find_run(name: str, where: str | Path) -> Run:
    """A run by its path, its address, its name, or `last` for the newest."""
    if addresses.is_remote(name):
        return Run.open(name)
    if name == LAST:
        if not (known := list_runs(where)):
            raise _make_no_run_error(where)
        return known[-1]
    if (run := Run(addresses.require_local(name))).exists():
        return run
    if addresses.is_remote(where):
        return Run.open(f"{str(where).rstrip('/')}/{name}")
    if (run := Run(addresses.require_local(where) / name)).exists():
        return run
    raise RunError(_describe_missing(name, where, what="run"), hint=f"tagline runs list shows those in {where}")


def find_last_with_bundle(where: str | Path) -> tuple[Run, list[Run]]:
    """The newest run that has a bundle, and the newer ones that have none; an error where no run has one."""
    without: list[Run] = []
    for run in reversed(list_runs(where)):
        if run.has_bundle():
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
        run = find_last_with_bundle(where)[0] if name == LAST else find_run(name, where)
    except RunError as error:
        if name == LAST or addresses.is_remote(where):
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
        run = Run.open(address)
    except RunError:
        return address
    raise _make_no_bundle_error(run)


def download_run(address: str, where: Path) -> Run:
    """A copy of a run that is in Cloud Storage, without its checkpoints, in a directory of runs: whole or not at all.

    One that was brought before is replaced if the run has gone on since.
    """
    store = BucketStore(address)
    run = Run.open(store)
    home = Run(where / run.name)
    for _ in range(TRIES):
        if home.exists():
            here, there = home.recorded_state(), run.recorded_state()
            if here.created != there.created:
                raise RunError(
                    f"{home.address} is another run", hint="remove it, or name another place with --runs DIR"
                )
            if here == there:
                return home
        try:
            with atomic.writing_directory(home.directory) as scratch:
                store.download(scratch, without=("checkpoints",) if run.has_bundle() else ("checkpoints", "bundle"))
                atomic.remove_directory(home.directory)
        except Conflict:
            run.refresh()
            continue
        return home
    raise Conflict(f"{run.address} changes faster than it can be read", hint="try again")


def _make_no_run_error(where: str | Path) -> RunError:
    return RunError(f"there is no run in {where}", hint="tagline train DATA makes one")


def _describe_missing(name: str, where: str | Path, *, what: str) -> str:
    """The sentence for a name that is nothing's, with the one that it is closest to."""
    close = get_close_matches(name, [LAST, *(run.name for run in list_runs(where))], n=1)
    return f"there is no {what} {name}" + (f"; did you mean {close[0]}?" if close else "")


def _make_no_bundle_error(run: Run) -> RunError:
    state = run.state()
    return RunError(f"run {run.name} has no bundle: it is {state.name}", hint=state.reason)
