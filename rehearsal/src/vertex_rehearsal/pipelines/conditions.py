"""The conditions of pipeline tasks, as the Kubeflow compiler writes them: a small part of CEL."""

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from vertex_rehearsal.api.errors import Problem

TOKEN = re.compile(
    r"""\s*(?:(?P<name>inputs\.parameter_values\['(?P<key>[^']*)'\])
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
    | (?P<word>true|false|int|double|string)\b
    | (?P<sign>==|!=|<=|>=|<|>|&&|\|\||!|\(|\)))""",
    re.X,
)
COMPARE = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "int": lambda value: int(float(value)), "double": float, "string": str,
}  # fmt: skip


def holds(condition: str, inputs: Mapping[str, Any]) -> bool:
    """Whether a task with these inputs is to run."""
    return bool(_Reading(condition, inputs).whole())


class _Reading:
    def __init__(self, condition: str, inputs: Mapping[str, Any]) -> None:
        self._condition = condition
        self._inputs = inputs
        self._at = 0

    def _wrong(self) -> Problem:
        rest = self._condition[self._at :].strip() or "its end"
        return Problem("UNIMPLEMENTED", f'The condition "{self._condition}" is not played: not understood at {rest}.')

    def whole(self) -> Any:
        """The value of all of it."""
        try:
            value = self._either()
        except (TypeError, ValueError) as error:
            wrong = f'The condition "{self._condition}" cannot be evaluated: {error}.'
            raise Problem("INVALID_ARGUMENT", wrong) from error
        if self._condition[self._at :].strip():
            raise self._wrong()
        return value

    def _peek(self) -> re.Match[str] | None:
        return TOKEN.match(self._condition, self._at)

    def _sign(self, *signs: str) -> str:
        """One of these signs, if it comes next."""
        found = self._peek()
        if found and found["sign"] in signs:
            self._at = found.end()
            return str(found["sign"])
        return ""

    def _either(self) -> Any:
        value = self._both()
        while self._sign("||"):
            other = self._both()
            value = value or other
        return value

    def _both(self) -> Any:
        value = self._compared()
        while self._sign("&&"):
            other = self._compared()
            value = value and other
        return value

    def _compared(self) -> Any:
        value = self._single()
        if sign := self._sign(*COMPARE):
            return COMPARE[sign](value, self._single())
        return value

    def _single(self) -> Any:
        if self._sign("!"):
            return not self._single()
        if self._sign("("):
            return self._closed()
        found = self._peek()
        if not found or found["sign"]:
            raise self._wrong()
        self._at = found.end()
        if found["name"]:
            if found["key"] not in self._inputs:
                raise Problem("INVALID_ARGUMENT", f"A condition asks for the input {found['key']}, which is not there.")
            return self._inputs[found["key"]]
        if found["text"]:
            return re.sub(r"\\(.)", r"\1", found["text"][1:-1])
        if found["number"]:
            return json.loads(found["number"])
        if found["word"] in CONVERT:
            if not self._sign("("):
                raise self._wrong()
            return CONVERT[found["word"]](self._closed())
        return found["word"] == "true"

    def _closed(self) -> Any:
        value = self._either()
        if not self._sign(")"):
            raise self._wrong()
        return value
