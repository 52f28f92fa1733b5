"""Messages between two ends: whole, in order, from any thread; what came before the end is read."""

from __future__ import annotations

import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sglang_lite.request_tree import LogprobParams, SamplingParams
from sglang_lite.runtime.engine.requests import GenerateRequest
from sglang_lite.runtime.server.ipc import messages as ipc
from sglang_lite.runtime.server.ipc.channel import Channel

Ends = tuple[Channel[ipc.FromScheduler], Channel[ipc.ToScheduler]]


@pytest.fixture
def ends() -> Iterator[Ends]:
    with tempfile.TemporaryDirectory(prefix="ch-") as folder:  # short: a socket's path has a limit
        here: Channel[ipc.FromScheduler] = Channel(Path(folder), "http", ipc.FromScheduler)
        there: Channel[ipc.ToScheduler] = Channel(Path(folder), "scheduler", ipc.ToScheduler)
        yield here, there
        here.release()
        there.release()


def test_a_request_arrives_as_it_was(ends: Ends) -> None:
    params = SamplingParams(
        max_new_tokens=None,
        stop=("a", "b"),
        logit_bias=((3, -1.5),),
        json_schema="{}",
        json_whitespace="any",
        thinking=("<t>", "</t>"),
    )
    request = GenerateRequest((1, 2, 3), params, LogprobParams(0, 2, (5,), with_text=True), "r1", 7)
    ends[0].send(ipc.Generate(4, [request], stream=True))
    assert ends[1].receive() == ipc.Generate(4, [request], stream=True)


def test_order_holds_and_no_thread_is_lost(ends: Ends) -> None:
    threads = [
        threading.Thread(target=lambda n=n: [ends[1].send(ipc.Beat(100 * n + i, has_work=True)) for i in range(100)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    got = [ends[0].receive() for _ in range(400)]
    for thread in threads:
        thread.join()
    steps = [beat.steps for beat in got if isinstance(beat, ipc.Beat)]
    assert sorted(steps) == list(range(400))
    for n in range(4):
        assert [s for s in steps if s // 100 == n] == list(range(100 * n, 100 * n + 100))


def test_what_came_before_the_end_is_read(ends: Ends) -> None:
    ends[1].send(ipc.Progress("one"))
    ends[1].send(ipc.Progress("two"))
    assert ends[0].receive() == ipc.Progress("one")
    assert ends[0]._in.poll(60_000), "the second one did not come"
    ends[0].close()
    assert ends[0].receive() == ipc.Progress("two")
    assert ends[0].receive() is None
    ends[0].send(ipc.Stop())  # nothing happens


def test_what_is_no_message_of_this_version_is_an_error(ends: Ends) -> None:
    class Odd(ipc.Message, frozen=True):
        x: int

    ends[0].send(Odd(1))
    with pytest.raises(msgspec.ValidationError, match="Odd"):
        ends[1].receive()


def test_the_sender_does_not_wait_for_a_reader() -> None:
    with tempfile.TemporaryDirectory(prefix="ch-") as folder:
        here: Channel[ipc.FromScheduler] = Channel(Path(folder), "http", ipc.FromScheduler)
        for _ in range(5000):
            here.send(ipc.Abort(["x" * 100], is_silent=True))
        assert stat.S_ISSOCK((Path(folder) / "from_scheduler").stat().st_mode)
        here.release()
