"""Python tracebacks put together again from the lines of a log, and the root of those that came of each other."""

import re
from collections import deque

HEADER = "Traceback (most recent call last):"
FOLLOWS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
INSIDE = re.compile(r"-- Process \d+ terminated with the following error:$")
"""What torch writes between an error and the one in another process that it came of."""
IGNORED = re.compile(r"^Exception ignored in|^--- Logging error ---")
"""What Python writes before tracebacks of errors that ended nothing."""
GROUP = re.compile(r"^\s*(?:\| ?)+|^\s*\+[-+ .\d]*$")
"""What stands before the lines of an exception group, and between its exceptions."""
MARKED = re.compile(r"^\s+[+|]")
FRAME = re.compile(r'^  File ".*", line \d+$')
"""A syntax error of the program itself has no header."""

MOST_BLOCKS, HEAD, TAIL, WIDTH = 16, 20, 60, 1000


class TracebackBlock:
    """The lines of one exception: the first and the last of them where there are many."""

    def __init__(self, header: str) -> None:
        self.exception = ""
        self._head = [header]
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._count = 1

    def add(self, line: str) -> None:
        """One line more."""
        self._count += 1
        if len(self._head) < HEAD:
            self._head.append(line[:WIDTH])
        else:
            self._tail.append(line[:WIDTH])

    @property
    def lines(self) -> tuple[str, ...]:
        """From the header to what the exception says."""
        left_out = self._count - len(self._head) - len(self._tail)
        return (*self._head, *([f"  ... {left_out:,} lines ..."] if left_out else []), *self._tail)


class Traceback:
    """Exceptions of which each came from another one, as they were printed."""

    def __init__(self, first: TracebackBlock) -> None:
        self._blocks = [first]
        self._root = 0

    def follow(self, block: TracebackBlock, *, inside: bool) -> None:
        """One exception more: what came of those before, or what was inside the last of them."""
        if len(self._blocks) < MOST_BLOCKS:
            self._blocks.append(block)
            self._root = len(self._blocks) - 1 if inside else self._root

    @property
    def lines(self) -> tuple[str, ...]:
        """Of the root: what went wrong first."""
        return self._blocks[self._root].lines

    @property
    def exceptions(self) -> tuple[str, ...]:
        """What each exception says, the root first and then what came of it."""
        in_order = self._blocks[self._root :] + self._blocks[: self._root]
        return tuple(block.exception for block in in_order if block.exception)


class TracebackReader:
    """Reads the lines of one process in order, and says which of them belong to a traceback."""

    def __init__(self) -> None:
        self._found: Traceback | None = None
        self._traceback: Traceback | None = None
        """The one that is being read, once its first exception is complete."""
        self._block: TracebackBlock | None = None
        self._is_group = self._is_ignored = False
        self._link = ""
        """What was read after an exception: "", "follows" or "inside"."""

    @property
    def is_idle(self) -> bool:
        """Whether a line that is no header cannot belong to anything."""
        return self._block is None and self._traceback is None and not self._is_ignored

    def read(self, line: str) -> bool:
        """Whether this line belongs to a traceback."""
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
        """Nothing more comes: the traceback that was being read, be it cut off."""
        if self._block is not None and len(self._block.lines) > 1:
            self._complete_block(self._block, self._block.exception)
        self.close()
        return self.take()

    def take(self) -> Traceback | None:
        """A traceback whose first exception has been read; lines that are read later may add to it."""
        found, self._found = self._found, None
        return found

    def close(self) -> None:
        """What was read is complete."""
        self._traceback = self._block = None
        self._link, self._is_ignored = "", False

    def _begin_block(self, line: str) -> None:
        if self._is_group and self._block is not None:
            self._complete_block(self._block, self._block.exception)
        self._is_group = "Exception Group " + HEADER in line
        if line == f"Original {HEADER}":  # torch, of an error in a process that loads data
            self._link = "inside"
        elif not self._link:
            self._traceback = None
        self._block = TracebackBlock(line.strip(" +|") if self._is_group else line[:WIDTH])

    def _read_block_line(self, line: str, block: TracebackBlock) -> bool:
        if self._is_group:  # and this line has no mark
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
        """Of a group, the first exception that is no group itself says why."""
        said = GROUP.sub("", line)
        if not said:
            return True
        block.add(said)
        is_exception = said[0].isalpha() and not said.endswith(HEADER)
        if is_exception and (not block.exception or "ExceptionGroup" in block.exception):
            block.exception = said
        return True

    def _complete_block(self, block: TracebackBlock, exception: str) -> None:
        block.exception = exception[: 4 * WIDTH]
        self._block, self._is_group = None, False
        if self._is_ignored:
            self._is_ignored = False
        elif self._traceback is None:
            self._found = self._traceback = Traceback(block)
        else:
            self._traceback.follow(block, inside=self._link == "inside")
        self._link = ""
