"""Graceful shutdown of a training: SIGTERM and Ctrl-C."""

import signal
import threading
from types import FrameType
from typing import Any, Self

from tagline.errors import Interrupted


class Stop:
    """SIGTERM and Ctrl-C during a training. With progress to save (`waits`) they take effect at the end of the step,
    otherwise at once, as does a second Ctrl-C."""

    def __init__(self, *, hint: str) -> None:
        self.signal: int | None = None
        self.waits = False
        self._hint = hint
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous_handlers = {
                number: signal.signal(number, self._handle_signal) for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _handle_signal(self, number: int, _frame: FrameType | None) -> None:
        is_repeated = self.signal == number == signal.SIGINT
        self.signal = number
        if is_repeated or not self.waits:
            raise self.create_interruption(is_saved=self.waits)

    def create_interruption(self, *, is_saved: bool) -> Interrupted:
        """Return the error for a signal to this worker or another one; the last checkpoint has what was learned."""
        what = "interrupted" if self.signal == signal.SIGINT else "told to stop"
        return Interrupted(
            what + (" after saving" if is_saved else ""), signal_number=self.signal or signal.SIGTERM, hint=self._hint
        )
