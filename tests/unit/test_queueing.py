"""Requests gathered into batches."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tagline.queueing import Batcher, Full


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
        return [(text, sets) for text in texts]


def batcher(predict: Any, **settings: int) -> Batcher:
    chosen = {"threads": 1, "most_waiting": 5, "batch": 4} | settings
    return Batcher(predict, **chosen, see_batch=lambda _: None, see_waiting=lambda _: None)


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
        with pytest.raises(Full):
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


def test_an_error_is_its_batchs_and_the_next_is_answered() -> None:
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
        with pytest.raises(Full):
            await queue.ask(["a"], sets=None, timeout_s=60, beside=5)
        gone = asyncio.create_task(queue.ask(["b"], sets=None, timeout_s=60))
        kept = asyncio.create_task(queue.ask(["c"], sets=None, timeout_s=60, beside=4))
        await asyncio.sleep(0)
        gone.cancel()
        assert await kept == [("c", None)]
        bad, beside = (asyncio.create_task(queue.ask([text], sets=None, timeout_s=60)) for text in ("bad", "d"))
        with pytest.raises(ValueError, match="a bad text"):
            await bad
        with pytest.raises(ValueError, match="a bad text"):
            await beside
        assert await queue.ask(["e"], sets=None, timeout_s=60) == [("e", None)]
        alone = asyncio.create_task(queue.ask(["f"], sets=None, timeout_s=60))
        await asyncio.sleep(0)
        alone.cancel()
        await asyncio.sleep(0)
        assert slow.batches == [["c"], ["bad", "d"], ["e"]]
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
