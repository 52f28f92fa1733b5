"""Guesses from earlier text: what is tried, what is kept, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.guess_limit import MAX_WAIT
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.ngram import NgramGuesser
from tests.support.fake_grammar import FakeGrammar
from tests.support.scheduler_harness import EOS, Final, Harness, config, greedy


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


def test_what_followed_the_last_tokens_the_last_time_is_guessed() -> None:
    guesser = NgramGuesser(8)
    assert guesser.next_run(ids(1, 2, 3, 4, 9, 1, 2, 5, 6, 7, 8, 1, 2)) == [5, 6, 7, 8]
    assert guesser.next_run(ids(1, 2, 3, 4, 9, 1, 2, 5, 6, 7, 8, 1, 2, 3)) == [4, 9, 1, 2]


def test_a_longer_run_goes_before_a_later_one() -> None:
    """Three tokens were seen before; their last two, later, with something else behind."""
    assert NgramGuesser(1).next_run(ids(7, 8, 9, 3, 8, 9, 4, 7, 8, 9)) == [3]


@pytest.mark.parametrize("known", [(), (5,), (5, 5), (1, 2, 3, 4)])
def test_without_a_repetition_nothing_is_guessed(known: tuple[int, ...]) -> None:
    assert NgramGuesser(4).next_run(ids(*known)) == []


def test_success_makes_guesses_longer_and_failure_pauses_them() -> None:
    guesser, known = NgramGuesser(16), ids(*[1, 2, 3] * 20)
    assert len(guesser.next_run(known)) == 3, "no more than there is"
    long = ids(*range(40), 0, 1)
    guesser = NgramGuesser(16)
    lengths = []
    for _ in range(4):
        lengths.append(len(guesser.next_run(long)))
        guesser.note(lengths[-1], lengths[-1])
    assert lengths == [4, 8, 16, 16]
    pauses = []
    for _ in range(8):
        pause = 0
        while not (run := guesser.next_run(long)):
            pause += 1
        pauses.append(pause)
        guesser.note(len(run), 0)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 64]
    assert max(pauses) <= MAX_WAIT
    assert (guesser.limit.num_kept, guesser.limit.num_rejected) == (44, 16 + 7)


PROMPTS = [(2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4), (6, 7, 6, 7, 6, 7), (2, 9, 4, 8, 5, 3, 11, 10)]


def run(guesses: int, overlap: bool, **settings: object) -> tuple[Harness, list[Final]]:
    """All prompts together, with log-probabilities, a limit and a stop on the way."""
    harness = Harness(config(num_ngram_tokens=guesses, disable_overlap_schedule=not overlap, **settings))
    for number, prompt in enumerate(PROMPTS):
        harness.drain(
            *(
                AddReq(f"{number}{kind}", prompt, greedy(**params), logprob=LogprobParams(top_num=2))  # type: ignore[arg-type]
                for kind, params in {
                    "long": {"max_new_tokens": 45},
                    "drawn": {"max_new_tokens": 30, "temperature": 0.7, "seed": 3},
                    "ends": {"max_new_tokens": 45, "ignore_eos": False},
                    "stops": {"max_new_tokens": 45, "stop": ("ab",)},
                }.items()
            )
        )
    harness.check_idle()
    return harness, [harness.finals[rid] for rid in sorted(harness.finals)]


@pytest.mark.parametrize("settings", [{}, {"jump_forward": "force"}, {"batching": "mixed", "chunked_prefill_size": 4}])
@pytest.mark.parametrize("overlap", [False, True])
def test_outputs_are_those_without_guesses(overlap: bool, settings: dict[str, object]) -> None:
    """Tokens, texts, log-probabilities, ends; only fewer steps."""
    plain, expected = run(0, overlap, **settings)
    guessed, got = run(4, overlap, **settings)
    for one, other in zip(got, expected, strict=True):
        assert (one.ids, one.data, one.logprobs, one.reason) == (other.ids, other.data, other.logprobs, other.reason)
        assert one.usage is not None
        assert one.usage.forced_tokens == 0
    numbers = guessed.scheduler.statistics()
    assert numbers.speculated_tokens > 0
    assert numbers.forced_tokens == numbers.rejected_tokens == 0
    assert sum(len(plan.rows) for plan in guessed.plans) < sum(len(plan.rows) for plan in plain.plans)


def test_a_constrained_request_is_left_to_its_constraint() -> None:
    harness = Harness(config(num_ngram_tokens=4, jump_forward="off"))
    grammar = FakeGrammar([frozenset(range(2, 12))] * 30, EOS, [None] * 30)
    harness.drain(AddReq("r", PROMPTS[0], greedy(30), grammar=grammar))
    harness.check_idle()
    assert not any(row.drafts for plan in harness.plans for row in plan.rows)
