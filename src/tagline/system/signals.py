"""Being told to stop while something is learned."""

import signal
import threading
from types import FrameType
from typing import Any, Self

from tagline.errors import Interrupted


class Stop:
    """SIGTERM and Ctrl-C during a training. While there is something to save they wait for the step's end; else they
    act at once, and so does a second Ctrl-C."""

    def __init__(self, *, hint: str) -> None:
        self.signal: int | None = None
        self.waits = False
        self._hint = hint
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._handle_signal) for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(self, *_problem: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle_signal(self, number: int, _frame: FrameType | None) -> None:
        again = self.signal == number == signal.SIGINT
        self.signal = number
        if again or not self.waits:
            raise self.create_interruption(is_saved=self.waits)

    def create_interruption(self, *, is_saved: bool) -> Interrupted:
        """What a signal, to this worker or another, comes to; what was learned is in what was kept last."""
        what = "interrupted" if self.signal == signal.SIGINT else "told to stop"
        return Interrupted(
            what + (" after saving" if is_saved else ""), signal_number=self.signal or signal.SIGTERM, hint=self._hint
        )
