"""The filter language of Google's lists: comparisons of fields joined by AND, OR and NOT."""

import ipaddress
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from vertex_rehearsal.api.errors import invalid_argument

TOKEN = re.compile(
    r"""\s*(?:(?P<function>(?!(?:AND|OR|NOT)\()[A-Za-z_]\w*(?=\())|(?P<open>\()|(?P<close>\))|(?P<operator>>=|<=|!=|=~|!~|=|>|<|:)
    |(?P<word>'(?:[^'\\]|\\.)*'|(?:"(?:[^"\\]|\\.)*"|[^\s()=!<>:~"])+))""",
    re.X,
)
ARGUMENT = re.compile(r'"(?:[^"\\]|\\.)*"|[^,\s]+')
SEARCH_TERM = re.compile(r"`([^`]*)`|(\w+)")
PATH_KEY = re.compile(r'"((?:[^"\\]|\\.)+)"|([^."]+)')
SEVERITIES = {
    "DEFAULT": 0, "DEBUG": 100, "INFO": 200, "NOTICE": 300, "WARNING": 400, "ERROR": 500, "CRITICAL": 600,
    "ALERT": 700, "EMERGENCY": 800,
}  # fmt: skip
Test = Callable[[Mapping[str, Any]], bool]
Function = Callable[[Sequence[str]], Test]
"""Makes a test of the arguments in a filter; a ValueError says what is wrong with them."""


