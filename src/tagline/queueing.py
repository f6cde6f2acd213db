"""Requests gathered into batches: a lone one never waits for company, and what is too much is refused at once."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tagline.models import Prediction
    from tagline.texts import Text

QUICK_CHARACTERS = 1000
"""Of a text that takes a small network a few milliseconds."""
QUICK_TEXTS = 8
"""Computed while the event loop waits."""
Predict = Callable[[Sequence["Text"], float | None], "list[Prediction]"]


class Full(Exception):
    """More texts wait than may."""


@dataclass
class _Job:
    texts: "list[Text]"
    sets: float | None
    done: "asyncio.Future[list[Prediction]]"


class Batcher:
    """Jobs in a queue, taken by a few threads: each takes what waits when it is free, up to a batch of texts.

    With batches of one there is no company to wait for: a job is handed over before a thread is free for it. Where
    answers are `quick`, a short text is not handed over at all, to a thread and back takes as long as a third of the
    answer: what has been asked for since the event loop last turned is computed right there.
    """

    def __init__(
        self, predict: Predict, *, threads: int, most_waiting: int, batch: int, quick: bool = False,
        see_batch: Callable[[float], None], see_waiting: Callable[[float], None],
    ) -> None:  # fmt: skip
        self.predict = predict
        self._see_batch, self._see_waiting = see_batch, see_waiting
        self._most_waiting = most_waiting
        self._batch = batch
        self._quick = quick
        self._at_once: list[_Job] = []
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._idle = threads + (batch == 1)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="predict")
        self._running: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Texts that nobody has taken yet."""
        return self._waiting + len(self._at_once)

    async def ask(
        self, texts: "list[Text]", *, sets: float | None, timeout_s: float, beside: int = 0
    ) -> "list[Prediction]":
        """The answers, when they are there; a TimeoutError, when they are not in time.

        A caller that goes away, or has waited too long, takes its texts with it, if nobody has taken them yet.
        `beside` are others who have not been answered: where answers are quick, whoever is about to ask waits too.
        """
        waiting = max(self.waiting, beside) if self._quick else self._waiting
        if waiting and waiting + len(texts) > self._most_waiting:
            raise Full
        loop = asyncio.get_running_loop()
        job = _Job(texts, sets, loop.create_future())
        if self._quick and len(texts) == 1 and sum(map(len, _sides(texts[0]))) <= QUICK_CHARACTERS:
            self._at_once.append(job)
            self._see_waiting(self.waiting)
            if len(self._at_once) == 1:
                loop.call_soon(self._compute)
        else:
            self._jobs.append(job)
            self._wait(len(texts))
            self._start()
        too_late = loop.call_later(timeout_s, _fail, [job], TimeoutError())
        try:
            return await job.done
        finally:
            too_late.cancel()

    def _wait(self, more: int) -> None:
        self._waiting += more
        self._see_waiting(self.waiting)

    def _start(self) -> None:
        """Give what waits to threads that are free."""
        while self._idle and (some := self._take()):
            self._idle -= 1
            task = asyncio.get_running_loop().create_task(self._work(some))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _compute(self) -> None:
        """Answer short texts in the event loop; what has come meanwhile is read before the next few."""
        some, self._at_once = self._at_once[:QUICK_TEXTS], self._at_once[QUICK_TEXTS:]
        self._see_waiting(self.waiting)
        if self._at_once:
            asyncio.get_running_loop().call_soon(self._compute)
        for sets in dict.fromkeys(job.sets for job in some):
            jobs = [job for job in some if job.sets == sets and not job.done.done()]  # its caller is still there
            if not jobs:
                continue
            texts = [job.texts[0] for job in jobs]
            self._see_batch(len(texts))
            try:
                _hand_out(jobs, self.predict(texts, sets))
            except Exception as error:
                _fail(jobs, error)

    def _take(self) -> list[_Job]:
        """The next jobs that ask for the same, up to a batch of texts; a job is never split."""
        taken: list[_Job] = []
        size = 0
        while self._jobs:
            job = self._jobs[0]
            if taken and (size + len(job.texts) > self._batch or job.sets != taken[0].sets):
                break
            self._jobs.popleft()
            self._wait(-len(job.texts))
            if not job.done.done():  # its caller is still there
                taken.append(job)
                size += len(job.texts)
        return taken

    async def _work(self, jobs: list[_Job]) -> None:
        texts = [text for job in jobs for text in job.texts]
        self._see_batch(len(texts))
        loop = asyncio.get_running_loop()
        try:
            found: Any = await loop.run_in_executor(self._pool, self.predict, texts, jobs[0].sets)
        except Exception as error:
            _fail(jobs, error)
        else:
            _hand_out(jobs, found)
        finally:
            self._idle += 1
            self._start()

    async def close(self) -> None:
        """Finish what was taken."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)
        self._pool.shutdown(wait=False)


def _hand_out(jobs: list[_Job], found: "list[Prediction]") -> None:
    start = 0
    for job in jobs:
        if not job.done.done():
            job.done.set_result(found[start : start + len(job.texts)])
        start += len(job.texts)


def _fail(jobs: list[_Job], error: Exception) -> None:
    for job in jobs:
        if not job.done.done():
            job.done.set_exception(error)


def _sides(text: "Text") -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else text
