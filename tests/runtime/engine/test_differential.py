"""One set of prompts under every setting that must not change what the embedded model says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sglang_lite.runtime.engine.engine import Engine
from tests.support.engine_fixture import Reference, running_engine

pytestmark = pytest.mark.model

NEW_TOKENS = 16
TEXT = (
    "You are a patient guide in a museum of clocks. Answer in one short sentence, name the year where you know it, and "
    "never guess. "
)
QUESTIONS = [
    "Who built the first pendulum clock?",
    "Why do clocks tick?",
    "What is a quartz clock and what makes it go on?",
]

SETTINGS: dict[str, dict[str, Any]] = {
    "cache off": {"disable_radix_cache": True},
    "chunks of 16": {"chunked_prefill_size": 16},
    "chunks of 64": {"chunked_prefill_size": 64},
    "no chunks": {"chunked_prefill_size": -1},
    "pages of 1": {"page_size": 1},
    "pages of 4, chunks of 16": {"page_size": 4, "chunked_prefill_size": 16},
    "first come first served": {"schedule_policy": "fcfs"},
    "mixed": {"batching": "mixed", "chunked_prefill_size": 16},
    "decode first": {"batching": "decode-first", "chunked_prefill_size": 16},
    "attention in torch": {"attention_backend": "torch_ref"},
}


@pytest.fixture(scope="module")
def prompts(engine: Engine) -> list[list[int]]:
    """Three with a long common beginning, one equal pair, one of a single token, one of its own."""
    encode = engine.tokenizer.encode
    long = [encode(TEXT + question, parse_special=False) for question in QUESTIONS]
    return [*long, long[0], [long[0][0]], encode("Once upon a time", parse_special=False)]


@pytest.fixture(scope="module")
def greedy(engine: Engine, prompts: list[list[int]]) -> Iterator[Reference]:
    """Most likely tokens."""
    reference = Reference(engine, prompts, NEW_TOKENS)
    yield reference
    print(f"greedy outputs that part at a near tie: {reference.num_near_ties}")


@pytest.fixture(scope="module")
def drawn(engine: Engine, prompts: list[list[int]]) -> Iterator[Reference]:
    """Tokens drawn with seeds."""
    reference = Reference(engine, prompts[1:3], NEW_TOKENS, temperature=0.8)
    yield reference
    print(f"drawn outputs that part at a near tie: {reference.num_near_ties}")


def check(engine: Engine, greedy: Reference, drawn: Reference) -> list[dict[str, Any]]:
    """All prompts in one call; returns their `meta_info`."""
    replies = engine.generate(
        input_ids=[*greedy.prompts, *drawn.prompts], sampling_params=[*greedy.params, *drawn.params]
    )
    outputs = [reply["output_ids"] for reply in replies]
    greedy.check(outputs[: len(greedy.prompts)])
    drawn.check(outputs[len(greedy.prompts) :])
    return [reply["meta_info"] for reply in replies]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_no_setting_changes_the_output(settings: dict[str, Any], greedy: Reference, drawn: Reference) -> None:
    """All prompts at once, first cold, then from the cache."""
    with running_engine(**settings) as engine:
        check(engine, greedy, drawn)
        cached = [meta["cached_tokens"] for meta in check(engine, greedy, drawn)]
    if settings.get("disable_radix_cache"):
        assert not any(cached)
    else:
        assert [count + 1 for count in cached[: len(greedy.prompts)]] == [len(prompt) for prompt in greedy.prompts]


def test_company_changes_no_output(engine: Engine, greedy: Reference, drawn: Reference) -> None:
    """A crowd of other prompts, drawn without seeds, runs and ends beside them."""
    crowd = engine.generate(
        [f"{number} sheep jump over" for number in range(6)],
        [{"temperature": 1.3, "max_new_tokens": 40 + number, "ignore_eos": True} for number in range(6)],
        stream=True,
    )
    next(crowd)  # type: ignore[call-overload]
    check(engine, greedy, drawn)
    crowd.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_retracted_requests_go_on_as_if_nothing_had_happened(
    page_size: int, greedy: Reference, drawn: Reference
) -> None:
    """A pool that holds the prompts but not what they become, and an admission that hopes for the best."""
    with running_engine(page_size=page_size, max_total_tokens=144, schedule_conservativeness=0.05) as engine:
        metas = check(engine, greedy, drawn)
        info = engine.get_server_info()
    assert info["retractions"] > 0
    assert sum(meta["retractions"] for meta in metas) == info["retractions"]
    assert info["kv"]["free_pages"] + info["kv"]["evictable_pages"] == info["kv"]["total_pages"]
