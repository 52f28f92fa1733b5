"""Forced tokens in the scheduler: what is tried, what is kept, what it costs, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from sglang_lite.errors import ExecutionError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.jump import FIRST_GUESSED, MAX_GIVEN, MAX_GUESSED, MAX_WAIT, JumpState
from sglang_lite.runtime.scheduler.messages import AddReq, GrammarReady
from tests.support.fake_grammar import FakeGrammar, LimitedGrammar
from tests.support.scheduler_harness import EOS, Final, Harness, config, greedy

PROMPT = (2, 3, 4, 5, 6, 7, 8, 9, 10)


def forced(num: int, then: int = 3) -> FakeGrammar:
    """A free place, `num` places with one token each, and free places."""
    free = frozenset(range(2, 12))
    places = [free, *(frozenset({2 + i % 10}) for i in range(num)), *[free] * then]
    return FakeGrammar(places, EOS, [None, *(2 + i % 10 for i in range(num)), *[None] * then])


def refused(num: int) -> FakeGrammar:
    """Places in which another token than the guess is the only one."""
    return FakeGrammar([frozenset({2})] * num, EOS, [3] * num)


def run(grammar: FakeGrammar, mode: str, harness: Harness | None = None, **values: object) -> tuple[Harness, Final]:
    harness = harness or Harness(config(jump_forward=mode))
    params = greedy(**({"max_new_tokens": 40} | values.pop("params", {})))  # type: ignore[operator]
    add = AddReq("r", PROMPT, params, grammar=grammar, **values)  # type: ignore[arg-type]
    harness.drain(add)
    harness.check_idle()
    return harness, harness.finals["r"]


def num_rows(harness: Harness) -> int:
    return sum(len(plan.rows) for plan in harness.plans)


def test_a_forced_run_is_one_row_and_the_result_is_the_same() -> None:
    off, plain = run(forced(4), "off")
    on, verified = run(forced(4), "verify")
    assert verified.ids == plain.ids
    assert num_rows(off) - num_rows(on) == 4
    assert verified.usage is not None
    assert verified.usage.forced_tokens == on.scheduler.statistics().forced_tokens == 4
    assert [row.extend_len for plan in on.plans for row in plan.rows] == [9, 5, 1, 1]


def test_a_long_run_grows_with_its_success() -> None:
    harness, final = run(forced(25), "verify")
    assert [row.extend_len - 1 for plan in harness.plans for row in plan.rows if row.drafts] == [4, 8, 11]
    assert final.usage is not None
    assert final.usage.forced_tokens == 23, "the token behind a run that was cut is drawn"


def test_what_the_row_would_not_choose_is_not_kept_and_tried_ever_more_rarely() -> None:
    harness, final = run(refused(40), "verify")
    assert final.ids == [2] * 40
    tries = [i for i, plan in enumerate(harness.plans) if any(row.drafts for row in plan.rows)]
    assert [b - a for a, b in pairwise(tries)] == [2, 3, 5, 9, 17]
    now = harness.scheduler.statistics()
    assert (now.forced_tokens, now.rejected_tokens) == (0, FIRST_GUESSED + len(tries) - 1)


def test_force_takes_what_the_model_would_not_choose_the_first_token_included() -> None:
    """The first token comes with the prompt's last chunk; then the rest of the run is one row."""
    grammar = FakeGrammar([frozenset(range(2, 12))] * 6, EOS, [7, 8, 9, 7, 8, None])
    harness, final = run(grammar, "force")
    assert final.ids[:5] == [7, 8, 9, 7, 8]
    assert final.usage is not None
    assert final.usage.forced_tokens == 5
    assert len(harness.plans) == 2
    assert run(grammar.restarted(), "off")[1].ids[:5] != final.ids[:5]


