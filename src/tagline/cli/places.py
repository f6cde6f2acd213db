"""Where a command runs: a place entered for as long as the command takes."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tagline.jobs.records import Record

LOCAL, REHEARSAL, VERTEX = "local", "rehearsal", "vertex"
BUCKET = "tagline-rehearsal"
"""Of a rehearsal, where the spec names none."""

On = Annotated[str, typer.Option("--on", metavar="PLACE", help="Where: local, rehearsal or vertex.")]


def check(place: str) -> None:
    """Refuse a place that nobody knows."""
    from tagline import registry
    from tagline.errors import SpecError

    known = {LOCAL, REHEARSAL, *registry.names("launchers")}
    if place not in known:
        raise SpecError(f'no place "{place}"; there are: {", ".join(sorted(known))}')


@contextmanager
def entered(place: str, *, stays: bool = False) -> Iterator[bool]:
    """Let Google be who it is in this place; yields whether jobs there outlive the command.

    A rehearsal that does not run yet is played until the command ends; one that has to stay must run already.
    """
    if place != REHEARSAL:
        yield True
        return
    from tagline import gcp
    from tagline.cli import console
    from tagline.errors import PlaceError, SpecError
    from tagline.jobs import emulator

    emulator.check_installed()
    if gcp.rehearsal():
        yield True
        return
    try:
        facts = emulator.find()
    except PlaceError as error:
        if stays:
            hint = "tagline rehearsal start --detach, then the same command"
            raise SpecError("no rehearsal runs here that could go on after this command", hint=hint) from error
    else:
        with gcp.entered(facts.address, facts.token):
            yield True
        return
    with tempfile.TemporaryDirectory(prefix=".tagline-rehearsal-") as directory:
        console.say("starting a rehearsal for this command")
        with emulator.running(Path(directory)) as facts, gcp.entered(facts.address, facts.token):
            yield False


@contextmanager
def of(record: "Record") -> Iterator[None]:
    """The place where a job runs."""
    from tagline import gcp
    from tagline.errors import PlaceError
    from tagline.jobs import emulator

    if not record.rehearsal or gcp.rehearsal() == record.rehearsal:
        yield
        return
    directory = Path(record.rehearsal_facts).parent if record.rehearsal_facts else emulator.DIRECTORY
    try:
        facts = emulator.find(directory)
    except PlaceError:
        facts = None
    # A restart may have changed its ports; where only an address is known, it has to be that one.
    if facts is None or (not record.rehearsal_facts and facts.address != record.rehearsal):
        hint = "a run that has ended is here all the same: tagline runs list"
        raise PlaceError(f"the rehearsal at {record.rehearsal} does not run any more", hint=hint)
    with gcp.entered(facts.address, facts.token):
        yield
