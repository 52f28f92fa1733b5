"""Going back and racing on the real model: what is reused, and that the losers stop."""

from __future__ import annotations

from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import CancelledError, ContextLengthError
from sglang_lite.runtime.engine.engine import Engine

pytestmark = pytest.mark.model


def test_a_rewind_reuses_all_that_stood_before_the_mark(engine: Engine) -> None:
    @sgl.function
    def program(s: Any) -> Any:
        s += "A list of seven rivers of the north, as a guide of the year 1911 has them: "
        mark = s.mark()
        before = s.num_tokens()
        s += "the first is " + sgl.gen("x", max_tokens=4)
        s.rewind(mark)
        assert s.num_tokens() == before
        s += "the last is " + sgl.gen("y", max_tokens=4)
        return before, s.tokens_left()

    state = program.run(backend=engine, temperature=0)
    before, left = state.ret_value
    meta = state.get_meta_info("y")
    assert meta["cached_tokens"] >= before - 1
    assert meta["computed_tokens"] <= meta["prompt_tokens"] - before + 1
    assert left == engine.limits.context_length - meta["prompt_tokens"] - meta["completion_tokens"]
    alone = sgl.function(lambda s: s.append(state.text()[: -len(state["y"])] + sgl.gen("y", max_tokens=4)))
    assert alone.run(backend=engine, temperature=0)["y"] == state["y"]


def test_the_first_to_end_wins_and_the_others_stop(engine: Engine) -> None:
    @sgl.function
    def program(s: Any) -> Any:
        s += "Once upon a time"
        forks = s.fork(3)
        for fork, length in zip(forks, (400, 3, 400), strict=True):
            fork += sgl.gen("x", max_tokens=length, ignore_eos=True)
        result = forks.join(first=1)
        for loser in (forks[0], forks[2]):
            with pytest.raises(CancelledError):
                loser["x"]
        return result.winners

    state = program.run(backend=engine, temperature=0)
    assert state.ret_value == [1]
    assert len(state["x"]) == 1
    assert state.usage().completion_tokens == 3


def test_more_than_the_context_is_refused_before_any_work(engine: Engine) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "Hello " + sgl.gen("x", max_tokens=10**6)

    with pytest.raises(ContextLengthError, match=r"max_tokens=1000000.*give max_tokens=\d+ or less"):
        program.run(backend=engine)
