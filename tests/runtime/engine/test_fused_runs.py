"""On the real model: what a constraint forces up to its end is computed with the program's next text, in one extend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from sglang_lite.lang import ProgramState, function, gen
from sglang_lite.runtime.engine.engine import Engine
from tests.support.engine_fixture import running_engine

pytestmark = [pytest.mark.model, pytest.mark.native]

TAILED = " (cats|dogs) are what I like best of all"


@pytest.fixture(scope="module")
def native() -> Iterator[Engine]:
    with running_engine(dtype="auto", max_total_tokens=2048) as engine:
        yield engine


@function
def two_gens(s: ProgramState, pattern: str, last: int, mode: Literal["off", "verify", "force"]) -> None:
    s += "Between cats and dogs, I would say that"
    s += gen("first", regex=pattern, max_tokens=40, jump_forward=mode)
    s += ".\nAnd why is that? Because they are"
    s += gen("second", max_tokens=last, ignore_eos=True)


def cost(
    engine: Engine, mode: Literal["off", "verify", "force"], pattern: str = TAILED, last: int = 3
) -> tuple[ProgramState, int, int]:
    """(the state, forwards, tokens computed) of one run with nothing cached."""
    engine.flush_cache()
    before = engine.get_server_info()["runner"]
    state = two_gens.run(pattern, last, mode, backend=engine, temperature=0)
    state.sync()
    after = engine.get_server_info()["runner"]
    return state, after["steps"] - before["steps"], after["tokens"] - before["tokens"]


def test_the_forced_tail_and_the_text_behind_it_are_one_extend(native: Engine) -> None:
    """`off`: the prompt, a token each of the first value, the text with its last token, two tokens more."""
    off, off_steps, off_tokens = cost(native, "off")
    forced, steps, tokens = cost(native, "force")
    assert forced["first"] == off["first"]
    num_tail = forced.get_meta_info("first")["forced_tokens"]
    assert num_tail >= 7
    num_free = forced.get_meta_info("first")["completion_tokens"] - num_tail
    assert steps == num_free + 1 + 2, "prompt and free tokens, one extend, two tokens of the second gen"
    assert off_steps > steps + num_tail - 1
    assert tokens <= off_tokens
    assert forced.get_meta_info("second")["computed_tokens"] > num_tail
    assert forced["second"] == cost(native, "force")[0]["second"]


def test_a_value_that_is_forced_from_its_begin_is_part_of_the_prompt(native: Engine) -> None:
    state, steps, tokens = cost(native, "force", " cats are what I like")
    assert state["first"] == " cats are what I like"
    assert steps == 3
    assert state.get_meta_info("first")["computed_tokens"] == 0
    assert tokens == state.get_meta_info("second")["prompt_tokens"] + 2


def test_verified_tails_are_fused_where_no_other_token_is_legal(native: Engine) -> None:
    """A closing mark is one byte: no other token spells it, so that `verify` need not ask the model."""
    off, off_steps, _ = cost(native, "off", " (cats|dogs)#")
    verified, steps, _ = cost(native, "verify", " (cats|dogs)#")
    assert (verified["first"], verified["second"]) == (off["first"], off["second"])
    assert verified.get_meta_info("first")["forced_tokens"] >= 1
    assert steps == off_steps - 1


def test_log_probabilities_keep_the_forced_tail_with_its_own_request(native: Engine) -> None:
    native.flush_cache()
    state = two_gens.run(TAILED, 1, "force", backend=native, temperature=0, return_logprob=True)
    meta = state.get_meta_info("first")
    assert len(meta["output_token_logprobs"]) == meta["completion_tokens"]
    assert all(value < 0 for value, *_ in meta["output_token_logprobs"])
