"""Records and seeds on the real model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_lite.lang import ProgramState, RunOptions, ScriptedBackend, function, gen, select
from sglang_lite.records.record import RunRecord
from sglang_lite.request_tree import GenOp

if TYPE_CHECKING:
    from sglang_lite.runtime.engine.engine import Engine

pytestmark = pytest.mark.model


@function
def ideas(s: ProgramState) -> None:
    s += "Ideas for a rainy Sunday afternoon with two small children:\n1."
    s += gen("first", max_tokens=4, temperature=1.0)
    children = s.fork(2)
    for child in children:
        child += "\nNext:" + gen("next", max_tokens=4, temperature=1.0)
    children.join()
    s += "\nThe best is number " + select("best", ["1", "2"])


def texts(state: ProgramState) -> list[object]:
    return [state["first"], state["next"], state["best"]]


def test_a_record_has_every_cost_and_replays_without_the_model(engine: Engine) -> None:
    state = ideas.run(backend=engine, options=RunOptions(record=True, seed=3))
    record = state.record()
    assert (record.seed, record.backend, record.model) == (3, "Engine", engine.get_server_info()["model_path"])
    usage = record.usage
    assert [one.name for one in usage.ops] == ["first", "next", "next", "best"]
    for one in usage.ops:
        assert one.queue_s is not None
        assert 0 <= one.queue_s <= one.seconds <= record.seconds
        assert one.cached_tokens + one.computed_tokens == one.prompt_tokens
    assert usage.ops[1].cached_tokens >= usage.ops[0].prompt_tokens  # the child reuses what its parent computed
    assert usage.sampled_tokens >= 3
    assert len({one.seed for one in usage.ops[:3]}) == 3
    again = ideas.run(backend=ScriptedBackend.from_record(RunRecord.from_json(record.to_json())))
    assert texts(again) == texts(state)
    assert again.text() == state.text()


def test_a_drawn_seed_is_recorded_and_repeats_the_run_among_other_rows(engine: Engine) -> None:
    first = ideas.run(backend=engine, options=RunOptions(record=True))
    seed = first.record().seed
    assert seed is not None
    assert texts(ideas.run(backend=engine, options=RunOptions(seed=seed))) == texts(first)


def test_rows_repeat_in_any_order_and_beside_others(engine: Engine) -> None:
    """The third of three rows is the same as that row alone, with the seed that its record has."""
    states = ideas.run_batch([(), (), ()], backend=engine, options=RunOptions(record=True, seed=5))
    seeds = [state.record().seed for state in states]
    assert len(set(seeds)) == 3
    alone = ideas.run(backend=engine, options=RunOptions(record=True, seed=seeds[2]))
    assert texts(alone) == texts(states[2])
    given = [op.op for op in alone.record().ops if isinstance(op.op, GenOp)]
    assert all(op.params.seed is None for op in given)
