"""What holds inside a ``with`` block holds there alone: threads, tasks, generators, exceptions, any order."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from contextlib import ExitStack

import pytest

import mlx_unpool
from mlx_unpool import _backends, _derivatives, _indices

BLOCKS = {
    "exporting": (mlx_unpool.exporting, _derivatives._exporting.get, False, True),
    "checking": (mlx_unpool.checking, _indices.is_checking, False, True),
    "use_backend": (lambda: mlx_unpool.use_backend("metal"), _backends.forced, None, "metal"),
}


@pytest.fixture(params=BLOCKS)
def block(request):
    """The context manager, what tells the value, the value outside and the value inside."""
    parts = BLOCKS[request.param]
    assert parts[1]() == parts[2]
    yield parts
    assert parts[1]() == parts[2]


def in_a_thread(call):
    got = []
    thread = threading.Thread(target=lambda: got.append(call()))
    thread.start()
    thread.join()
    return got[0]


def test_it_holds_inside_and_ends_with_the_block(block):
    enter, value, outside, inside = block
    with enter():
        assert value() == inside
        with enter():
            assert value() == inside
        assert value() == inside
    assert value() == outside
    with pytest.raises(KeyError), enter():
        raise KeyError
    assert value() == outside


def test_it_does_not_hold_in_threads_that_are_started_inside(block):
    enter, value, outside, _ = block
    with enter():
        assert in_a_thread(value) == outside


def test_it_holds_in_tasks_that_are_made_inside(block):
    enter, value, outside, inside = block

    async def main():
        async def look():
            await asyncio.sleep(0)
            return value()

        with enter():
            made_inside = asyncio.create_task(look())
            in_a_worker = await asyncio.to_thread(value)
            assert await made_inside == inside
            late = asyncio.create_task(look())
        assert in_a_worker == inside
        assert await late == outside  # the block was over when the task looked
        assert value() == outside

    asyncio.run(main())


def generator(enter):
    with enter():
        yield
        yield


def test_a_generator_that_pauses_inside_leaves_it_on_until_it_is_closed(block):
    enter, value, outside, inside = block
    paused = generator(enter)
    next(paused)
    assert value() == inside
    paused.close()
    assert value() == outside
    paused = generator(enter)
    next(paused)
    del paused  # forgotten, not closed
    gc.collect()
    assert value() == outside


def test_a_generator_may_be_closed_in_another_thread_or_context(block):
    enter, value, outside, inside = block
    for close in (in_a_thread, contextvars.copy_context().run):
        paused = generator(enter)
        next(paused)
        assert value() == inside
        close(paused.close)
        assert value() == outside


def test_blocks_may_end_in_any_order(block):
    enter, value, outside, inside = block
    first, second = ExitStack(), ExitStack()
    first.enter_context(enter())
    second.enter_context(enter())
    first.close()
    assert value() == inside
    second.close()
    assert value() == outside


def test_blocks_keep_nothing(block):
    """However often one is entered from inside a block that never ends."""
    enter, _, _, _ = block
    paused = generator(enter)
    next(paused)
    in_a_thread(paused.close)
    for _ in range(100_000):  # a chain of these would end in a recursion error, or in 10 MB
        with enter():
            pass
    block_ = _derivatives._exporting._innermost.get()
    assert block_ is None or block_.outer is None