@pytest.mark.parametrize("mode", ["verify", "force"])
def test_a_request_says_for_itself(mode: str) -> None:
    _, final = run(forced(4), mode, params={"jump_forward": "off"})
    assert final.usage is not None
    assert final.usage.forced_tokens == 0
    _, final = run(forced(4), "off", params={"jump_forward": mode})
    assert final.usage is not None
    assert final.usage.forced_tokens == 4


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("mode", ["verify", "force"])
@pytest.mark.parametrize(
    "params",
    [
        {"max_new_tokens": 1},
        {"max_new_tokens": 3},
        {"max_new_tokens": 4},
        {"stop": ("bcd",)},
        {"stop": ("éa",), "no_stop_trim": True},
        {"stop_token_ids": (4,)},
        {"stop_token_ids": (4,), "min_new_tokens": 4},
        {"stop_regex": ("a.",)},
        {"temperature": 1.0, "seed": 3},
        {"repetition_penalty": 1.5, "frequency_penalty": 0.5},
    ],
)
def test_the_end_is_where_it_would_be_without(params: dict[str, object], mode: str, overlap: bool) -> None:
    """Whatever comes after an end inside a run is not taken, and its KV goes to nobody."""
    for page_size in (1, 4, 16):
        cfg = config(jump_forward=mode, disable_overlap_schedule=not overlap)
        harness = Harness(cfg, page_size=page_size, num_pages=200)
        again = AddReq("again", PROMPT, greedy(20))
        harness.step(again)
        _, final = run(forced(8), mode, harness, params=params)
        assert final.ids == run(forced(8), "off", params=params)[1].ids


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("mode", ["verify", "force"])
def test_log_probabilities_of_forced_tokens_come_from_their_pass(mode: str, overlap: bool) -> None:
    wanted = LogprobParams(0, 2, (3, 5))
    cfg = config(jump_forward=mode, disable_overlap_schedule=not overlap)
    _, final = run(forced(4), mode, Harness(cfg), logprob=wanted)
    assert final.logprobs == run(forced(4), "off", logprob=wanted)[1].logprobs
    assert final.usage is not None
    assert final.usage.forced_tokens == 4


def test_overlap_tries_forced_tokens_too() -> None:
    """The token before a run is in flight when its row is planned; what it forces is known when the row is launched."""
    cfg = config(jump_forward="verify", disable_overlap_schedule=False)
    _, final = run(forced(8), "verify", Harness(cfg))
    assert final.ids == run(forced(8), "off")[1].ids
    assert final.usage is not None
    assert final.usage.forced_tokens >= 6


@pytest.mark.parametrize("overlap", [False, True])
def test_guesses_that_do_not_fit_are_cut_and_nobody_is_retracted(overlap: bool) -> None:
    """Pages for the drawn tokens of all, and none for guesses."""
    cfg = config(jump_forward="force", disable_overlap_schedule=not overlap)
    harness = Harness(cfg, page_size=4, num_pages=1 + 8)
    adds = [AddReq(f"r{i}", (i + 2,) * 4, greedy(12), grammar=forced(8)) for i in range(2)]
    harness.drain(*adds)
    harness.check_idle()
    assert harness.scheduler.statistics().retractions == 0
    assert all(final.error is None for final in harness.finals.values())
    assert harness.scheduler.statistics().forced_tokens == 16, "also what is forced alone counts"


def test_the_wait_and_the_length_have_limits() -> None:
    state = JumpState("verify")
    grammar = FakeGrammar([frozenset({2})] * 300, EOS, [2] * 300)
    for _ in range(6):
        state.note(len(state.next_run(grammar, ())), len(state.next_run(grammar, ())))
    assert len(state.next_run(grammar, ())) == MAX_GUESSED
    waits = []
    for _ in range(10):
        state.note(1, 0)
        waits.append(next(i for i in range(1000) if state.next_run(grammar, ())))
    assert waits == [1, 2, 4, 8, 16, 32, 64, MAX_WAIT, MAX_WAIT, MAX_WAIT]
    state.note(1, 1)
    assert len(state.next_run(grammar, ())) == 2, "a run that stands ends the wait"
    given = JumpState("force")
    assert len(given.next_run(grammar, ())) == MAX_GIVEN
    assert JumpState("verify").given_run(grammar, ()) == []


def test_the_prompts_end_is_what_stands_before_a_run() -> None:
    seen: list[tuple[int, ...]] = []

    class Listening(FakeGrammar):
        def jump_forward(self, before: Sequence[int] = ()) -> list[int]:
            seen.append(tuple(before))
            return []

    run(Listening([frozenset({2})] * 3, EOS), "verify")
    assert set(seen) == {PROMPT[-4:]}


def tailed(num: int, width: int = 1) -> FakeGrammar:
    """A free place, then `num` forced ones up to the end, in each of which `width` tokens are legal."""
    free = frozenset(range(2, 12))
    places = [free, *(frozenset(range(2, 2 + width)) for _ in range(num))]
    return FakeGrammar(places, EOS, [None, *[1 + width] * num])


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("mode", "width"), [("force", 1), ("force", 3), ("verify", 1)])
def test_what_is_forced_up_to_the_end_is_left_to_the_next_request(mode: str, width: int, overlap: bool) -> None:
    """It goes on with the branch: one row computes the forced tokens and the text behind them."""
    for page_size in (1, 4, 16):
        harness = Harness(config(jump_forward=mode, disable_overlap_schedule=not overlap), page_size=page_size)
        _, final = run(tailed(5, width), mode, harness)
        assert len(final.ids) == 6
        assert final.usage is not None
        assert (final.usage.forced_tokens, final.usage.known_len) == (5, len(PROMPT))
        assert harness.scheduler.statistics().forced_tokens == 5
        assert sum(row.extend_len for plan in harness.plans for row in plan.rows) == len(PROMPT) + overlap
        harness.step(AddReq("next", (*PROMPT, *final.ids, 3, 4), greedy(2)))
        assert harness.rows() == [("next", len(PROMPT), len(final.ids) + 2)]
        harness.drain()
        harness.check_idle()


