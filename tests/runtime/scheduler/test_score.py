from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.plan import LogprobTarget, TargetResult
from sglang_lite.runtime.scheduler.score import ScoreState, ScoreTree
from tests.support.scheduler_harness import Harness, config, greedy, reference

choices = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=7).map(tuple), min_size=1, max_size=6)


def test_edges_are_those_of_the_compressed_prefix_tree_parents_first() -> None:
    tree = ScoreTree([(1, 2, 3), (1, 2, 4, 5), (7,), (1, 2)])
    assert [(e.parent, e.start, e.tokens, e.row_len) for e in tree.edges] == [
        (None, 0, (1, 2), 2),
        (0, 2, (3,), 0),
        (0, 2, (4, 5), 1),
        (None, 0, (7,), 0),
    ]
    assert tree.first_tokens(None) == (1, 7)
    assert tree.first_tokens(0) == (3, 4)
    assert ScoreState([(1, 2, 3), (1, 2, 4, 5), (7,)], None).pending == [0, 2]


def test_a_row_asks_for_its_own_next_tokens_and_for_the_first_ones_after_it() -> None:
    tree = ScoreTree([(1, 2, 3), (1, 2, 4, 5)])
    assert tree.targets(0, 0) == (LogprobTarget(0, (2,)), LogprobTarget(1, (3, 4)))
    assert tree.targets(0, 3) == (LogprobTarget(3, (2,)), LogprobTarget(4, (3, 4)))
    assert tree.targets(2, 0) == (LogprobTarget(0, (5,)),)


def test_edges_longer_than_a_row_are_cut() -> None:
    tree = ScoreTree([(1, 2, 3, 4, 5, 6)], max_row=2)
    assert [(e.tokens, e.row_len) for e in tree.edges] == [((1, 2), 2), ((3, 4), 2), ((5, 6), 1)]


def test_many_choices_that_begin_each_other_do_not_nest_calls() -> None:
    tree = ScoreTree([(1,) * n for n in range(1, 1200)])
    assert len(tree.edges) == 1199


@given(choices, st.one_of(st.none(), st.integers(1, 4)))
def test_every_token_of_every_choice_is_scored_by_its_prefix(
    options: list[tuple[int, ...]], max_row: int | None
) -> None:
    """Answer each target with a number that names the tokens before it: the scores are those of the choices' prefixes."""
    state = ScoreState(options, max_row)
    tree = state.tree

    def answer(before: tuple[int, ...], target: LogprobTarget) -> TargetResult:
        return TargetResult(tuple(float(hash((*before, t))) for t in target.token_ids))

    tree.store(None, [answer((), LogprobTarget(0, tree.first_tokens(None)))])
    for index in state.pending:
        before = tuple(t for i in tree.path(index)[:-1] for t in tree.edges[i].tokens)
        edge = tree.edges[index]
        assert max_row is None or edge.row_len <= max_row
        tree.store(index, [answer((*before, *edge.tokens[: t.query + 1]), t) for t in tree.targets(index, 0)])
    assert tree.scores() == tuple(tuple(float(hash(choice[: i + 1])) for i in range(len(choice))) for choice in options)
    rows = {
        prefix
        for c in options
        for i in range(len(c))
        if (prefix := c[: i + 1]) not in options or any(o[: i + 1] == prefix and len(o) > i + 1 for o in options)
    }
    assert sum(tree.edges[i].row_len for i in state.pending) == len(rows), "each inner prefix is computed once"


OPTIONS = ((2, 3, 4, 5, 6), (2, 3, 4, 7, 8, 9), (2, 3), (6, 5, 4, 3, 2, 6), (9,))


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_all_edges_run_in_one_step_after_the_prompt_and_nothing_is_sampled(page_size: int) -> None:
    """Children read what their parent writes in the same step; the tail inside a page is recomputed."""
    harness = Harness(page_size=page_size)
    add = AddReq("s", tuple(range(2, 11)), greedy(), choices=OPTIONS)
    harness.step(add)
    harness.step()
    harness.check_idle()
    assert [[row.sample for row in plan.rows] for plan in harness.plans] == [[None], [None] * 5]
    assert harness.finals["s"].scores == reference(add, harness.config).scores
    if page_size == 1:
        assert [n for _, _, n in harness.rows()] == [2, 1, 1, 2, 5]


def test_choices_of_one_token_need_no_second_step() -> None:
    harness = Harness()
    harness.step(AddReq("s", (2, 3, 4), greedy(), choices=((5,), (6,), (5,))))
    harness.check_idle()
    assert len(harness.plans) == 1


@pytest.mark.parametrize("chunk", [4, 8])
def test_edges_respect_the_chunk_and_are_spread_over_steps(chunk: int) -> None:
    harness = Harness(config(chunked_prefill_size=chunk))
    options = tuple(tuple((i * j + j) % 9 for j in range(1, 14)) for i in range(5))
    harness.drain(AddReq("s", tuple(range(2, 11)), greedy(), choices=options))
    harness.check_idle()
    assert all(sum(row.extend_len for row in plan.rows) <= chunk for plan in harness.plans)


def test_a_retracted_scoring_request_starts_anew() -> None:
    harness = Harness(config(chunked_prefill_size=4))
    harness.step(AddReq("s", tuple(range(2, 9)), greedy(), choices=OPTIONS))
    harness.step()
    harness.step()
    assert harness.scheduler.retract("s")
    harness.scheduler.check_invariants()
    assert harness.drain()["s"].usage.retractions == 1  # type: ignore[union-attr]
    harness.check_idle()


def test_scoring_requests_that_take_each_other_s_rows_all_end() -> None:
    harness = Harness(config(max_running_requests=3), num_rows=3)
    options = ((2, 3, 4, 5, 6), (2, 3, 4, 7, 8, 9))
    harness.drain(*[AddReq(f"s{i}", (2 + i, 3), greedy(), choices=options) for i in range(4)])
    harness.check_idle()
    assert all(final.scores for final in harness.finals.values())
    assert harness.scheduler.statistics().retractions > 0
    assert harness.finals["s0"].usage.retractions == 0, "the oldest is kept"  # type: ignore[union-attr]


def test_choices_whose_rows_can_never_be_held_at_once_are_refused() -> None:
    harness = Harness(num_rows=2)
    nested = ((2,), (2, 3), (2, 3, 4), (2, 3, 4, 5))
    harness.drain(AddReq("s", (2,), greedy(), choices=nested))
    assert "2 rows" in str(harness.finals["s"].error)
