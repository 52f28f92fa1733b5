"""The client against an engine behind messages: replies equal to the engine's own, nothing hangs when it is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sglang_lite.errors import (
    CancelledError,
    EngineStoppedError,
    GrammarError,
    ProgramError,
    RequestError,
    SglangLiteError,
    UnsupportedError,
)
from sglang_lite.request_tree import (
    ArgOp,
    EndOp,
    Event,
    GenOp,
    OpDone,
    OpFailed,
    RequestTree,
    SamplingParams,
    TextOp,
    TreeRow,
)
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.engine.reply import Mailbox, Reply
from sglang_lite.runtime.engine.requests import GenerateRequest
from sglang_lite.runtime.server.ipc import messages as ipc
from sglang_lite.runtime.server.ipc.client import EngineClient
from tests.support.live_server import wait_until
from tests.support.split_engine import split_engine, until_taken
from tests.support.talking_engine import TalkingRunner, talking_engine

VARYING = ("id", "e2e_latency", "queue_time", "time_to_first_token")


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[EngineClient, Engine, TalkingRunner]]:
    with talking_engine() as (engine, runner), split_engine(engine) as client:
        yield client, engine, runner


def plain(value: Any) -> Any:
    """Without what differs from run to run; tuples as lists."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in VARYING}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def test_replies_are_the_engines_own(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    client, engine, _ = both
    inputs: dict[str, Any] = {
        "prompt": ["one", "two"],
        "sampling_params": {"max_new_tokens": 6, "n": 2},
        "return_logprob": True,
        "top_logprobs_num": 2,
        "logprob_start_len": 0,
    }
    engine.generate(**inputs)  # both find the prompts in the cache
    mine = asyncio.run(_whole(client, inputs))
    assert plain(mine) == plain(engine.generate(**inputs))
    assert client.num_open == 0


async def _whole(client: EngineClient, inputs: dict[str, Any]) -> Any:
    return await client.async_generate(**inputs)