def test_what_another_token_could_spell_too_is_verified_up_to_the_end() -> None:
    harness, final = run(tailed(5, 3), "verify")
    assert final.ids == run(tailed(5, 3), "off")[1].ids
    assert sum(row.extend_len for plan in harness.plans for row in plan.rows) > len(PROMPT)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("mode", ["verify", "force"])
def test_a_request_that_is_forced_from_its_begin_needs_no_row(mode: str, late: bool) -> None:
    harness = Harness(config(jump_forward=mode))
    grammar = FakeGrammar([frozenset({5})] * 3, EOS, [5] * 3)
    add = AddReq("r", PROMPT, greedy(9), grammar=None if late else grammar, waits_for_grammar=late)
    harness.step(add)
    if late:
        harness.adds["r"] = AddReq("r", PROMPT, greedy(9), grammar=grammar)
        harness.step(GrammarReady("r", grammar))
    harness.check_idle()
    assert harness.finals["r"].ids == [5, 5, 5]
    assert harness.runner.work.rows == 0
    assert not harness.scheduler.is_known("r")


@pytest.mark.parametrize("values", [{"max_new_tokens": 3}, {"stop": ("éé",)}, {"stop_token_ids": (5,)}])
def test_forced_tokens_that_are_not_computed_end_where_they_would(values: dict[str, object]) -> None:
    grammar = FakeGrammar([frozenset({5})] * 8, EOS, [5] * 8)
    results = [run(grammar.restarted(), mode, params=values)[1] for mode in ("off", "verify", "force")]
    assert results[0].reason == results[1].reason == results[2].reason
    assert results[0].text == results[1].text == results[2].text
    assert results[2].usage is not None
    assert results[2].usage.computed_tokens == 0


def test_log_probabilities_that_are_asked_for_have_their_tokens_computed() -> None:
    for wanted in (LogprobParams(None, 0, ()), LogprobParams(0, 1, ())):
        harness, final = run(tailed(5), "force", logprob=wanted)
        assert len(final.logprobs) == 6
        assert sum(row.extend_len for plan in harness.plans for row in plan.rows) > len(PROMPT)


def test_nothing_is_taken_where_no_token_is_wanted_or_scored() -> None:
    grammar = FakeGrammar([frozenset({5})] * 3, EOS, [5] * 3)
    assert run(grammar, "force", params={"max_new_tokens": 0})[1].ids == []


def limited(limit: int, *failing: str) -> LimitedGrammar:
    """Free places with forced ones in their midst, and tables that are full from `limit` on."""
    plain = forced(6, then=4)
    return LimitedGrammar(plain.places, EOS, plain.guesses, limit, frozenset(failing))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("mode", ["off", "verify", "force"])
@pytest.mark.parametrize("limit", range(8))
@pytest.mark.parametrize("part", ["has_only_end", "accept_token"])
def test_tables_that_pass_their_limit_end_their_own_request_only(
    part: str, limit: int, mode: str, overlap: bool
) -> None:
    """Its neighbour goes on with the tokens that it would have alone."""
    settings = config(jump_forward=mode, disable_overlap_schedule=not overlap)
    alone = Harness(settings).drain(AddReq("beside", PROMPT, greedy(15)))["beside"]
    harness = Harness(settings)
    harness.drain(AddReq("r", PROMPT, greedy(40), grammar=limited(limit, part)), AddReq("beside", PROMPT, greedy(15)))
    harness.check_idle()
    reason = harness.finals["r"].reason
    assert reason is not None
    assert isinstance(reason.error, ExecutionError)
    assert "filling the tables of a grammar" in str(reason.error)
    assert harness.finals["beside"].ids == alone.ids


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("mode", ["verify", "force"])
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_where_only_the_forced_tokens_cannot_be_told_nothing_is_forced(limit: int, mode: str, overlap: bool) -> None:
    _, plain = run(forced(6, then=4), "off")
    _, final = run(
        limited(limit, "jump_forward"),
        mode,
        Harness(config(jump_forward=mode, disable_overlap_schedule=not overlap)),
    )
    assert final.ids == plain.ids
    assert final.reason == plain.reason
