"""Guesses of a draft model: which are tried, how many are asked for, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.draft_guesses import DraftGuesser
from sglang_lite.runtime.scheduler.messages import AddReq
from tests.support.fake_grammar import FakeGrammar
from tests.support.scheduler_harness import EOS, Final, Harness, config, greedy

PROMPTS = [(2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4), (6, 7), (2, 9, 4, 8, 5, 3, 11, 10)]


def test_guesses_are_good_for_the_length_that_they_were_made_for() -> None:
    guesser = DraftGuesser(3)
    guesser.offer(4, (7, 8, 9))
    assert guesser.next_run(np.arange(5, dtype=np.int32)) == []
    assert guesser.next_run(np.arange(4, dtype=np.int32)) == [7, 8, 9]


def test_none_are_asked_for_where_the_next_row_would_not_try_them() -> None:
    guesser, ids = DraftGuesser(8), np.arange(2, dtype=np.int32)
    assert guesser.num_wanted == 4
    guesser.note(4, 0)
    guesser.note(1, 0)  # two failures: two rows without guesses
    wanted: list[int] = []
    for _ in range(3):
        guesser.offer(2, (5, 6, 7))
        assert len(guesser.next_run(ids)) == (wanted[-1] if wanted else 0)
        wanted.append(guesser.num_wanted)
    assert wanted == [0, 1, 1]


def run(guesses: int, overlap: bool, **settings: object) -> tuple[Harness, list[Final]]:
    """All prompts together, with log-probabilities, a limit, a stop on the way and a constraint."""
    cfg = config(num_draft_tokens=guesses, disable_overlap_schedule=not overlap, **settings)
    harness = Harness(cfg, share_right=0.7)
    for number, prompt in enumerate(PROMPTS):
        adds = [
            AddReq(f"{number}{kind}", prompt, greedy(**params), logprob=LogprobParams(top_num=2))  # type: ignore[arg-type]
            for kind, params in {
                "long": {"max_new_tokens": 45},
                "drawn": {"max_new_tokens": 30, "temperature": 0.7, "seed": 3},
                "ends": {"max_new_tokens": 45, "ignore_eos": False},
                "stops": {"max_new_tokens": 45, "stop": ("ab",)},
            }.items()
        ]
        places = [frozenset(range(2, 2 + 3 * (1 + i % 3))) for i in range(20)]
        forced = [2 if i % 4 == 3 else None for i in range(20)]
        adds.append(AddReq(f"{number}grammar", prompt, greedy(45), grammar=FakeGrammar(places, EOS, forced)))
        harness.drain(*adds)
    harness.check_idle()
    return harness, [harness.finals[rid] for rid in sorted(harness.finals)]


@pytest.mark.parametrize("settings", [{}, {"jump_forward": "force"}, {"batching": "mixed", "chunked_prefill_size": 4}])
@pytest.mark.parametrize("overlap", [False, True])
def test_outputs_are_those_without_guesses(overlap: bool, settings: dict[str, object]) -> None:
    """Tokens, texts, log-probabilities, ends; only fewer rows."""
    plain, expected = run(0, overlap, **settings)
    guessed, got = run(4, overlap, **settings)
    for one, other in zip(got, expected, strict=True):
        assert (one.ids, one.data, one.logprobs, one.reason) == (other.ids, other.data, other.logprobs, other.reason)
    numbers = guessed.scheduler.statistics()
    assert numbers.speculated_tokens > 0 < numbers.missed_tokens
    assert sum(len(plan.rows) for plan in guessed.plans) < sum(len(plan.rows) for plan in plain.plans)


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_draft_that_is_always_right_gives_as_many_tokens_a_row_as_it_guesses(page_size: int) -> None:
    harness = Harness(config(num_draft_tokens=4), page_size=page_size, num_pages=256 // page_size, share_right=1.0)
    harness.drain(AddReq("r", (2, 3, 4), greedy(51)))
    harness.check_idle()
    numbers = harness.scheduler.statistics()
    assert numbers.missed_tokens == 0
    assert numbers.speculated_tokens >= 38, "of 51 tokens, four of five"
    assert numbers.spec_accept_rate == 1.0
    assert numbers.spec_accept_length == 1 + numbers.speculated_tokens / numbers.speculated_rows > 4.4
    assert numbers.to_dict()["spec_accept_length"] == numbers.spec_accept_length
    assert all(
        len(row.pages) * page_size >= row.seq_len + row.num_guesses for plan in harness.plans[1:-1] for row in plan.rows
    )


def test_a_draft_that_is_always_wrong_is_asked_ever_more_rarely() -> None:
    harness = Harness(config(num_draft_tokens=4), share_right=0.0)
    harness.drain(AddReq("r", (2, 3, 4), greedy(50)))
    harness.check_idle()
    numbers = harness.scheduler.statistics()
    assert numbers.speculated_tokens == 0 < numbers.missed_tokens < 12
    assert harness.drafter.num_offered < 18


def test_guesses_end_before_the_first_that_the_constraint_forbids() -> None:
    """The only tokens allowed differ from what the model would say: no forbidden token is ever computed as a guess."""
    harness = Harness(config(num_draft_tokens=4, jump_forward="off"), share_right=0.5)
    places = [frozenset({2 + i % 7, 5}) for i in range(30)]
    harness.drain(AddReq("r", PROMPTS[0], greedy(40), grammar=FakeGrammar(places, EOS)))
    harness.check_idle()
    drafted = [row for plan in harness.plans for row in plan.rows if row.drafts]
    assert drafted
    for row in drafted:
        for token, spec in zip(row.input_ids[-len(row.drafts) :], row.drafts, strict=True):
            assert token in places[spec.position - len(PROMPTS[0])]


def test_guesses_for_a_request_that_was_sent_back_are_not_tried_at_another_place() -> None:
    harness = Harness(config(num_draft_tokens=4), share_right=1.0)
    harness.step(AddReq("r", PROMPTS[0], greedy(30)))
    harness.step()
    assert harness.scheduler.retract("r")
    harness.drain()
    harness.check_idle()
