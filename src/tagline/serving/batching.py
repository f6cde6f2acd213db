"""Dynamic batching without a delay: a lone request never waits for others, and a full queue refuses at once."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tagline.errors import RunError, TaglineError

if TYPE_CHECKING:
    from tagline.data.texts import Text
    from tagline.models import Prediction

QUICK_CHARACTERS = 1000
"""Length of a text up to which a small network takes a few milliseconds."""
QUICK_TEXTS = 8
"""How many of them are computed in the event loop at a time."""
Predict = Callable[[Sequence["Text"], float | None], "list[Prediction]"]
Found = TypeVar("Found")

CLOSE_S = 1.0
"""How long `close` waits for batches that are being computed."""


class QueueFull(Exception):
    """More texts are waiting than allowed."""


class ModelUnavailable(Exception):
    """Predictions cannot be computed in this process any more; its message says why."""


class ComputeError(Exception):
    """Predicting has raised something that is no Exception, such as a panic in native code."""


@dataclass(eq=False)
class _PredictJob:
    texts: "list[Text]"
    sets: float | None
    done: "asyncio.Future[Any]"


class Batcher:
    """A queue of jobs and a few threads: a thread that is free takes what is waiting, up to a batch of texts.

    With batches of one, a job is handed over before a thread is free for it. Where answers are `quick`, short texts are
    computed in the event loop, since a thread switch costs a third of the answer: those that came since its last
    iteration form a batch.

    A failure is reported to the request that caused it, and the rest of its batch is computed again. After a failure
    that the model should not have, `probe` (predicting a text that is known to work) tests whether it still answers.
    `problem` says why nothing can be computed any more: the probe failed, or a computation has taken longer than
    `stuck_after_s`, after which its callers have timed out.
    """

    def __init__(
        self,
        predict: Predict,
        *,
        threads: int,
        most_waiting: int,
        batch: int,
        quick: bool = False,
        observe_batch: Callable[[float], None],
        observe_waiting: Callable[[float], None],
        probe: Callable[[], object] = lambda: None,
        stuck_after_s: float = float("inf"),
    ) -> None:
        self.predict = predict
        self._probe = probe
        self._stuck_after_s = stuck_after_s
        self._failure = ""
        self._computing: dict[int, float] = {}
        """When each busy thread began."""
        self._taken: set[_PredictJob] = set()
        """Jobs that were taken from the queue and have no answer yet."""
        self._observe_batch, self._observe_waiting = observe_batch, observe_waiting
        self._most_waiting = most_waiting
        self._batch = batch
        self._quick = quick
        self._at_once: list[_PredictJob] = []
        self._jobs: deque[_PredictJob] = deque()
        self._waiting = 0
        self._idle = threads + (batch == 1)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="predict")
        self._pool_beside = ThreadPoolExecutor(1, thread_name_prefix="beside")
        self._is_busy_beside = False
        self._running: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Texts in the queue."""
        return self._waiting + len(self._at_once)

    @property
    def problem(self) -> str:
        """Why nothing can be computed in this process any more; empty while it can."""
        begun = min(self._computing.copy().values(), default=float("inf"))
        if time.monotonic() - begun > self._stuck_after_s:
            return f"the model has not finished computing within {self._stuck_after_s:g} seconds"
        return self._failure

    def abandon(self) -> None:
        """Fail all jobs: nothing will be computed any more."""
        self._failure = self.problem
        waiting = [*self._at_once, *self._jobs, *self._taken]
        self._at_once, self._jobs, self._waiting = [], deque(), 0
        self._observe_waiting(0)
        _fail_jobs(waiting, ModelUnavailable(self._failure))

    async def ask(
        self, texts: "list[Text]", *, sets: float | None, timeout_s: float, beside: int = 0
    ) -> "list[Prediction]":
        """Return the predictions, or raise TimeoutError.

        When a caller is cancelled or times out, its texts leave the queue unless a thread has taken them already.
        `beside` is the number of other requests without an answer, which count as waiting where answers are quick.
        """
        if problem := self.problem:
            raise ModelUnavailable(problem)
        waiting = max(self.waiting, beside) if self._quick else self._waiting
        if waiting and waiting + len(texts) > self._most_waiting:
            raise QueueFull
        loop = asyncio.get_running_loop()
        job = _PredictJob(texts, sets, loop.create_future())
        if self._quick and len(texts) == 1 and sum(map(len, _split_sides(texts[0]))) <= QUICK_CHARACTERS:
            self._at_once.append(job)
            self._observe_waiting(self.waiting)
            if len(self._at_once) == 1:
                loop.call_soon(self._compute_quick)
        else:
            self._jobs.append(job)
            self._count_waiting(len(texts))
            self._start_jobs()
        found: list[Prediction] = await _await_job(job, timeout_s)
        return found

    async def compute_beside(self, compute: Callable[[], Found], *, timeout_s: float) -> Found:
        """Run another computation in a thread of its own, one at a time, supervised as batches are."""
        if problem := self.problem:
            raise ModelUnavailable(problem)
        if self._is_busy_beside:
            raise QueueFull
        self._is_busy_beside = True
        job = _PredictJob([], None, asyncio.get_running_loop().create_future())
        self._spawn_task(self._run_beside(job, compute))
        found: Found = await _await_job(job, timeout_s)
        return found

    def _count_waiting(self, more: int) -> None:
        self._waiting += more
        self._observe_waiting(self.waiting)

    def _start_jobs(self) -> None:
        """Hand waiting jobs to free threads."""
        while self._idle and (some := self._take_batch()):
            self._idle -= 1
            self._spawn_task(self._run_batch(some))

    def _spawn_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task and keep a reference to it, which the event loop does not."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _compute_quick(self) -> None:
        """Answer short texts in the event loop, which handles other events between batches of them."""
        some, self._at_once = self._at_once[:QUICK_TEXTS], self._at_once[QUICK_TEXTS:]
        self._observe_waiting(self.waiting)
        if self._at_once:
            asyncio.get_running_loop().call_soon(self._compute_quick)
        for sets in dict.fromkeys(job.sets for job in some):
            jobs = [job for job in some if job.sets == sets and not job.done.done()]  # its caller is still there
            if not jobs:
                continue
            self._observe_batch(len(jobs))
            self._answer_jobs(jobs)

    def _answer_jobs(self, jobs: list[_PredictJob]) -> None:
        """Compute jobs of one text each as a batch; if that fails, one by one."""
        try:
            texts = [job.texts[0] for job in jobs]
            _deliver_results(jobs, self._run_compute(partial(self.predict, texts, jobs[0].sets)))
        except Exception as error:
            if len(jobs) == 1:
                _fail_jobs(jobs, error)
            else:
                for job in jobs:
                    self._answer_jobs([job])

    def _take_batch(self) -> list[_PredictJob]:
        """Take the next jobs with the same parameters, up to a batch of texts; a job is never split."""
        taken: list[_PredictJob] = []
        size = 0
        while self._jobs:
            job = self._jobs[0]
            if taken and (size + len(job.texts) > self._batch or job.sets != taken[0].sets):
                break
            self._jobs.popleft()
            self._count_waiting(-len(job.texts))
            if not job.done.done():  # its caller is still there
                taken.append(job)
                size += len(job.texts)
        return taken

    async def _run_batch(self, jobs: list[_PredictJob]) -> None:
        self._observe_batch(sum(len(job.texts) for job in jobs))
        self._taken.update(jobs)
        try:
            await self._answer_by_thread(jobs)
        finally:
            self._taken.difference_update(jobs)
            self._idle += 1
            self._start_jobs()

    async def _answer_by_thread(self, jobs: list[_PredictJob]) -> None:
        """Compute jobs as a batch in a thread; if that fails, one by one."""
        texts = [text for job in jobs for text in job.texts]
        try:
            predict = partial(self.predict, texts, jobs[0].sets)
            found = await asyncio.get_running_loop().run_in_executor(self._pool, self._run_compute, predict)
        except Exception as error:
            if len(jobs) == 1:
                _fail_jobs(jobs, error)
                return
            for job in jobs:
                if not job.done.done():  # its caller is still there
                    await self._answer_by_thread([job])
        else:
            _deliver_results(jobs, found)

    async def _run_beside(self, job: _PredictJob, compute: Callable[[], Any]) -> None:
        self._taken.add(job)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._pool_beside, self._run_compute, compute)
        except Exception as error:
            _fail_jobs([job], error)
        else:
            if not job.done.done():
                job.done.set_result(found)
        finally:
            self._taken.discard(job)
            self._is_busy_beside = False

    def _run_compute(self, compute: Callable[[], Found]) -> Found:
        """Compute, and after a failure that is not the request's own fault test whether the model still works."""
        thread = threading.get_ident()
        self._computing[thread] = time.monotonic()
        try:
            return compute()
        except BaseException as error:  # a panic in native code is no Exception, and would leave the callers waiting
            if not isinstance(error, TaglineError) or isinstance(error, RunError):
                self._check_model()
            if isinstance(error, Exception):
                raise
            raise ComputeError(f"{type(error).__name__}: {error}") from error
        finally:
            del self._computing[thread]

    def _check_model(self) -> None:
        """Probe the model, and record a failure."""
        try:
            self._probe()
        except BaseException as failure:
            self._failure = f"the model answers nothing any more: {type(failure).__name__}: {failure}"

    async def close(self) -> None:
        """Wait up to CLOSE_S for running batches, unless they were abandoned, and release the threads."""
        if self._running and not self._failure:
            await asyncio.wait(self._running, timeout=CLOSE_S)
        for pool in (self._pool, self._pool_beside):
            pool.shutdown(wait=False, cancel_futures=True)


async def _await_job(job: _PredictJob, timeout_s: float) -> Any:
    """Return the result of a job, or raise TimeoutError."""
    too_late = asyncio.get_running_loop().call_later(timeout_s, _fail_jobs, [job], TimeoutError())
    try:
        return await job.done
    finally:
        too_late.cancel()


def _deliver_results(jobs: list[_PredictJob], found: "list[Prediction]") -> None:
    start = 0
    for job in jobs:
        if not job.done.done():
            job.done.set_result(found[start : start + len(job.texts)])
        start += len(job.texts)


def _fail_jobs(jobs: list[_PredictJob], error: Exception) -> None:
    for job in jobs:
        if not job.done.done():
            job.done.set_exception(error)


def _split_sides(text: "Text") -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else text
