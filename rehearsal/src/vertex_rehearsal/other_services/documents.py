"""What neighbours keep: documents of JSON by their names, in the rehearsal's one file."""

import json
import sqlite3
from typing import Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.database import Database

Document = dict[str, Any]


class Documents:
    """The documents of a rehearsal."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, content: Document) -> None:
        """Keep a new document; ALREADY_EXISTS where there is one."""
        try:
            self._database.run(
                "INSERT INTO documents (name, collection, content) VALUES (?, ?, ?)",
                (name, name.rpartition("/")[0], json.dumps(content)),
            )
        except sqlite3.IntegrityError as error:
            raise ApiError("ALREADY_EXISTS", f"Resource '{name}' already exists.") from error

    def change(self, name: str, **fields: Any) -> Document:
        """A document with other values of some fields."""
        with self._database.lock:
            content = self.get(name) | fields
            self._database.run("UPDATE documents SET content = ? WHERE name = ?", (json.dumps(content), name))
        return content

    def find(self, name: str) -> Document | None:
        """A document, if it is there."""
        rows = self._database.run("SELECT content FROM documents WHERE name = ?", (name,))
        return json.loads(rows[0][0]) if rows else None

    def get(self, name: str) -> Document:
        """A document; NOT_FOUND where there is none."""
        found = self.find(name)
        if found is None:
            raise ApiError("NOT_FOUND", "Requested entity was not found.")
        return found

    def list_collection(self, collection: str) -> list[Document]:
        """Those of a collection, newest first; a pattern of SQLite's GLOB is matched."""
        rows = self._database.run(
            "SELECT content FROM documents WHERE collection GLOB ? ORDER BY number DESC", (collection,)
        )
        return [json.loads(content) for (content,) in rows]