@dataclass(frozen=True)
class Comparison:
    """One comparison of a field; a word alone is looked for everywhere."""

    field: str
    operator: str
    value: str
    has_wildcards: bool = False
    """Whether `:` compares the whole text, in which * stands for anything, as Vertex AI has it."""

    def __call__(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry, in the form of JSON, passes."""
        if not self.operator:
            return self.value.lower() in str(entry).lower()
        found = get_path(entry, self.field)
        if self.operator == ":":
            return _matches_pattern(found, self.value) if self.has_wildcards else _contains_value(found, self.value)
        if found is None:
            return self.operator in ("!=", "!~")
        if self.operator in ("=~", "!~"):
            return (re.search(self.value, str(found)) is not None) == (self.operator == "=~")
        mine, given = _make_comparable(self.field, found, self.value)
        if isinstance(mine, str) and not self.has_wildcards:  # Cloud Logging compares texts whatever their case
            mine, given = mine.lower(), given.lower()
        match self.operator:
            case "=":
                return bool(mine == given)
            case "!=":
                return bool(mine != given)
            case ">":
                return bool(mine > given)
            case ">=":
                return bool(mine >= given)
            case "<":
                return bool(mine < given)
        return bool(mine <= given)


@dataclass(frozen=True)
class Filter:
    """A whole filter."""

    test: Test
    always: tuple[Comparison, ...] = ()
    """Comparisons that every entry must pass, whatever the rest says: an index can be asked for them first."""
    comparisons: tuple[Comparison, ...] = ()
    """All comparisons, in the order of the text."""

    def __call__(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry, in the form of JSON, passes."""
        return self.test(entry)


def parse_filter(
    text: str,
    *,
    has_wildcards: bool = False,
    adapt: Callable[[Comparison], Comparison] = lambda one: one,
    functions: Mapping[str, Function] | None = None,
) -> Filter:
    """A filter from its text; an empty one lets everything pass. `adapt` may change or refuse a comparison."""
    if not text.strip():
        return Filter(lambda _: True)
    parser = _Parser(text, lambda one: adapt(replace(one, has_wildcards=has_wildcards)), functions or {})
    test, always = parser.parse_and()
    if parser.left:
        raise parser.syntax_error()
    return Filter(test, tuple(always), tuple(parser.comparisons))


class _Parser:
    """Reads one filter from left to right."""

    def __init__(self, text: str, adapt: Callable[[Comparison], Comparison], functions: Mapping[str, Function]) -> None:
        self.text = text
        self.comparisons: list[Comparison] = []
        self._adapt = adapt
        self._functions = functions
        self.left: list[tuple[str, str]] = []
        end = 0
        while end < len(text.rstrip()):
            found = TOKEN.match(text, end)
            if found is None:
                raise self.syntax_error()
            kind = str(found.lastgroup)
            self.left.append((kind, found[kind]))
            end = found.end()

    def syntax_error(self) -> Exception:
        """What is answered to a filter that cannot be read."""
        near = f' near "{self.left[0][1]}"' if self.left else ""
        return invalid_argument("filter", f"Unparseable filter: {self.text}{near}")

    def parse_and(self) -> tuple[Test, list[Comparison]]:
        """a AND b, or simply a b."""
        tests: list[Test] = []
        always: list[Comparison] = []
        while True:
            test, sure = self.parse_or()
            tests.append(test)
            always += sure
            if self._take_if("word", "AND"):
                if not self.left:
                    raise self.syntax_error()
                continue
            if not self.left or self.left[0][0] not in ("word", "open", "function"):
                return lambda entry: all(test(entry) for test in tests), always

    def parse_or(self) -> tuple[Test, list[Comparison]]:
        """a OR b, which binds tighter than AND in Google's filters (AIP-160)."""
        test, always = self.parse_term()
        tests = [test]
        while self._take_if("word", "OR"):
            tests.append(self.parse_term()[0])
        if len(tests) == 1:
            return test, always
        return lambda entry: any(test(entry) for test in tests), []

    def parse_term(self) -> tuple[Test, list[Comparison]]:
        """A comparison, a word, a filter in parentheses, or the opposite of one."""
        if self._take_if("word", "NOT"):
            test, _ = self.parse_term()
            return lambda entry: not test(entry), []
        if self._take_if("open"):
            test, always = self.parse_and()
            if not self._take_if("close"):
                raise self.syntax_error()
            return test, always
        if self.left and self.left[0][0] == "function":
            return self._parse_function(), []
        name = self._take_next("word")
        if name.startswith("-") and len(name) > 1:
            self.left.insert(0, ("word", name[1:]))
            test, _ = self.parse_term()
            return lambda entry: not test(entry), []
        if not self.left or self.left[0][0] != "operator":
            return self._add_comparison("", "", name), []
        operator = self._take_next("operator")
        if self._take_if("open"):
            return self._parse_value_list(name, operator), []
        comparison = self._add_comparison(name, operator, self._take_next("word"))
        if operator in ("=~", "!~"):
            try:
                re.compile(comparison.value)
            except re.error as error:
                raise invalid_argument("filter", f"Unparseable filter: {comparison.value}: {error}") from error
        return comparison, [comparison]

    def _parse_value_list(self, name: str, operator: str) -> Test:
        """field=(a OR b), field:(a AND b)."""
        values, joins = [self._take_next("word")], set()
        while not self._take_if("close"):
            joins.add(self._take_next("word"))
            values.append(self._take_next("word"))
        if not joins <= {"OR"} and not joins <= {"AND"}:
            raise self.syntax_error()
        decide = all if joins == {"AND"} else any
        tests = [self._add_comparison(name, operator, value) for value in values]
        return lambda entry: decide(test(entry) for test in tests)

    def _parse_function(self) -> Test:
        """log_id("x"), SEARCH(textPayload, "x")."""
        name = self._take_next("function")
        self._take_next("open")
        words = []
        while not self._take_if("close"):
            words.append(self._take_next("word"))
        function = self._functions.get(name)
        if function is None:
            known = ", ".join(self._functions) or "there are none here"
            raise invalid_argument("filter", f"Unparseable filter: unknown function {name}: {known}.")
        try:
            return function([_unquote_word(word) for word in ARGUMENT.findall(" ".join(words))])
        except ValueError as error:
            raise invalid_argument("filter", f"Unparseable filter: {name}: {error}") from error

    def _add_comparison(self, field: str, operator: str, word: str) -> Comparison:
        self.comparisons.append(self._adapt(Comparison(field, operator, _unquote_word(word))))
        return self.comparisons[-1]

    def _take_if(self, kind: str, text: str = "") -> bool:
        if self.left and self.left[0][0] == kind and (not text or self.left[0][1] == text):
            self.left.pop(0)
            return True
        return False

    def _take_next(self, kind: str) -> str:
        if not self.left or self.left[0][0] != kind:
            raise self.syntax_error()
        return self.left.pop(0)[1]


def parse_timestamp(text: str) -> datetime:
    """A time as RFC 3339 writes it, or a date."""
    digits = re.sub(r"(\.\d{6})\d+", r"\1", text.strip().replace("Z", "+00:00"))
    try:
        found = datetime.fromisoformat(digits)
    except ValueError as error:
        raise invalid_argument("filter", f"Unparseable filter: {text} is no timestamp") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _unquote_word(word: str) -> str:
    is_quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "\"'"
    return re.sub(r"\\(.)", r"\1", word[1:-1]) if is_quoted else word


def split_path(path: str) -> list[str]:
    """The keys of `resource.labels."a key"`, without their quotes."""
    return [re.sub(r"\\(.)", r"\1", quoted) or plain for quoted, plain in PATH_KEY.findall(path)]


def get_path(entry: Any, path: str) -> Any:
    """The value at `resource.labels.job_id`; keys may be quoted, and written in camelCase or snake_case."""
    for key in split_path(path):
        if not isinstance(entry, Mapping):
            return None
        spellings = (key, re.sub(r"_([a-z])", lambda found: found[1].upper(), key), to_snake_case(key))
        entry = next((entry[spelling] for spelling in spellings if spelling in entry), None)
    return entry


def to_snake_case(name: str) -> str:
    """displayName -> display_name."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: f"_{found[1].lower()}", name)


def _matches_pattern(found: Any, pattern: str) -> bool:
    """The operator `:` with wildcards; without one it asks whether a key or a part of a text is there."""
    if pattern == "*":
        return found is not None and found not in ("", [], {})
    if "*" not in pattern or isinstance(found, Mapping):
        return _contains_value(found, pattern)
    if isinstance(found, list):
        return any(_matches_pattern(one, pattern) for one in found)
    expression = ".*".join(map(re.escape, pattern.split("*")))
    return found is not None and re.fullmatch(expression, str(found), re.S) is not None


def _contains_value(found: Any, value: str) -> bool:
    """The operator `:`, which asks whether a value, a key or a part of a text is there."""
    if value == "*":
        return found is not None
    if isinstance(found, Mapping):
        return value in found
    if isinstance(found, list):
        return any(_contains_value(one, value) for one in found)
    return found is not None and value.lower() in str(found).lower()


def _make_comparable(field: str, found: Any, value: str) -> tuple[Any, Any]:
    """Both sides in a form that has an order."""
    if field == "severity":
        if value.upper() not in SEVERITIES and not value.isdigit():
            raise invalid_argument("filter", f"Unparseable filter: {value} is no severity")
        return SEVERITIES.get(str(found), 0), SEVERITIES.get(value.upper(), int(value) if value.isdigit() else 0)
    last = field.rpartition(".")[2]
    if last.lower().endswith(("timestamp", "_time", "time")) and isinstance(found, str) and found.endswith("Z"):
        return parse_timestamp(found), parse_timestamp(value)
    if isinstance(found, bool):
        return str(found).lower(), value.lower()
    if isinstance(found, int | float):
        try:
            return float(found), float(value)
        except ValueError:
            return str(found), value
    return str(found), value


def match_log_id(arguments: Sequence[str]) -> Test:
    """log_id("cloudaudit.googleapis.com/activity"): the log with this id, of any project."""
    (wanted,) = _check_count(arguments, "log_id(LOG)", 1)
    return lambda entry: unquote(str(entry.get("logName", "")).partition("/logs/")[2]) == unquote(wanted)


def search_text(arguments: Sequence[str]) -> Test:
    """SEARCH(FIELD, TEXT) or SEARCH(TEXT): every word is there, whatever its case; phrases stand in backticks."""
    _check_count(arguments, "SEARCH(FIELD, TEXT) or SEARCH(TEXT)", 1, 2)
    field = arguments[0] if len(arguments) == 2 else ""
    terms = [
        [word.lower() for word in re.findall(r"\w+", one or other)] for one, other in SEARCH_TERM.findall(arguments[-1])
    ]

    def test(entry: Mapping[str, Any]) -> bool:
        texts = [re.findall(r"\w+", text.lower()) for text in _iter_texts(get_path(entry, field) if field else entry)]
        return all(any(_has_sequence(words, term) for words in texts) for term in terms)

    return test


def match_network(arguments: Sequence[str]) -> Test:
    """ip_in_net(FIELD, "10.0.0.0/8"): an address of this network."""
    field, network = _check_count(arguments, "ip_in_net(FIELD, NETWORK)", 2)
    wanted = ipaddress.ip_network(network, strict=False)

    def test(entry: Mapping[str, Any]) -> bool:
        try:
            return ipaddress.ip_address(str(get_path(entry, field))) in wanted
        except ValueError:  # no address
            return False

    return test


def sample_entries(arguments: Sequence[str]) -> Test:
    """sample(FIELD, 0.25): the same quarter of the field's values each time."""
    field, share = _check_count(arguments, "sample(FIELD, FRACTION)", 2)
    if not 0 <= float(share) <= 1:
        raise ValueError(f"{share} is no fraction from 0 to 1")

    def test(entry: Mapping[str, Any]) -> bool:
        value = get_path(entry, field)
        return value is not None and zlib.crc32(str(value).encode()) < float(share) * 2**32

    return test


LOG_FUNCTIONS: Mapping[str, Function] = {
    "log_id": match_log_id,
    "SEARCH": search_text,
    "search": search_text,
    "ip_in_net": match_network,
    "sample": sample_entries,
}
"""What Cloud Logging's filters have beside comparisons."""


def _check_count(arguments: Sequence[str], form: str, *counts: int) -> Sequence[str]:
    if len(arguments) not in counts:
        raise ValueError(f"{form} is expected, not {len(arguments)} arguments")
    return arguments


def _iter_texts(value: Any) -> Iterator[str]:
    """Every text in a value, however deep."""
    if isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _iter_texts(one)
    elif value is not None:
        yield str(value)


def _has_sequence(words: Sequence[str], wanted: Sequence[str]) -> bool:
    count = len(wanted)
    return any(words[start : start + count] == wanted for start in range(len(words) - count + 1))
