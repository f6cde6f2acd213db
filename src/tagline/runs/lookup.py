"""Lookup of runs by name, local or in a bucket: listing, opening, downloading, and their bundles."""

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
    """Raise an error for an invalid name, or one taken in this directory; in a bucket, creation checks that."""
    check_name(name)
    if not addresses.is_remote(where) and (addresses.require_local(where) / name).exists():
        hint = f"another --name; or remove it: tagline runs delete {name}"
        raise NameTaken(f"there is a run {name} in {where} already", hint=hint)


def list_runs(where: str | Path) -> list[Run]:
    """Return the runs in a directory or below an address in Cloud Storage, oldest first."""
    if addresses.is_remote(where):
        runs = [Run(store) for store in list_stores(str(where))]
    else:
        directory, hidden = addresses.require_local(where), atomic.SCRATCH_PREFIX
        paths = directory.iterdir() if directory.is_dir() else ()
        runs = [Run(path) for path in paths if not path.name.startswith(hidden)]
    return sorted((run for run in runs if run.exists()), key=_age_sort_key)


def _age_sort_key(run: Run) -> tuple[str, str]:
    """Return the sort key of a run's age: the time in its name or, if a user chose that, in its state."""
    if found := STAMPED.match(run.name):
        return found[1], run.name
    with suppress(TaglineError, ValueError):
        return datetime.fromisoformat(run.created()).astimezone(UTC).strftime(STAMP), run.name
    return "", run.name


def find_run(name: str, where: str | Path) -> Run:
    """Find a run by its path, its address, its name, or `last` for the newest."""
    if addresses.is_remote(name):
        return Run.open(name)
    if name == LAST:
        if not (runs := list_runs(where)):
            raise _make_no_run_error(where)
        return runs[-1]
    if (run := Run(addresses.require_local(name))).exists():
        return run
    if addresses.is_remote(where):
        return Run.open(f"{str(where).rstrip('/')}/{name}")
    if (run := Run(addresses.require_local(where) / name)).exists():
        return run
    raise RunError(_describe_missing(name, where, what="run"), hint=f"tagline runs list shows those in {where}")


def find_last_with_bundle(where: str | Path) -> tuple[Run, list[Run]]:
    """Return the newest run that has a bundle, and the newer ones without; raise RunError if no run has one."""
    without: list[Run] = []
    for run in reversed(list_runs(where)):
        if run.has_bundle():
            return run, without
        without.append(run)
    raise _make_no_bundle_error(without[0]) if without else _make_no_run_error(where)


def find_bundle(name: str, where: str | Path) -> Path:
    """Find a bundle's directory by its own path or address, or by the run that made it."""
    return addresses.fetch_copy(locate_bundle(name, where))


def locate_bundle(name: str, where: str | Path) -> str | Path:
    """Return a bundle's directory, or its address in Cloud Storage, which is not resolved to a copy."""
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
    """Return the address of the bundle in a run; if it is no run, the address itself: loading it reports errors."""
    if cloud_storage.object_at(f"{address}/bundle/{MANIFEST}"):
        return f"{address}/bundle"
    try:
        run = Run.open(address)
    except RunError:
        return address
    raise _make_no_bundle_error(run)


def download_run(address: str, where: Path) -> Run:
    """Download a run from Cloud Storage into a directory of runs, without its checkpoints, atomically.

    An earlier copy is replaced if the run has changed since.
    """
    store = BucketStore(address)
    run = Run.open(store)
    local = Run(where / run.name)
    for _ in range(TRIES):
        if local.exists():
            local_state, remote_state = local.recorded_state(), run.recorded_state()
            if local_state.created != remote_state.created:
                raise RunError(
                    f"{local.address} is another run", hint="remove it, or name another place with --runs DIR"
                )
            if local_state == remote_state:
                return local
        try:
            with atomic.writing_directory(local.directory) as scratch:
                store.download(scratch, without=("checkpoints",) if run.has_bundle() else ("checkpoints", "bundle"))
                atomic.remove_directory(local.directory)
        except Conflict:
            run.refresh()
            continue
        return local
    raise Conflict(f"{run.address} changes faster than it can be read", hint="try again")


def _make_no_run_error(where: str | Path) -> RunError:
    return RunError(f"there is no run in {where}", hint="tagline train DATA makes one")


def _describe_missing(name: str, where: str | Path, *, what: str) -> str:
    """Describe an unknown name, with the closest known one."""
    close = get_close_matches(name, [LAST, *(run.name for run in list_runs(where))], n=1)
    return f"there is no {what} {name}" + (f"; did you mean {close[0]}?" if close else "")


def _make_no_bundle_error(run: Run) -> RunError:
    state = run.state()
    return RunError(f"run {run.name} has no bundle: it is {state.name}", hint=state.reason)
