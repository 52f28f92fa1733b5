"""Constraints of a program are compiled while what stands before them still runs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sglang_lite.request_tree import Event, GenOp, OpDone, SamplingParams, TextOp
from tests.support.live_server import wait_until
from tests.support.talking_engine import talking_engine


def test_a_grammar_is_compiled_before_the_gen_in_front_of_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with talking_engine() as (engine, runner):
        runner.gate = threading.Semaphore(0)  # no step is done
        grammars: Any = engine._parts.grammars
        submit, asked = grammars.submit, list[str | None]()

        def recorded(params: SamplingParams, prompt_ids: Any = ()) -> Any:
            asked.append(params.regex)
            return submit(params, prompt_ids)

        monkeypatch.setattr(grammars, "submit", recorded)
        events: list[Event] = []
        program = engine.open_program(events.append)
        program.append(
            [
                TextOp(0, 0, "hi"),
                GenOp(1, 0, "free", SamplingParams(max_new_tokens=5)),
                TextOp(2, 0, " so "),
                GenOp(3, 0, "bound", SamplingParams(max_new_tokens=5, regex="yes")),
            ]
        )
        program.close()
        wait_until(lambda: "yes" in asked and bool(events))
        assert [event.op for event in events if isinstance(event, OpDone)] == [0]
        runner.gate.release(1000)
        wait_until(lambda: any(isinstance(event, OpDone) and event.op == 3 for event in events))
        assert [event.value for event in events if isinstance(event, OpDone) and event.op == 3] == ["yes"]
