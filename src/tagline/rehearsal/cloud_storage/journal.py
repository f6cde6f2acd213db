"""Journal: changes of the index and moves of files that are done together, whenever the process is killed."""

from collections.abc import Iterator
from contextlib import contextmanager

from tagline.rehearsal.cloud_storage.files import Files
from tagline.rehearsal.cloud_storage.index import Index, Session


class Journal:
    """Moves are committed with the change that they belong to, then done: at the next start, if not before."""

    def __init__(self, files: Files, index: Index) -> None:
        self._files = files
        self._index = index
        self._do_moves()
        files.sweep()

    @contextmanager
    def changing(self) -> Iterator[Session]:
        """A turn in which files move too: what is committed is done before anybody else writes."""
        with self._index.turn():
            with self._index.writing() as session:
                yield session
            self._do_moves()

    def _do_moves(self) -> None:
        with self._index.writing() as session:
            for verb, source, target in session.moves():
                try:
                    self._files.move(verb, source, target)
                except OSError:
                    if verb != "rename":
                        raise
                    aside = self._files.aside()  # somebody else has just made a directory of this name
                    self._files.move(verb, source, aside)
                    session.relocate(target, aside)
            session.remove_moves()
