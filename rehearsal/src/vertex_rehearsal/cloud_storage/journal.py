"""Journal: changes of the index and moves of files that are done together, whenever the process is killed."""

from collections.abc import Iterator
from contextlib import contextmanager

from vertex_rehearsal.cloud_storage.files import Files
from vertex_rehearsal.cloud_storage.index import Index, Session


class Journal:
    """Moves are committed with the change that they belong to, then done: at the next start, if not before."""

    def __init__(self, files: Files, index: Index) -> None:
        self._files = files
        self._index = index
        self._do_moves()
        files.clear_staging()

    @contextmanager
    def begin_change(self) -> Iterator[Session]:
        """A turn in which files move too: what is committed is done before anybody else writes."""
        with self._index.exclusive_access():
            with self._index.write_session() as session:
                yield session
            self._do_moves()

    def _do_moves(self) -> None:
        with self._index.write_session() as session:
            for verb, source, target in session.list_moves():
                self._do_move(session, verb, source, target)
            session.remove_moves()

    def _do_move(self, session: Session, verb: str, source: str, target: str) -> None:
        """Move a file in spite of others who write, remove and make directories in the same place."""
        try:
            self._files.apply_move(verb, source, target)
        except OSError as error:
            if verb == "rename" and self._files.stat_file(source):
                aside = self._files.new_aside_place()
                self._files.apply_move(verb, source, aside)
                session.relocate_object(target, aside)
                return
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise
        if target and not self._files.stat_file(target):
            session.remove_by_place(target)
