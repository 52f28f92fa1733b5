from __future__ import annotations

import pytest

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, FinishReason, TokenLogprob
from tests.support.scheduler_harness import Harness, config, greedy

LONG = tuple(2 + i % 9 for i in range(30))


@pytest.mark.parametrize("chunk", [1, 2, 7, None])
@pytest.mark.parametrize("start", [0, 1, 5, 29, 30, 40])
def test_prompt_log_probabilities_do_not_depend_on_chunks_cache_or_retract(chunk: int | None, start: int) -> None:
    size = None if chunk is None else 4 * chunk
    harness = Harness(config(chunked_prefill_size=size), page_size=4)
    wanted = LogprobParams(start, 2, (3, 5))
    harness.drain(AddReq("warm", LONG, greedy(2)), AddReq("r", LONG, greedy(2), logprob=wanted))
    harness.step(AddReq("again", LONG, greedy(2), logprob=wanted), AddReq("beside", LONG[:9], greedy(9)))
    harness.scheduler.retract("again")
    harness.drain()
    harness.check_idle()
    entries = harness.finals["r"].input_logprobs
    assert entries is not None
    assert len(entries) == max(30 - start, 0)
    assert start > 0 or entries[0] == TokenLogprob(LONG[0], None)


def test_prompt_log_probabilities_come_once_with_the_first_output() -> None:
    harness = Harness()
    outputs = harness.step(AddReq("r", LONG, greedy(3), logprob=LogprobParams(20)))
    assert [len(output.input_logprobs or ()) for output in outputs] == [10]
    assert [output.input_logprobs for output in harness.step()] == [None]


def test_output_log_probabilities_come_with_their_tokens_or_not_at_all() -> None:
    harness = Harness()
    harness.drain(AddReq("r", LONG, greedy(3), logprob=LogprobParams(None, 2, (4,))), AddReq("plain", LONG, greedy(3)))
    final = harness.finals["r"]
    assert [entry.token_id for entry in final.logprobs] == final.ids
    assert all(len(entry.top) == 2 and entry.asked[0][0] == 4 for entry in final.logprobs)
    assert final.input_logprobs is None
    assert harness.finals["plain"].logprobs == []
    harness.check_idle()


def test_after_an_abort_in_flight_nothing_more_is_shown() -> None:
    harness = Harness()
    harness.step(AddReq("r", LONG, greedy(9)))
    outputs = harness.step(in_flight=[AbortReq("r")])
    assert [(o.new_ids, o.new_bytes, o.finished.kind if o.finished else None) for o in outputs] == [((), b"", "abort")]


def test_text_held_back_is_shown_at_an_end_of_its_own_but_not_at_an_abort() -> None:
    """The end `length` shows what a stop string held back; an abort shows nothing new."""
    everything = "".join(chr(97 + i) for i in range(12))
    harness = Harness()
    probe = harness.drain(AddReq("probe", LONG, greedy(6)))["probe"]
    stop = probe.text.decode()[1:] + everything
    harness.drain(AddReq("length", LONG, greedy(6, stop=(stop,))))
    assert harness.finals["length"].text == probe.text
    assert harness.finals["length"].reason == FinishReason("length")
    harness.step(AddReq("abort", LONG, greedy(9, stop=(stop,))))
    harness.step()
    shown = harness.finals["abort"].text
    harness.drain(AbortReq("abort"))
    assert harness.finals["abort"].text == shown


def test_usage_adds_up() -> None:
    harness = Harness(page_size=4)
    harness.drain(AddReq("a", LONG, greedy(3)), AddReq("b", LONG, greedy(3)))
    usages = [harness.finals[rid].usage for rid in "ab"]
    assert [(u.cached_tokens, u.computed_tokens) for u in usages if u] == [(0, 30), (28, 2)]
    harness.check_idle()
