"""Requests gathered into batches."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tagline.serving.batching import Batcher, ComputeError, ModelUnavailable, QueueFull


class Panic(BaseException):
    """As native code raises it: pyo3's PanicException is no Exception either."""


class Slow:
    """Answers each text with itself, once it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()

    def __call__(self, texts: Sequence[Any], sets: float | None) -> Any:
        self.threads.add(threading.get_ident())
        self.may.wait(60)
        self.batches.append(list(texts))
        if "bad" in texts:
            raise ValueError("a bad text")
        if "panic" in texts:
            raise Panic("a regex without an end")
        return [(text, sets) for text in texts]


def batcher(predict: Any, **settings: Any) -> Batcher:
    chosen = {"threads": 1, "most_waiting": 5, "batch": 4} | settings
    return Batcher(predict, **chosen, observe_batch=lambda _: None, observe_waiting=lambda _: None)


def test_what_waits_is_answered_together_and_each_gets_its_own() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow)
        first = asyncio.create_task(queue.ask(["a"], sets=None, timeout_s=60))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(queue.ask([text], sets=None, timeout_s=60)) for text in "bcd"]
        await asyncio.sleep(0)
        assert queue.waiting == 3
        slow.may.set()
        assert [await task for task in (first, *others)] == [[(text, None)] for text in "abcd"]
        assert slow.batches == [["a"], ["b", "c", "d"]], "the first did not wait for company"
        await queue.close()

    asyncio.run(run())


def test_texts_that_stand_alone_are_answered_one_by_one_and_the_next_lies_ready() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow, batch=1)
        tasks = [asyncio.create_task(queue.ask([text], sets=None, timeout_s=60)) for text in "abcd"]
        await asyncio.sleep(0)
        assert queue.waiting == 2, "one is computed, one has been handed over"
        slow.may.set()
        assert await asyncio.gather(*tasks) == [[(text, None)] for text in "abcd"]
        assert slow.batches == [["a"], ["b"], ["c"], ["d"]]
        await queue.close()

    asyncio.run(run())


def test_what_asks_for_other_things_is_not_mixed_and_a_request_is_not_split() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow, most_waiting=100)
        asked = [(["a"], None), (["b"], 0.9), (["c"], 0.9), (["d", "e", "f", "g", "h"], 0.9)]
        tasks = [asyncio.create_task(queue.ask(texts, sets=sets, timeout_s=60)) for texts, sets in asked]
        await asyncio.sleep(0.05)
        slow.may.set()
        await asyncio.gather(*tasks)
        assert slow.batches == [["a"], ["b", "c"], ["d", "e", "f", "g", "h"]]
        await queue.close()

    asyncio.run(run())


def test_too_much_is_refused_at_once_and_one_large_request_alone_is_not() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow)
        taken = asyncio.create_task(queue.ask(["a"], sets=None, timeout_s=60))
        await asyncio.sleep(0.05)
        large = asyncio.create_task(queue.ask(["x"] * 9, sets=None, timeout_s=60))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await queue.ask(["y"], sets=None, timeout_s=60)
        slow.may.set()
        assert len(await large) == 9
        await taken
        await queue.close()

    asyncio.run(run())


def test_who_goes_away_takes_the_texts_along() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow)
        first = asyncio.create_task(queue.ask(["a"], sets=None, timeout_s=60))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(queue.ask(["b"], sets=None, timeout_s=60))
        kept = asyncio.create_task(queue.ask(["c"], sets=None, timeout_s=60))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        slow.may.set()
        await asyncio.gather(first, kept)
        assert slow.batches == [["a"], ["c"]]
        assert queue.waiting == 0
        await queue.close()

    asyncio.run(run())


def test_an_error_is_answered_and_the_next_is_too() -> None:
    async def run() -> None:
        slow = Slow()
        slow.may.set()
        queue = batcher(slow)
        with pytest.raises(ValueError, match="a bad text"):
            await queue.ask(["bad"], sets=None, timeout_s=60)
        assert await queue.ask(["good"], sets=None, timeout_s=60) == [("good", None)]
        await queue.close()

    asyncio.run(run())


def test_quick_answers_are_computed_in_the_event_loop_what_was_asked_together_together() -> None:
    async def run() -> None:
        slow = Slow()
        slow.may.set()
        queue = batcher(slow, quick=True, most_waiting=100)
        asked = [("a", None), ("b", 0.9), ("c", None), ("d", 0.9)]
        tasks = [asyncio.create_task(queue.ask([text], sets=sets, timeout_s=60)) for text, sets in asked]
        assert await asyncio.gather(*tasks) == [[each] for each in asked]
        assert slow.batches == [["a", "c"], ["b", "d"]]
        assert slow.threads == {threading.get_ident()}
        many = [asyncio.create_task(queue.ask([str(number)], sets=None, timeout_s=60)) for number in range(20)]
        assert [answer for ((answer, _),) in await asyncio.gather(*many)] == [str(number) for number in range(20)]
        assert [len(batch) for batch in slow.batches[2:]] == [8, 8, 4], "the loop turns in between"
        await queue.close()

    asyncio.run(run())


def test_what_takes_long_is_handed_to_a_thread_even_where_answers_are_quick() -> None:
    async def run() -> None:
        slow = Slow()
        slow.may.set()
        queue = batcher(slow, quick=True)
        for texts in (["x" * 1001], ["a", "b"], [("y" * 600, "z" * 600)]):
            assert await queue.ask(texts, sets=None, timeout_s=60) == [(text, None) for text in texts]
        assert threading.get_ident() not in slow.threads
        await queue.close()

    asyncio.run(run())


def test_too_many_quick_ones_are_refused_and_who_goes_away_takes_the_text_along() -> None:
    async def run() -> None:
        slow = Slow()
        slow.may.set()
        queue = batcher(slow, quick=True)
        with pytest.raises(QueueFull):
            await queue.ask(["a"], sets=None, timeout_s=60, beside=5)
        gone = asyncio.create_task(queue.ask(["b"], sets=None, timeout_s=60))
        kept = asyncio.create_task(queue.ask(["c"], sets=None, timeout_s=60, beside=4))
        await asyncio.sleep(0)
        gone.cancel()
        assert await kept == [("c", None)]
        bad, beside = (asyncio.create_task(queue.ask([text], sets=None, timeout_s=60)) for text in ("bad", "d"))
        with pytest.raises(ValueError, match="a bad text"):
            await bad
        assert await beside == [("d", None)], "who was computed together with it is computed again"
        assert await queue.ask(["e"], sets=None, timeout_s=60) == [("e", None)]
        alone = asyncio.create_task(queue.ask(["f"], sets=None, timeout_s=60))
        await asyncio.sleep(0)
        alone.cancel()
        await asyncio.sleep(0)
        assert slow.batches == [["c"], ["bad", "d"], ["bad"], ["d"], ["e"]]
        await queue.close()

    asyncio.run(run())


def test_an_answer_that_is_too_late_is_not_waited_for() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow)
        first = asyncio.create_task(queue.ask(["a"] * 2, sets=None, timeout_s=60))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await queue.ask(["b"] * 2, sets=None, timeout_s=0.05)
        slow.may.set()
        await first
        assert await queue.ask(["c"], sets=None, timeout_s=60) == [("c", None)]
        assert ["b", "b"] not in slow.batches, "nobody waits for it any more"
        await queue.close()

    asyncio.run(run())


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize(("text", "error"), [("bad", ValueError), ("panic", ComputeError)])
def test_only_the_request_that_caused_a_failure_or_panic_fails(quick: bool, text: str, error: type[Exception]) -> None:
    async def run() -> None:
        slow = Slow()
        slow.may.set()
        queue = batcher(slow, quick=quick, most_waiting=100)
        asked = ["a", text, "b", "c"]
        tasks = [asyncio.create_task(queue.ask([each], sets=None, timeout_s=60)) for each in asked]
        found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert isinstance(found[1], error)
        assert [found[0], *found[2:]] == [[("a", None)], [("b", None)], [("c", None)]]
        assert ["a", text, "b", "c"] in slow.batches or [text, "b", "c"] in slow.batches, "they were computed together"
        assert queue.problem == ""
        assert await queue.ask(["d"], sets=None, timeout_s=60) == [("d", None)]
        await queue.close()

    asyncio.run(run())


@pytest.mark.parametrize("quick", [False, True])
def test_a_model_that_answers_nothing_after_a_failure_is_known(quick: bool) -> None:
    async def run() -> None:
        slow = Slow()
        slow.may.set()

        def probe() -> None:
            raise Panic("poisoned")

        queue = batcher(slow, quick=quick, probe=probe)
        assert await queue.ask(["a"], sets=None, timeout_s=60) == [("a", None)]
        with pytest.raises(ComputeError, match="Panic: a regex without an end"):
            await queue.ask(["panic"], sets=None, timeout_s=60)
        assert "Panic: poisoned" in queue.problem
        with pytest.raises(ModelUnavailable, match="poisoned"):
            await queue.ask(["a"], sets=None, timeout_s=60)
        await queue.close()

    asyncio.run(run())


def test_a_batch_that_never_ends_is_known_and_nobody_waits_for_it() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow, stuck_after_s=0.05)
        tasks = [asyncio.create_task(queue.ask([text], sets=None, timeout_s=60)) for text in "ab"]
        assert queue.problem == ""
        while not queue.problem:
            await asyncio.sleep(0.01)
        queue.abandon()
        found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert [str(each) for each in found] == ["the model has not finished computing within 0.05 seconds"] * 2
        assert queue.waiting == 0
        with pytest.raises(ModelUnavailable):
            await queue.ask(["c"], sets=None, timeout_s=60)
        await asyncio.wait_for(queue.close(), 60)
        assert not slow.may.is_set(), "closing has not waited for it"
        slow.may.set()

    asyncio.run(run())


def test_what_is_computed_beside_batches_is_one_at_a_time_and_holds_none_up() -> None:
    async def run() -> None:
        may, quick = threading.Event(), Slow()
        quick.may.set()
        queue = batcher(quick)
        first = asyncio.create_task(queue.compute_beside(lambda: may.wait(60) and "found", timeout_s=60))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await queue.compute_beside(lambda: "another", timeout_s=60)
        assert await queue.ask(["a"], sets=None, timeout_s=60) == [("a", None)]
        may.set()
        assert await first == "found"
        assert await queue.compute_beside(lambda: "another", timeout_s=60) == "another"
        await queue.close()

    asyncio.run(run())


def test_a_failure_beside_batches_is_answered_and_the_model_checked() -> None:
    async def run() -> None:
        probed: list[str] = []

        def panic() -> None:
            raise Panic("a regex without an end")

        queue = batcher(Slow(), probe=lambda: probed.append("probed"))
        with pytest.raises(ComputeError, match="Panic: a regex without an end"):
            await queue.compute_beside(panic, timeout_s=60)
        assert (probed, queue.problem) == (["probed"], "")
        assert await queue.compute_beside(lambda: "found", timeout_s=60) == "found"
        await queue.close()

    asyncio.run(run())


def test_what_never_ends_beside_batches_is_known_and_nobody_waits_for_it() -> None:
    async def run() -> None:
        may, slow = threading.Event(), Slow()
        queue = batcher(slow, stuck_after_s=0.05)
        with pytest.raises(TimeoutError):
            await queue.compute_beside(lambda: may.wait(60), timeout_s=0.01)
        while not queue.problem:
            await asyncio.sleep(0.01)
        for asked in (queue.ask(["a"], sets=None, timeout_s=60), queue.compute_beside(may.wait, timeout_s=60)):
            with pytest.raises(ModelUnavailable, match=r"has not finished computing within 0\.05 seconds"):
                await asked
        queue.abandon()
        await asyncio.wait_for(queue.close(), 60)
        assert not may.is_set(), "closing has not waited for it"
        may.set()

    asyncio.run(run())


def test_who_waits_for_what_is_computed_beside_batches_is_told_when_it_is_given_up() -> None:
    async def run() -> None:
        may = threading.Event()
        queue = batcher(Slow(), stuck_after_s=0.05)
        asked = asyncio.create_task(queue.compute_beside(lambda: may.wait(60), timeout_s=60))
        while not queue.problem:
            await asyncio.sleep(0.01)
        queue.abandon()
        with pytest.raises(ModelUnavailable):
            await asyncio.wait_for(asked, 60)
        await queue.close()
        may.set()

    asyncio.run(run())
