"""Evaluates the conditions of pipeline tasks, in the subset of CEL that the Kubeflow compiler writes."""

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from vertex_rehearsal.api.errors import ApiError

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


def evaluate_condition(condition: str, inputs: Mapping[str, Any]) -> bool:
    """Evaluate the condition of a task with these inputs."""
    return bool(_ConditionParser(condition, inputs).evaluate_all())


class _ConditionParser:
    def __init__(self, condition: str, inputs: Mapping[str, Any]) -> None:
        self._condition = condition
        self._inputs = inputs
        self._at = 0

    def _syntax_error(self) -> ApiError:
        rest = self._condition[self._at :].strip() or "its end"
        return ApiError("UNIMPLEMENTED", f'The condition "{self._condition}" is not played: not understood at {rest}.')

    def evaluate_all(self) -> Any:
        """The value of all of it."""
        try:
            value = self._parse_or()
        except (TypeError, ValueError) as error:
            wrong = f'The condition "{self._condition}" cannot be evaluated: {error}.'
            raise ApiError("INVALID_ARGUMENT", wrong) from error
        if self._condition[self._at :].strip():
            raise self._syntax_error()
        return value

    def _peek(self) -> re.Match[str] | None:
        return TOKEN.match(self._condition, self._at)

    def _take_sign(self, *signs: str) -> str:
        """One of these signs, if it comes next."""
        found = self._peek()
        if found and found["sign"] in signs:
            self._at = found.end()
            return str(found["sign"])
        return ""

    def _parse_or(self) -> Any:
        value = self._parse_and()
        while self._take_sign("||"):
            other = self._parse_and()
            value = value or other
        return value

    def _parse_and(self) -> Any:
        value = self._parse_comparison()
        while self._take_sign("&&"):
            other = self._parse_comparison()
            value = value and other
        return value

    def _parse_comparison(self) -> Any:
        value = self._parse_operand()
        if sign := self._take_sign(*COMPARE):
            return COMPARE[sign](value, self._parse_operand())
        return value

    def _parse_operand(self) -> Any:
        if self._take_sign("!"):
            return not self._parse_operand()
        if self._take_sign("("):
            return self._parse_group()
        found = self._peek()
        if not found or found["sign"]:
            raise self._syntax_error()
        self._at = found.end()
        if found["name"]:
            if found["key"] not in self._inputs:
                raise ApiError(
                    "INVALID_ARGUMENT", f"A condition asks for the input {found['key']}, which is not there."
                )
            return self._inputs[found["key"]]
        if found["text"]:
            return re.sub(r"\\(.)", r"\1", found["text"][1:-1])
        if found["number"]:
            return json.loads(found["number"])
        if found["word"] in CONVERT:
            if not self._take_sign("("):
                raise self._syntax_error()
            return CONVERT[found["word"]](self._parse_group())
        return found["word"] == "true"

    def _parse_group(self) -> Any:
        value = self._parse_or()
        if not self._take_sign(")"):
            raise self._syntax_error()
        return value
