"""Storage of the other services: JSON documents by name, in the emulator's database."""

import json
import sqlite3
from typing import Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.database import Database

Document = dict[str, Any]


class Documents:
    """JSON documents by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, content: Document) -> None:
        """Store a new document; ALREADY_EXISTS if the name is taken."""
        try:
            self._database.run(
                "INSERT INTO documents (name, collection, content) VALUES (?, ?, ?)",
                (name, name.rpartition("/")[0], json.dumps(content)),
            )
        except sqlite3.IntegrityError as error:
            raise ApiError("ALREADY_EXISTS", f"Resource '{name}' already exists.") from error

    def change(self, name: str, **fields: Any) -> Document:
        """Replace some fields of a document and return it."""
        with self._database.lock:
            content = self.get(name) | fields
            self._database.run("UPDATE documents SET content = ? WHERE name = ?", (json.dumps(content), name))
        return content

    def find(self, name: str) -> Document | None:
        """Return a document, or None."""
        rows = self._database.run("SELECT content FROM documents WHERE name = ?", (name,))
        return json.loads(rows[0][0]) if rows else None

    def get(self, name: str) -> Document:
        """Return a document; NOT_FOUND if there is none."""
        document = self.find(name)
        if document is None:
            raise ApiError("NOT_FOUND", "Requested entity was not found.")
        return document

    def list_collection(self, collection: str) -> list[Document]:
        """Return the documents of a collection, newest first; the name may be a GLOB pattern of SQLite."""
        rows = self._database.run(
            "SELECT content FROM documents WHERE collection GLOB ? ORDER BY number DESC", (collection,)
        )
        return [json.loads(content) for (content,) in rows]
