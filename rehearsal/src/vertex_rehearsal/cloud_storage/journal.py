"""Journal: changes of the index and the file moves that belong to them, applied together across crashes."""

from collections.abc import Iterator
from contextlib import contextmanager

from vertex_rehearsal.cloud_storage.files import Files
from vertex_rehearsal.cloud_storage.index import Index, Session


class Journal:
    """Write-ahead journal of file moves: committed with their change, applied then or at the next start."""

    def __init__(self, files: Files, index: Index) -> None:
        self._files = files
        self._index = index
        self._apply_moves()
        files.clear_staging()

    @contextmanager
    def begin_change(self) -> Iterator[Session]:
        """Open a write session whose file moves are applied before any other write."""
        with self._index.exclusive_access():
            with self._index.write_session() as session:
                yield session
            self._apply_moves()

    def _apply_moves(self) -> None:
        with self._index.write_session() as session:
            for verb, source, target in session.list_moves():
                self._apply_move(session, verb, source, target)
            session.remove_moves()

    def _apply_move(self, session: Session, verb: str, source: str, target: str) -> None:
        """Apply a file move, tolerating concurrent changes by other processes at the same place."""
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
