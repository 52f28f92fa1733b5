"""The sampler: equal to the sort-based definition, fair, seeded by position, one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_lite.errors import DeadEndError, ExecutionError
from sglang_lite.kernels.reference.sampling import draw_token, kept_tokens
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.execution.random_numbers import uniform
from sglang_lite.runtime.execution.sampler import Sampler, draw, keep_indices
from tests.runtime.execution.support import AllowedTokens, spec

LOGITS = np.array([1.0, 4.0, 2.0, 4.0, 0.0, 3.0], dtype=np.float32)


def sampler(vocab_size: int = 6, eos_ids: tuple[int, ...] = ()) -> Sampler:
    return Sampler(vocab_size, eos_ids)


def sample(logits: np.ndarray = LOGITS, eos_ids: tuple[int, ...] = (), **kwargs: Any) -> int:
    return sampler(len(logits), eos_ids).sample(logits, spec(**kwargs), "r1")


rows = st.one_of(
    st.lists(st.integers(-4, 4), min_size=1, max_size=40),
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40),
).map(lambda values: np.array(values, dtype=np.float32))
filters = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.1, 0.7, 1.0, 2.5]),
        "top_k": st.one_of(st.just(-1), st.integers(1, 45)),
        "top_p": st.one_of(st.just(1.0), st.floats(1e-6, 1.0), st.sampled_from([0.25, 0.5, 0.75])),
        "min_p": st.one_of(st.just(0.0), st.floats(0, 1)),
    }
)


@settings(max_examples=300)
@given(rows, filters, st.integers(1, 4))
def test_kept_tokens_equal_the_sort_based_definition(logits: np.ndarray, values: dict[str, Any], first_k: int) -> None:
    """`first_k` is tiny here, so the search for the top-p set has to grow."""
    params = SamplingParams(**values)
    weights = np.exp((logits - logits.max()) / np.float32(params.temperature))
    kept = keep_indices(logits, weights, params, first_k=first_k)
    expected = kept_tokens(logits, params.temperature, params.top_k, params.top_p, params.min_p)
    assert (np.arange(len(logits)) if kept is None else kept).tolist() == expected.tolist()


@given(rows, filters, st.floats(0, 1, exclude_max=True))
def test_the_drawn_token_is_the_definitions(logits: np.ndarray, values: dict[str, Any], number: float) -> None:
    params = SamplingParams(**values)
    temperature = params.temperature
    kept = kept_tokens(logits, temperature, params.top_k, params.top_p, params.min_p)
    assert draw(logits, params, number) == draw_token(logits, temperature, kept, number)


def test_top_p_counts_shares_of_what_top_k_left() -> None:
    """Of the two best, with 0.5 and 0.25, the first holds two thirds: enough for 0.66 and not for 0.67."""
    logits = np.log(np.array([0.125, 0.5, 0.125, 0.25], dtype=np.float32))
    drawn = [{sample(logits, temperature=1.0, top_k=2, top_p=p, position=i) for i in range(60)} for p in (0.66, 0.67)]
    assert drawn == [{1}, {1, 3}]


def test_a_token_whose_probability_is_zero_is_never_drawn() -> None:
    logits = np.array([-1000.0, 0.0, -1000.0], dtype=np.float32)
    assert [draw(logits, SamplingParams(), number) for number in (0.0, 0.5, 1 - 2**-53)] == [1, 1, 1]


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999])
def test_top_p_over_a_whole_vocabulary_equals_the_definition(top_p: float) -> None:
    """A peaked and a flat row of 49,152 logits: the one needs few candidates, the other nearly all."""
    random = np.random.default_rng(1)
    for scale in (4.0, 0.1):
        logits = (random.standard_normal(49_152) * scale).astype(np.float32)
        params = SamplingParams(top_p=top_p)
        weights = np.exp(logits - logits.max())
        kept = keep_indices(logits, weights, params)
        assert kept is not None
        assert kept.tolist() == kept_tokens(logits, 1.0, -1, top_p, 0.0).tolist()


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 1.0},
        {"temperature": 0.7},
        {"temperature": 2.0},
        {"temperature": 1.0, "top_k": 4},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 1.5, "min_p": 0.1},
        {"temperature": 0.9, "top_k": 5, "top_p": 0.9, "min_p": 0.05},
    ],
)
def test_tokens_come_as_often_as_their_probability_says(values: dict[str, Any]) -> None:
    """Chi-square over 20,000 positions under one seed; at most 5 degrees of freedom, whose 0.001 quantile is 20.5."""
    logits = np.array([0.5, 2.0, 1.0, 1.7, -0.5, 1.4], dtype=np.float32)
    params = SamplingParams(**values)
    kept = kept_tokens(logits, params.temperature, params.top_k, params.top_p, params.min_p)
    weights = np.exp(logits[kept].astype(np.float64) / params.temperature)
    one = sampler()
    drawn = [one.sample(logits, spec(params, position=i), "r1") for i in range(20_000)]
    counts = np.bincount(drawn, minlength=6)
    expected = weights / weights.sum() * len(drawn)
    assert counts.sum() == counts[kept].sum()
    assert ((counts[kept] - expected) ** 2 / expected).sum() < 20.5


@pytest.mark.parametrize("values", [{"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.95}])
def test_under_a_mask_tokens_come_by_the_distribution_over_the_legal_ones(values: dict[str, Any]) -> None:
    """Chi-square over 20,000 positions: the mask takes tokens out, and what is left keeps its proportions."""
    logits = np.array([0.5, 2.0, 1.0, 1.7, -0.5, 1.4], dtype=np.float32)
    legal = np.array([0, 2, 3, 4])
    params = SamplingParams(**values)
    kept = legal[kept_tokens(logits[legal], params.temperature, params.top_k, params.top_p, params.min_p)]
    weights = np.exp(logits[kept].astype(np.float64) / params.temperature)
    one, grammar = sampler(), AllowedTokens(legal.tolist())
    drawn = [one.sample(logits, spec(params, position=i, grammar=grammar), "r1") for i in range(20_000)]
    counts = np.bincount(drawn, minlength=6)
    expected = weights / weights.sum() * len(drawn)
    assert counts.sum() == counts[kept].sum()
    assert ((counts[kept] - expected) ** 2 / expected).sum() < 16.3  # 0.001 quantile of 3 degrees of freedom


def test_greedy_takes_the_lowest_id_of_equal_logits() -> None:
    assert sample() == 1
    assert sample(temperature=1.0, top_k=1) == 1


def test_a_temperature_next_to_zero_is_greedy_and_one_without_bound_is_uniform() -> None:
    assert sample(temperature=1e-40) == 1
    drawn = {sample(temperature=1e300, position=i) for i in range(200)}
    assert drawn == set(range(6))


def test_a_seed_and_a_position_fix_the_token_whatever_was_sampled_before() -> None:
    """One sampler serves many requests in any order; nothing of one may show in another."""
    logits = np.random.default_rng(3).standard_normal((8, 500)).astype(np.float32)
    specs = [spec(temperature=0.8, seed=seed, position=20 + seed, top_p=0.95) for seed in range(8)]
    alone = [sampler(500).sample(line, one, "r1") for line, one in zip(logits, specs, strict=True)]
    shared = sampler(500)
    for order in (range(8), reversed(range(8)), [3, 3, 0, 7, 1, 1, 2, 5, 4, 6]):
        for i in order:
            assert shared.sample(logits[i], specs[i], "r1") == alone[i]


def test_other_seeds_and_other_positions_draw_other_tokens() -> None:
    flat = np.zeros(1000, dtype=np.float32)
    assert len({sample(flat, temperature=1.0, seed=seed) for seed in range(50)}) > 40
    assert len({sample(flat, temperature=1.0, position=i) for i in range(50)}) > 40


def test_the_token_is_where_the_hashed_number_falls() -> None:
    flat = np.zeros(1000, dtype=np.float32)
    assert sample(flat, temperature=1.0, seed=9, position=4) == int(uniform(9, 4) * 1000)


def test_penalties_and_bias_reach_the_choice() -> None:
    assert sample(frequency_penalty=0.6, output_ids=[1, 1]) == 3
    assert sample(presence_penalty=2.0, output_ids=[1, 3]) == 5
    assert sample(repetition_penalty=2.0, prompt_ids=[1, 3]) == 5
    assert sample(logit_bias=((4, 50.0),)) == 4


def test_end_and_stop_tokens_do_not_come_before_min_new_tokens() -> None:
    values = {"eos_ids": (1,), "stop_token_ids": (3, 99), "min_new_tokens": 2}
    assert sample(**values) == 5
    assert sample(**values, output_ids=[5]) == 5
    assert sample(**values, output_ids=[5, 5]) == 1


def test_a_grammar_leaves_only_its_tokens() -> None:
    assert sample(grammar=AllowedTokens([0, 2, 4])) == 2
    drawn = {sample(grammar=AllowedTokens([0, 4]), temperature=2.0, position=i) for i in range(100)}
    assert drawn == {0, 4}


def test_filters_count_what_the_grammar_left() -> None:
    """Top-k over the legal tokens, not over all of them: else it could leave none."""
    drawn = {sample(grammar=AllowedTokens([0, 2, 4]), temperature=5.0, top_k=2, position=i) for i in range(100)}
    assert drawn == {0, 2}


def test_only_a_row_with_a_grammar_is_masked() -> None:
    one = sampler()
    grammar = AllowedTokens([4])
    assert one.sample(LOGITS, spec(grammar=grammar), "r1") == 4
    assert one.sample(LOGITS, spec(), "r2") == 1
    assert one.sample(LOGITS, spec(grammar=AllowedTokens([5])), "r3") == 5
    assert grammar.num_fills == 1


def test_the_end_of_a_grammar_outweighs_min_new_tokens() -> None:
    values = {"eos_ids": (4,), "min_new_tokens": 10}
    assert sample(**values, grammar=AllowedTokens([4])) == 4
    assert sample(**values, grammar=AllowedTokens([0, 4])) == 0


def test_a_dead_end_names_the_request_and_the_constraint() -> None:
    with pytest.raises(DeadEndError, match=r"token 12 of request r1: .* the regex 'a\+'"):
        sample(grammar=AllowedTokens([]), regex="a+", position=12)


def test_a_row_without_any_legal_token_is_a_dead_end_without_a_grammar_too() -> None:
    with pytest.raises(DeadEndError, match="min_new_tokens"):
        sample(eos_ids=(0, 1, 2), stop_token_ids=(3, 4, 5), min_new_tokens=1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_damaged_logits_are_an_error_of_the_request(bad: float, temperature: float) -> None:
    logits = LOGITS.copy()
    logits[2] = bad
    with pytest.raises(ExecutionError, match="request r1: the model gave NaN or infinite logits"):
        sample(logits, temperature=temperature)


def test_extreme_logits_give_a_token_and_no_warning() -> None:
    logits = np.array([-3e38, 3e38, 0.0, 3e38], dtype=np.float32)
    assert sample(logits, temperature=0.01) in (1, 3)
    assert sample(np.array([-3e38, 3e38], dtype=np.float32), temperature=1e300) == 1
    with pytest.raises(ExecutionError, match="penalties"):
        sample(logits, repetition_penalty=0.5, prompt_ids=[1])


def test_a_grammar_that_runs_out_of_room_fails_its_request_only() -> None:
    class TooLarge(AllowedTokens):
        def fill_bitmask(self, bitmask: Any, index: int = 0) -> None:
            raise ValueError("the tables are full")

    with pytest.raises(ExecutionError, match=r"request r1 under the regex 'b': the tables are full"):
        sample(grammar=TooLarge([0]), regex="b")


def test_a_bias_on_a_token_outside_the_vocabulary_is_an_error_of_the_request() -> None:
    with pytest.raises(ExecutionError, match=r"request r1: has a token of logit_bias 6"):
        sample(logit_bias=((6, 1.0),))


def test_sampling_changes_no_logits() -> None:
    logits = LOGITS.copy()
    one = sampler(eos_ids=(1,))
    one.sample(
        logits,
        spec(temperature=1.0, min_new_tokens=3, presence_penalty=1.0, grammar=AllowedTokens([0, 1]), output_ids=[0]),
        "r1",
    )
    assert logits.tolist() == LOGITS.tolist()
