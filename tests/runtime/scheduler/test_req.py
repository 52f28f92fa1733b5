from __future__ import annotations

import pytest

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.intake import Intake
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, GrammarReady, TokenLogprob
from sglang_lite.runtime.scheduler.req import Req, ReqState
from tests.support.fake_grammar import FakeGrammar
from tests.support.scheduler_harness import EOS, VISIBLE, Harness, config, greedy


def make(prompt: tuple[int, ...] = (2, 3, 4), **values: object) -> Req:
    add = AddReq("r", prompt, greedy(), **values)  # type: ignore[arg-type]
    return Intake(config(), Harness().kv, VISIBLE).open(add, (1, True, 1))


def test_the_states_are_walked_as_drawn() -> None:
    harness = Harness(config(chunked_prefill_size=4), enable_radix=False)
    states: list[ReqState | None] = []

    def note() -> None:
        state = harness.scheduler.state_of("r")
        if not states or states[-1] is not state:
            states.append(state)

    harness.step(AddReq("r", tuple(range(2, 11)), greedy(3), waits_for_grammar=True))
    note()
    harness.scheduler.receive([GrammarReady("r", FakeGrammar([frozenset({2, 3})] * 9, EOS))])
    note()
    harness.step()
    note()
    harness.step()
    harness.step()
    note()
    assert harness.scheduler.retract("r")
    note()
    harness.step()
    note()
    harness.drain()
    note()
    assert states == [
        ReqState.WAITING_FOR_GRAMMAR,
        ReqState.WAITING,
        ReqState.PREFILLING,
        ReqState.RUNNING,
        ReqState.WAITING,
        ReqState.PREFILLING,
        None,
    ]


def test_a_request_with_choices_scores_after_its_prompt() -> None:
    harness = Harness(config(chunked_prefill_size=4))
    harness.step(AddReq("r", (2, 3), greedy(), choices=((2, 3, 4, 5, 6, 7), (5, 6))))
    assert harness.scheduler.state_of("r") is ReqState.SCORING


def test_a_finished_request_is_finished_until_its_output_is_delivered() -> None:
    harness = Harness()
    harness.scheduler.receive([AddReq("r", (2, 3), greedy()), AbortReq("r")])
    assert harness.scheduler.state_of("r") is ReqState.FINISHED
    harness.step()
    assert harness.scheduler.state_of("r") is None


@pytest.mark.parametrize(("start", "limit"), [(None, 4), (0, 0), (1, 0), (2, 1), (4, 3), (5, 4), (99, 4)])
def test_matching_stops_where_log_probabilities_are_needed(start: int | None, limit: int) -> None:
    assert make((2, 3, 4, 5, 6), logprob=LogprobParams(start_len=start)).match_limit == limit


def test_log_probabilities_that_are_there_are_not_computed_again() -> None:
    req = make((2, 3, 4, 5, 6), logprob=LogprobParams(start_len=2))
    req.input_logprobs.append(TokenLogprob(4, -1.0))
    assert (req.next_input_logprob, req.match_limit) == (3, 2)
    req.input_logprobs += [TokenLogprob(5, -1.0), TokenLogprob(6, -1.0)]
    assert (req.next_input_logprob, req.match_limit) == (None, 4)


def test_ids_are_prompt_and_output() -> None:
    req = make()
    for token in range(40):
        req.append([token, token + 1])
    assert req.ids.tolist() == [2, 3, 4, *req.output_ids]
    assert (req.seq_len, req.prompt_len) == (83, 3)


def test_page_keys_are_equal_exactly_for_equal_beginnings() -> None:
    a, b, c = make((2, 3, 4, 5, 6)), make((2, 3, 4, 9, 9, 9)), make((2, 3, 4, 5, 6), namespace="x")
    assert a.page_keys(2)[:1] == b.page_keys(2)[:1]
    assert a.page_keys(2)[1:2] != b.page_keys(2)[1:2]
    assert not set(a.page_keys(2)) & set(c.page_keys(2))
    before = list(a.page_keys(2))
    a.append([7])
    assert a.page_keys(2)[:2] == before
    assert len(a.page_keys(2)) == 3
