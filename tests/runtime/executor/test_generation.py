from __future__ import annotations

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.executor.generation import Generation
from sglang_lite.runtime.scheduler.messages import FinishReason, ReqOutput, TokenLogprob, Usage

VISIBLE = [bytes([i]) for i in range(256)] + [b""]
USAGE = Usage(prompt_tokens=3, cached_tokens=2, computed_tokens=1, completion_tokens=5)


def end(rid: str, data: bytes, text_end: int, kept: int) -> ReqOutput:
    reason = FinishReason("stop", "lo")
    return ReqOutput(rid, tuple(data), data, text_end, finished=reason, kept_len=kept, usage=USAGE)


def test_text_grows_as_it_is_released_and_the_end_trims_the_ids() -> None:
    generation = Generation("r", 3, VISIBLE)
    assert generation.take(ReqOutput("r", tuple(b"hel"), b"hel", 2)) == "he"
    assert generation.take(end("r", b"lo", 3, 3)) == "l"
    assert (generation.text, generation.output_ids, generation.tail) == ("hel", list(b"hel"), b"")


def test_the_tail_is_what_is_shown_of_a_token_that_is_not_kept() -> None:
    generation = Generation("r", 3, VISIBLE)
    generation.take(end("r", b"hello", 4, 3))
    assert (generation.text, generation.output_ids, generation.tail) == ("hell", list(b"hel"), b"l")


def test_outputs_that_were_held_give_what_taking_them_one_by_one_gives() -> None:
    """Cut characters, forced tokens and log-probabilities among them."""
    data = "hé—llo".encode()
    outs = [
        ReqOutput("r", (byte,), bytes([byte]), at, logprobs=(TokenLogprob(byte, -at),), num_forced=int(at in (2, 3)))
        for at, byte in enumerate(data[:-2])
    ]
    outs[0] = outs[0]._replace(input_logprobs=(TokenLogprob(1, None),))
    last = end("r", data[-2:], len(data) - 1, len(data) - 2)
    one_by_one, held = Generation("r", 3, VISIBLE), Generation("r", 3, VISIBLE)
    shown = "".join([one_by_one.take(out) for out in (*outs, last)])
    for out in outs:
        held.hold(out)
    assert held.take(last) == shown == "hé—ll"
    for name in ("text", "output_ids", "tail", "kinds", "logprobs", "input_logprobs", "finished"):
        assert getattr(held, name) == getattr(one_by_one, name), name
    assert one_by_one.kinds.count("forced") == 2
    assert one_by_one.tail == b"l"
    assert held.meta(None, str).keys() == one_by_one.meta(None, str).keys()


def test_the_report_has_counts_and_times_and_the_lists_that_were_asked_for() -> None:
    generation = Generation("r", 3, VISIBLE)
    assert generation.meta(None, str) == {
        "id": "r", "prompt_tokens": 3, "completion_tokens": 0, "finish_reason": None,
    }  # fmt: skip
    first = TokenLogprob(104, -0.5, top=((104, -0.5), (105, -1.0)), asked=((7, -9.0),))
    prompt = (TokenLogprob(1, None), TokenLogprob(2, -1.5, top=((2, -1.5),)))
    generation.take(ReqOutput("r", (104,), b"h", 1, logprobs=(first,), input_logprobs=prompt))
    generation.take(end("r", b"i", 2, 2))
    meta = generation.meta(LogprobParams(start_len=0, top_num=2, token_ids=(7,), with_text=True), lambda i: f"<{i}>")
    assert meta["finish_reason"] == {"type": "stop", "matched": "lo"}
    assert (meta["cached_tokens"], meta["computed_tokens"], meta["completion_tokens"]) == (2, 1, 5)
    assert 0 <= meta["time_to_first_token"] <= meta["e2e_latency"]
    assert meta["output_token_logprobs"] == [(-0.5, 104, "<104>")]
    assert meta["output_top_logprobs"] == [[(-0.5, 104, "<104>"), (-1.0, 105, "<105>")]]
    assert meta["output_token_ids_logprobs"] == [[(-9.0, 7, "<7>")]]
    assert meta["input_token_logprobs"] == [(None, 1, "<1>"), (-1.5, 2, "<2>")]
    assert meta["input_top_logprobs"] == [None, [(-1.5, 2, "<2>")]]
