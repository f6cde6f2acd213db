"""The places where a training can run: this machine, the emulator of Vertex AI, or Vertex AI itself."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tagline import gcp, registry
from tagline.errors import PlaceError, SpecError
from tagline.jobs import emulator
from tagline.jobs.records import Record

LOCAL, REHEARSAL, VERTEX = "local", "rehearsal", "vertex"
BUCKET = "tagline-rehearsal"
"""The default bucket at a rehearsal."""


def check_place(place: str) -> None:
    """Raise SpecError if there is no launcher of this name."""
    known = {LOCAL, REHEARSAL, *registry.list_names("launchers")}
    if place not in known:
        raise SpecError(f'no place "{place}"; there are: {", ".join(sorted(known))}')


@contextmanager
def enter(place: str, *, stays: bool = False, say: Callable[[str], None] = lambda _: None) -> Iterator[bool]:
    """Redirect requests for Google to a place; yields whether jobs there outlive this process.

    An emulator is started for the duration of the block if none runs; with `stays` one has to run already.
    """
    if place != REHEARSAL:
        yield True
        return
    emulator.check_installed()
    if gcp.find_rehearsal():
        yield True
        return
    try:
        facts = emulator.find_running()
    except PlaceError as error:
        if stays:
            hint = "tagline rehearsal start --detach, then the same command"
            raise SpecError("no rehearsal runs here that could go on after this command", hint=hint) from error
    else:
        with gcp.use_rehearsal(facts.address, facts.token):
            yield True
        return
    with tempfile.TemporaryDirectory(prefix=".tagline-rehearsal-") as directory:
        say("starting a rehearsal for this command")
        with emulator.start_temporary(Path(directory)) as facts, gcp.use_rehearsal(facts.address, facts.token):
            yield False


@contextmanager
def enter_place_of(record: Record) -> Iterator[None]:
    """Redirect requests for Google to the place where a job runs."""
    if not record.rehearsal or gcp.find_rehearsal() == record.rehearsal:
        yield
        return
    directory = Path(record.rehearsal_facts).parent if record.rehearsal_facts else emulator.DIRECTORY
    try:
        facts = emulator.find_running(directory)
    except PlaceError:
        facts = None
    # Its ports may have changed at a restart; a record with an address only must match it.
    if facts is None or (not record.rehearsal_facts and facts.address != record.rehearsal):
        hint = "a run that has ended is here all the same: tagline runs list"
        raise PlaceError(f"the rehearsal at {record.rehearsal} does not run any more", hint=hint)
    with gcp.use_rehearsal(facts.address, facts.token):
        yield
