"""FileModel: the base of models of JSON files, frozen, which keep fields added by later versions."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict


class FileModel(BaseModel):
    """An object in a JSON file; values are attributes, and can also be looked up by their names in the file.

    A key missing from the file has its default as an attribute, is not `in` the model and is not written back.

    """

    # Validators are built on first use: most commands read one kind of file, if any.
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
        """Return the value of a key, or the default if the file does not have it."""
        if name not in self:
            return default
        return self[name]

    def keys(self) -> list[str]:
        """List the keys that the file has."""
        known = (*self.__dict__, *(self.__pydantic_extra__ or {}))
        return [name for name in known if name in self.model_fields_set]

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the keys that the file has and their values."""
        return ((name, self[name]) for name in self.keys())

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file, in the order of the fields."""
        return self.model_dump(exclude_unset=True)