def test_an_id_is_free_when_its_reader_hears_of_the_end(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    """Two requests in one group: each id is free with its own end, the group with the last one."""
    client, _, _ = both
    open_then: list[tuple[bool, int]] = []

    class Noting(Mailbox):
        def deliverer(self, index: int) -> Callable[[Reply, SglangLiteError | None, bool], None]:
            def deliver(reply: Reply, error: SglangLiteError | None, last: bool) -> None:
                if last:
                    open_then.append((f"end-{index}" in client._rids, client.num_open))

            return deliver

    sampling = SamplingParams(max_new_tokens=3)
    requests = [GenerateRequest((72, 105), sampling, rid=f"end-{index}") for index in range(2)]
    client.submit(requests, Noting(), stream=True)
    wait_until(lambda: len(open_then) == 2)
    assert open_then == [(False, 1), (False, 0)]


def test_a_stream_grows_as_the_engines_does(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    client, engine, _ = both
    inputs: dict[str, Any] = {"prompt": "stream", "sampling_params": {"max_new_tokens": 5}, "return_logprob": True}
    engine.generate(**inputs)

    async def gather() -> list[Any]:
        replies: Any = await client.async_generate(**inputs, stream=True)
        return [reply async for reply in replies]

    mine = asyncio.run(gather())
    theirs = list(engine.generate(**inputs, stream=True))
    assert plain(mine) == plain(theirs)
    assert len(mine) == 5
    assert len(mine[-1]["meta_info"]["output_token_logprobs"]) == 5


def test_bad_requests_fail_alone(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    client, _, _ = both
    with pytest.raises(RequestError, match="exactly one of prompt"):
        client.async_generate()
    with pytest.raises(UnsupportedError, match="image_data"):
        client.async_generate("a", image_data="x")
    with pytest.raises(GrammarError, match="refused as asked"):
        asyncio.run(_whole(client, {"prompt": "a", "sampling_params": {"regex": "refuse me"}}))
    with pytest.raises(RequestError, match="twice"):
        asyncio.run(_whole(client, {"prompt": ["a", "b"], "rid": ["x", "x"]}))
    assert asyncio.run(_whole(client, {"prompt": "a"}))["text"] == "Hello there."
    assert client.num_open == 0


def test_an_abort_ends_a_request_with_what_it_had(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    client, engine, runner = both

    async def abort_midway() -> Any:
        replies: Any = await client.async_generate("abort", {"ignore_eos": True}, rid="mine", stream=True)
        last: Any = None
        async for reply in replies:
            if last is None:
                with pytest.raises(RequestError, match="in use"):
                    await client.async_generate("other", rid="mine")
                client.abort("mine")
                await asyncio.to_thread(until_taken, client)
                gate.release(1000)
            last = reply
        return last

    runner.gate = gate = threading.Semaphore(2)
    try:
        last = asyncio.run(abort_midway())
    finally:
        runner.gate = None
        gate.release(1000)
    assert last["meta_info"]["finish_reason"]["type"] == "abort"
    assert last["text"].startswith("H")
    wait_until(lambda: engine.get_server_info()["running"] == 0)


def test_leaving_a_stream_frees_the_request(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    client, engine, _ = both

    async def leave() -> None:
        replies: Any = await client.async_generate("leave", {"ignore_eos": True, "max_new_tokens": 400}, stream=True)
        async for _ in replies:
            break
        await replies.aclose()

    asyncio.run(leave())
    wait_until(lambda: engine.get_server_info()["running"] == 0)
    wait_until(lambda: client.num_open == 0)


def test_a_program_runs_there(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    client, _, _ = both
    events: list[Event] = []
    program = client.open_program(events.append, seed=1)
    program.append([TextOp(0, 0, "hi"), GenOp(1, 0, "x", SamplingParams(max_new_tokens=5)), EndOp(2, 0)])
    program.close()
    wait_until(lambda: len([e for e in events if isinstance(e, OpDone)]) == 3)
    assert [e.value for e in events if isinstance(e, OpDone) and e.op == 1] == ["Hello"]
    wait_until(lambda: client.num_open == 0)


def test_calls_give_values_and_errors(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    client, engine, _ = both
    assert client.flush_cache() is True
    assert client.get_server_info()["context_length"] == engine.get_server_info()["context_length"]
    until_taken(client)


def test_when_the_scheduler_is_gone_all_that_is_open_fails() -> None:
    """A request, a stream, a program and a call under way each end with the same error; so does everything new."""
    with talking_engine() as (engine, runner), split_engine(engine) as client:
        runner.gate = gate = threading.Semaphore(0)
        events: list[Event] = []
        client.open_program(events.append).append([GenOp(0, 0, "x", SamplingParams())])

        async def wait() -> list[Any]:
            waiting = [asyncio.ensure_future(_whole(client, {"prompt": text})) for text in ("a", "b")]
            waiting.append(asyncio.ensure_future(asyncio.to_thread(client.get_server_info)))
            while client.num_open < 4:
                await asyncio.sleep(0)
            client.die(EngineStoppedError("gone"))
            return await asyncio.gather(*waiting, return_exceptions=True)

        results = asyncio.run(wait())
        gate.release(1000)
        assert [type(result) for result in results] == [EngineStoppedError] * 3
        assert [type(event) for event in events] == [OpFailed]
        with pytest.raises(EngineStoppedError, match="gone"):
            client.open_program(events.append)
        with pytest.raises(EngineStoppedError, match="gone"):
            asyncio.run(_whole(client, {"prompt": "late"}))


def _tree() -> RequestTree:
    tree = RequestTree()
    for op in (
        TextOp(0, 0, "say "),
        ArgOp(1, 0, "what"),
        GenOp(2, 0, "x", SamplingParams(max_new_tokens=9)),
        EndOp(3, 0),
    ):
        tree.add(op)
    return tree


def test_rows_of_a_tree_are_one_message_and_one_program_each(
    both: tuple[EngineClient, Engine, TalkingRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, runner = both
    runner.replies |= {"say this": "This", "say that": "That"}
    sent: list[ipc.Message] = []
    send = client._send

    def recorded(message: ipc.Message) -> None:
        sent.append(message)
        send(message)

    monkeypatch.setattr(client, "_send", recorded)
    events: list[list[Event]] = [[], []]
    rows = [TreeRow({"what": what}, events[i].append, i) for i, what in enumerate(("this", "that"))]
    programs = client.open_rows(_tree(), rows)
    assert [type(message) for message in sent[:1]] == [ipc.OpenRows]
    wait_until(lambda: all(program.is_over for program in programs) and client.num_open == 0)
    assert [[e.value for e in of_row if isinstance(e, OpDone) and e.op == 2] for of_row in events] == [
        ["This"],
        ["That"],
    ]
    assert not [message for message in sent if isinstance(message, ipc.AppendOps | ipc.OpenProgram)]
    with pytest.raises(ProgramError, match="the tree is whole"):
        programs[0].append([TextOp(9, 0, "more")])


def test_a_row_can_be_cancelled_and_one_without_its_argument_fails_alone(
    both: tuple[EngineClient, Engine, TalkingRunner],
) -> None:
    client, engine, runner = both
    runner.gate = gate = threading.Semaphore(0)
    events: list[list[Event]] = [[], [], []]
    rows = [TreeRow({"what": "this"}, events[0].append), TreeRow({}, events[1].append)]
    rows.append(TreeRow({"what": "to the end"}, events[2].append))
    programs = client.open_rows(_tree(), rows)
    programs[0].cancel()
    try:
        wait_until(lambda: len([e for e in events[1] if isinstance(e, OpFailed)]) == 4)
        assert isinstance(events[1][0], OpFailed)
        assert "'what'" in str(events[1][0].error)
        until_taken(client)
    finally:
        runner.gate = None
        gate.release(1000)
    wait_until(lambda: client.num_open == 0)
    assert [e.op for e in events[0] if isinstance(e, OpFailed)] == [2, 3]
    assert not [e for e in events[2] if isinstance(e, OpFailed)]
    programs[0].cancel()  # it is over there: nothing happens
    assert client.flush_cache() in (True, False)
    wait_until(lambda: engine.get_server_info()["programs"] == 0)


def test_a_closed_program_can_still_be_cancelled(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    """A client's program is closed with its last op, long before it is over."""
    client, _, runner = both
    runner.gate = gate = threading.Semaphore(0)
    events: list[Event] = []
    program = client.open_program(events.append)
    program.append([TextOp(0, 0, "hi"), GenOp(1, 0, "x", SamplingParams(max_new_tokens=5))])
    program.close()
    program.cancel()
    try:
        until_taken(client)
    finally:
        runner.gate = None
        gate.release(1000)
    wait_until(lambda: client.num_open == 0)
    assert [type(event.error) for event in events if isinstance(event, OpFailed)] == [CancelledError]


def test_rows_with_another_salt_share_no_prefix(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    client, _, runner = both
    runner.replies["say the same long text again"] = "Yes"

    def cached(salt: str) -> int:
        events: list[Event] = []
        (program,) = client.open_rows(
            _tree(), [TreeRow({"what": "the same long text again"}, events.append)], cache_salt=salt
        )
        wait_until(lambda: program.is_over)
        return next(e.meta["cached_tokens"] for e in events if isinstance(e, OpDone) and e.op == 2)

    assert [cached(salt) > 0 for salt in ("one", "one", "two")] == [False, True, False]


def test_a_tree_is_checked_there(both: tuple[EngineClient, Engine, TalkingRunner]) -> None:
    client, engine, _ = both
    tree = _tree()
    assert client.check(tree) == engine.check(tree)
    assert [finding.severity for finding in client.check(tree)] == ["info"]
