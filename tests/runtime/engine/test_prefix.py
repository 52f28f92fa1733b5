from __future__ import annotations

import pytest

from sglang_lite.errors import ContextLengthError, QueueFullError, RequestError
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.engine.prefix import CachedPrefix
from tests.support.engine_fixture import peer_logprobs, running_engine

SHORT = {"temperature": 0.0, "max_new_tokens": 4, "ignore_eos": True, "seed": 0}


def test_unpinning_is_done_once_and_at_the_end_of_a_with_block() -> None:
    calls: list[int] = []
    with CachedPrefix(5, 5, lambda: calls.append(1)) as prefix:
        assert prefix.is_pinned
    prefix.unpin()
    assert (calls, prefix.is_pinned) == ([1], False)


@pytest.mark.model
def test_a_pinned_prefix_outlives_newer_ones_and_an_unpinned_one_does_not() -> None:
    with running_engine(max_total_tokens=512, disable_radix_cache=False) as engine:
        prefix = list(range(1000, 1200))
        handle = engine.cache_prefix(input_ids=prefix)
        assert (handle.num_tokens, handle.computed_tokens) == (200, 200)

        def crowd_out() -> int:
            for i in range(4):
                engine.generate(input_ids=list(range(2000 + 300 * i, 2250 + 300 * i)), sampling_params=SHORT)
            return engine.generate(input_ids=[*prefix, 5], sampling_params=SHORT)["meta_info"]["cached_tokens"]

        assert crowd_out() == 200
        handle.unpin()
        engine.generate(input_ids=[7], sampling_params=SHORT)
        assert crowd_out() < 200
        assert engine.cache_prefix("Once upon a time").num_tokens > 0
        with pytest.raises(ContextLengthError):
            engine.cache_prefix(input_ids=[5] * 600)
        assert engine.get_server_info()["kv"]["leases"] == 1
    with running_engine(disable_radix_cache=True) as engine, pytest.raises(RequestError, match="radix cache is off"):
        engine.cache_prefix("x")


@pytest.mark.model
def test_the_engine_overlaps_and_orders_by_priority_and_refuses_beyond_its_queue(engine: Engine) -> None:
    prompts = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [11, 12, 13], [1, 2, 3, 4, 5, 6, 7, 8, 10]]
    params = {"temperature": 0.0, "max_new_tokens": 12, "seed": 0}
    plain = [reply["output_ids"] for reply in engine.generate(input_ids=prompts, sampling_params=params)]
    with running_engine(disable_overlap_schedule=False, enable_priority_scheduling=True) as other:
        replies = other.generate(input_ids=prompts, sampling_params=params, priority=3)
        assert [reply["output_ids"] for reply in replies] == plain
        info = other.get_server_info()
        assert (info["disable_overlap_schedule"], info["enable_priority_scheduling"]) == (False, True)
        assert info["queue"]["admitted"] == 3
        assert 0 <= info["hit_rate"] < 1
    with running_engine(max_queued_requests=1) as small:
        replies = small.generate(input_ids=prompts, sampling_params=params)
        kinds = [reply["meta_info"]["finish_reason"] for reply in replies]
        assert [kind.get("err_type") for kind in kinds] == [None, QueueFullError.__name__, QueueFullError.__name__]
        assert small.get_server_info()["refused"] == 2
    with pytest.raises(RequestError, match="priorities are off"):
        engine.generate(input_ids=[1, 2], sampling_params=params, priority=1)


@pytest.mark.model
def test_n_samples_compute_their_prompt_once(engine: Engine) -> None:
    """Sixty-four prompt tokens: the first sample computes them, each other one its last page."""
    engine.flush_cache()
    ids = list(range(3000, 3065))
    before = engine.get_server_info()["computed_tokens"]
    replies = engine.generate(input_ids=ids, sampling_params={"n": 6, "max_new_tokens": 3, "seed": 5})
    assert isinstance(replies, list)
    assert len(replies) == 6
    assert engine.get_server_info()["computed_tokens"] - before == 65 + 5


@pytest.mark.model
@pytest.mark.parametrize("chunk", [16, 512])
def test_nothing_generated_still_has_the_distribution_after_the_prompt(chunk: int) -> None:
    ids = list(range(500, 570))
    with running_engine(chunked_prefill_size=chunk, dtype="float32") as engine:
        for _ in range(2):  # the second time from the cache
            reply = engine.generate(
                input_ids=ids,
                sampling_params={"max_new_tokens": 0},
                return_logprob=True,
                logprob_start_len=60,
                top_logprobs_num=3,
                token_ids_logprob=[7],
            )
            meta = reply["meta_info"]
            row = peer_logprobs(ids)
            assert (meta["output_token_logprobs"], reply["output_ids"]) == ([], [])
            assert [e[0] for e in meta["output_top_logprobs"][0]] == pytest.approx(
                row[-1].topk(3).values.tolist(), abs=1e-3
            )
            assert meta["output_token_ids_logprobs"][0][0][0] == pytest.approx(float(row[-1, 7]), abs=1e-3)
            got = [entry[0] for entry in meta["input_token_logprobs"]]
            assert got == pytest.approx([float(row[i - 1, ids[i]]) for i in range(60, 70)], abs=1e-3)
            got = [entry[0][0] for entry in meta["input_token_ids_logprobs"]]
            assert got == pytest.approx([float(row[i - 1, 7]) for i in range(60, 70)], abs=1e-3)
