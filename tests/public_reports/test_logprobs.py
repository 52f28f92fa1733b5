"""Public reports about log-probabilities."""

from __future__ import annotations

import pytest

from sglang_lite.runtime.engine.engine import Engine
from tests.support.engine_fixture import peer_logprobs

pytestmark = pytest.mark.model

TOLERANCE = 1e-3


@pytest.mark.parametrize("stream", [False, True])
def test_every_position_has_its_own_alternatives(engine: Engine, stream: bool) -> None:
    """C37: sorted, the chosen one first where decoding is greedy, equal to transformers, streamed or not."""
    prompt = "The colours of the rainbow are"
    params = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
    answer = engine.generate(prompt, params, return_logprob=True, top_logprobs_num=3, stream=stream)
    reply = answer if isinstance(answer, dict) else list(answer)[-1]
    ids = engine.tokenizer.encode(prompt, parse_special=True)
    rows = peer_logprobs(ids + reply["output_ids"])[len(ids) - 1 : -1]
    tops = reply["meta_info"]["output_top_logprobs"]
    for (value, token_id, _), top, row in zip(reply["meta_info"]["output_token_logprobs"], tops, rows, strict=True):
        assert top[0][:2] == (value, token_id)
        assert [entry[0] for entry in top] == sorted((entry[0] for entry in top), reverse=True)
        for shown, other, _ in top:
            assert shown == pytest.approx(float(row[other]), abs=TOLERANCE)
    assert len({top[0][1] for top in tops}) > 1


def test_prompt_and_output_are_both_there(engine: Engine) -> None:
    """C39: an entry for each prompt token, the first without a value, the rest equal to transformers; then the output's."""
    prompt = "The step of boiling water is:"
    reply = engine.generate(
        prompt, {"temperature": 0, "max_new_tokens": 1}, return_logprob=True, logprob_start_len=0, top_logprobs_num=3,
        return_text_in_logprobs=True,
    )  # fmt: skip
    assert isinstance(reply, dict)
    meta = reply["meta_info"]
    ids = engine.tokenizer.encode(prompt, parse_special=True)
    entries = meta["input_token_logprobs"]
    assert [entry[1] for entry in entries] == ids
    assert "".join(entry[2] for entry in entries) == prompt
    assert entries[0][0] is None
    rows = peer_logprobs(ids)
    for i, (value, token_id, _) in enumerate(entries[1:]):
        assert value == pytest.approx(float(rows[i][token_id]), abs=TOLERANCE)
    assert (len(meta["output_token_logprobs"]), len(meta["input_top_logprobs"])) == (1, len(ids))
