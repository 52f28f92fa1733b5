"""Every way to draw a token, for the two samplers of the device and the host's."""

from __future__ import annotations

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.plan import SampleSpec
from tests.runtime.execution.support import AllowedTokens, spec

VOCAB = 50


def every_way_to_sample() -> list[SampleSpec]:
    asked = LogprobParams(top_num=3, token_ids=(4, 9))
    return [
        spec(),
        spec(temperature=0.9, seed=3),
        spec(temperature=1.3, seed=4, top_k=3),
        spec(temperature=1.3, seed=5, top_p=0.6),
        spec(temperature=2.0, seed=6, min_p=0.3, top_p=0.9, top_k=20),
        spec(temperature=0.7, seed=7, repetition_penalty=1.5, frequency_penalty=0.4, presence_penalty=0.3),
        spec(logit_bias=((7, 3.0), (7, 1.5), (9, -4.0))),
        spec(grammar=AllowedTokens([3, 17, 44])),
        spec(temperature=1.0, seed=8, grammar=AllowedTokens(list(range(0, VOCAB, 2))), repetition_penalty=0.8),
        spec(temperature=1.0, seed=9, min_new_tokens=5, stop_token_ids=(2, 3)),
        spec(logprob=asked, grammar=AllowedTokens([6])),
        spec(temperature=1.0, seed=2, logprob=asked),
    ]
