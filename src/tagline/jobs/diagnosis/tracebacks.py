"""Python tracebacks reassembled from the lines of a log, and the root cause of chained exceptions."""

import re
from collections import deque

HEADER = "Traceback (most recent call last):"
FOLLOWS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
INSIDE = re.compile(r"-- Process \d+ terminated with the following error:$")
"""Printed by torch between an error and its cause in another process."""
IGNORED = re.compile(r"^Exception ignored in|^--- Logging error ---")
"""Printed by Python before the traceback of an ignored error."""
GROUP = re.compile(r"^\s*(?:\| ?)+|^\s*\+[-+ .\d]*$")
"""The margin of an exception group, and the separators between its exceptions."""
MARKED = re.compile(r"^\s+[+|]")
FRAME = re.compile(r'^  File ".*", line \d+$')
"""A frame; the traceback of a syntax error begins with it, without a header."""

MOST_BLOCKS, HEAD, TAIL, WIDTH = 16, 20, 60, 1000


class TracebackBlock:
    """The lines of one exception, without those in the middle where there are many."""

    def __init__(self, header: str) -> None:
        self.exception = ""
        self._head = [header]
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._count = 1

    def add(self, line: str) -> None:
        """Add a line."""
        self._count += 1
        if len(self._head) < HEAD:
            self._head.append(line[:WIDTH])
        else:
            self._tail.append(line[:WIDTH])

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines from the header to the exception's message."""
        left_out = self._count - len(self._head) - len(self._tail)
        return (*self._head, *([f"  ... {left_out:,} lines ..."] if left_out else []), *self._tail)


class Traceback:
    """A chain of exceptions, in the order in which they were printed."""

    def __init__(self, first: TracebackBlock) -> None:
        self._blocks = [first]
        self._root = 0

    def follow(self, block: TracebackBlock, *, inside: bool) -> None:
        """Add an exception: a consequence of the earlier ones or, if `inside`, the cause of the last."""
        if len(self._blocks) < MOST_BLOCKS:
            self._blocks.append(block)
            self._root = len(self._blocks) - 1 if inside else self._root

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the root cause."""
        return self._blocks[self._root].lines

    @property
    def exceptions(self) -> tuple[str, ...]:
        """The messages of the exceptions, the root cause first."""
        in_order = self._blocks[self._root :] + self._blocks[: self._root]
        return tuple(block.exception for block in in_order if block.exception)


class TracebackReader:
    """Parses tracebacks from the lines of one process, read in order."""

    def __init__(self) -> None:
        self._new: Traceback | None = None
        self._traceback: Traceback | None = None
        """The traceback being read, once its first exception is complete."""
        self._block: TracebackBlock | None = None
        self._is_group = self._is_ignored = False
        self._link = ""
        """How the next exception is linked to the last: "", "follows" or "inside"."""

    @property
    def is_idle(self) -> bool:
        """Whether no traceback is being read."""
        return self._block is None and self._traceback is None and not self._is_ignored

    def read(self, line: str) -> bool:
        """Read a line; returns whether it belongs to a traceback."""
        if self._is_group and self._block is not None and MARKED.match(line):
            return self._read_group_line(line, self._block)
        if line.endswith(HEADER) or (self.is_idle and FRAME.match(line)):
            self._begin_block(line)
            return True
        if self._block is not None:
            return self._read_block_line(line, self._block)
        if IGNORED.match(line):
            self.close()
            self._is_ignored = True
            return True
        self._is_ignored = False
        if self._traceback is None:
            return False
        if line in FOLLOWS:
            self._link = "follows"
        elif INSIDE.match(line):
            self._link = "inside"
        elif line.strip(' "'):
            self.close()
            return False
        return True

    def end(self) -> Traceback | None:
        """End the input; returns the traceback being read, which may be truncated."""
        if self._block is not None and len(self._block.lines) > 1:
            self._complete_block(self._block, self._block.exception)
        self.close()
        return self.take()

    def take(self) -> Traceback | None:
        """Return a new traceback, once its first exception is complete; later lines may extend it."""
        traceback, self._new = self._new, None
        return traceback

    def close(self) -> None:
        """Complete what is being read."""
        self._traceback = self._block = None
        self._link, self._is_ignored = "", False

    def _begin_block(self, line: str) -> None:
        if self._is_group and self._block is not None:
            self._complete_block(self._block, self._block.exception)
        self._is_group = "Exception Group " + HEADER in line
        if line == f"Original {HEADER}":  # printed by torch for an error in a data-loading process
            self._link = "inside"
        elif not self._link:
            self._traceback = None
        self._block = TracebackBlock(line.strip(" +|") if self._is_group else line[:WIDTH])

    def _read_block_line(self, line: str, block: TracebackBlock) -> bool:
        if self._is_group:  # a line without the group's margin ends it
            self._complete_block(block, block.exception)
            return not line.strip()
        if not line.strip():
            return True
        block.add(line)
        if line[0] in " \t" or line.startswith("[Previous line repeated"):
            return True
        self._complete_block(block, line)
        return True

    def _read_group_line(self, line: str, block: TracebackBlock) -> bool:
        """Read a line of an exception group, whose first exception that is no group counts."""
        text = GROUP.sub("", line)
        if not text:
            return True
        block.add(text)
        is_exception = text[0].isalpha() and not text.endswith(HEADER)
        if is_exception and (not block.exception or "ExceptionGroup" in block.exception):
            block.exception = text
        return True

    def _complete_block(self, block: TracebackBlock, exception: str) -> None:
        block.exception = exception[: 4 * WIDTH]
        self._block, self._is_group = None, False
        if self._is_ignored:
            self._is_ignored = False
        elif self._traceback is None:
            self._new = self._traceback = Traceback(block)
        else:
            self._traceback.follow(block, inside=self._link == "inside")
        self._link = ""
