"""FileModel: the base of models of JSON files, frozen, which keep what later versions add."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict


class FileModel(BaseModel):
    """An object of a JSON file. Its values are attributes; by their names in the file they can be looked up as well.

    A key that is not in the file has its default as an attribute, is not `in` the model and is not written back.
    """

    # A validator is built when it is first used: most commands read one kind of file, if any.
    model_config = ConfigDict(frozen=True, extra="allow", strict=True, defer_build=True)

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        extra = self.__pydantic_extra__ or {}
        return extra[name] if name in extra else self.__dict__[name]

    def __contains__(self, name: object) -> bool:
        return name in self.model_fields_set

    def __bool__(self) -> bool:
        return bool(self.model_fields_set)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a key, or the default where the file does not have it."""
        if name not in self:
            return default
        return self[name]

    def keys(self) -> list[str]:
        """List the keys that are in the file."""
        known = (*self.__dict__, *(self.__pydantic_extra__ or {}))
        return [name for name in known if name in self.model_fields_set]

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the keys that are in the file and their values."""
        return ((name, self[name]) for name in self.keys())

    def to_dict(self) -> dict[str, Any]:
        """Return what the file holds, in the order of the fields."""
        return self.model_dump(exclude_unset=True)
