"""The requests that lm-evaluation-harness makes (`local-completions`), and their numbers against transformers in float32."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sglang_lite.runtime.engine.engine import Engine
from tests.support.engine_fixture import peer_logprobs
from tests.support.live_server import LiveServer, live_server

pytestmark = pytest.mark.model

ITEMS = Path(__file__).parents[3] / "examples" / "clients" / "data" / "facts.jsonl"
BATCH = 8


@pytest.fixture(scope="module")
def real(engine: Engine) -> Iterator[LiveServer]:
    with live_server(engine) as server:
        yield server


def pairs(engine: Engine) -> list[tuple[list[int], list[int]]]:
    """Context and continuation of each item's right choice, as ids."""
    items = [json.loads(line) for line in ITEMS.read_text().splitlines()]

    def encode(text: str) -> list[int]:
        return engine.tokenizer.encode(text, parse_special=False)

    return [(encode(item["text"]), encode(item["choices"][item["answer"]])) for item in items]


def ask(server: LiveServer, prompts: list[list[int]], **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "m", "prompt": prompts, "temperature": 0, "logprobs": 1, "seed": 1234, "echo": True, **fields}
    response = server.post("/v1/completions", body)
    assert response.status_code == 200, response.text
    return sorted(response.json()["choices"], key=lambda choice: choice["index"])


def test_sums_of_log_probabilities_are_those_of_transformers(real: LiveServer, engine: Engine) -> None:
    """Forty items, prompts as lists of ids, one token more than the prompt, which is left out again."""
    items = pairs(engine)
    assert len(items) == 40
    answers: list[dict[str, Any]] = []
    for start in range(0, len(items), BATCH):
        answers += ask(real, [context + rest for context, rest in items[start : start + BATCH]], max_tokens=1)
    for (context, rest), answer in zip(items, answers, strict=True):
        ids = context + rest
        values = answer["logprobs"]["token_logprobs"][len(context) : -1]
        expected = peer_logprobs(ids)[torch.arange(len(context) - 1, len(ids) - 1), torch.tensor(rest)]
        assert sum(values) == pytest.approx(float(expected.sum()), abs=1e-3)
        tops = answer["logprobs"]["top_logprobs"][len(context) : -1]
        is_greedy = all(value == max(top.values()) for value, top in zip(values, tops, strict=True))
        best = peer_logprobs(ids)[len(context) - 1 : len(ids) - 1].max(-1).values
        assert is_greedy == bool((expected >= best - 1e-6).all())


def test_nothing_need_be_generated(real: LiveServer, engine: Engine) -> None:
    """`max_tokens` 0 gives the same numbers, and only those of the prompt."""
    context, rest = pairs(engine)[0]
    with_one = ask(real, [context + rest], max_tokens=1)[0]["logprobs"]["token_logprobs"][:-1]
    (choice,) = ask(real, [context + rest], max_tokens=0)
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(with_one[1:], abs=1e-4)
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert choice["text"] == engine.tokenizer.decode(context + rest)
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
