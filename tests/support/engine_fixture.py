"""Engines on the embedded model that share one copy of the weights, and what their results are compared with."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import tests.support.kernel_cache  # noqa: F401
from sglang_lite.runtime.engine import model_executor
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.execution.random_numbers import uniform
from sglang_lite.runtime.model.loader import LoadedModel, find_embedded_model, load_model

MARGIN = 1e-3
"""Where the two best tokens lie closer than this, sums of another order may pick the other one."""


@cache
def load_once(path: Path, dtype: str = "float32") -> LoadedModel:
    """The model of a file, loaded once for all engines of the tests."""
    return load_model(path, dtype)


@contextmanager
def running_engine(**server_args: Any) -> Iterator[Engine]:
    """A small engine of its own, shut down at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_executor, "load_model", load_once)
        engine = Engine(**({"dtype": "float32", "max_total_tokens": 1024, "num_threads": 1} | server_args))
    with engine:
        yield engine


@cache
def load_peer() -> LlamaForCausalLM:
    """The embedded model as transformers reads it from the same file, in float32.

    `from_pretrained(gguf_file=...)` would do the same, but asks for the package accelerate.
    """
    path = find_embedded_model()
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)
    model.load_state_dict(read["tensors"], strict=False)
    model.tie_weights()
    return model


def peer_logprobs(ids: Sequence[int]) -> torch.Tensor:
    """Log-probabilities after each token, float32 [len(ids), vocab]."""
    with torch.inference_mode():
        return load_peer()(torch.tensor([list(ids)])).logits[0].log_softmax(-1)


class Reference:
    """What one engine gives for prompts: greedy, or drawn with seeds; one by one with nothing cached, or in one call."""

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        one_by_one: bool = True,
    ) -> None:
        self.prompts = [list(prompt) for prompt in prompts]
        self.params: list[dict[str, Any]] = [
            {
                "temperature": temperature,
                "max_new_tokens": max_new_tokens,
                "min_new_tokens": max_new_tokens,  # and not `ignore_eos`, for which room is kept and nothing retracted
                "seed": 100 + number,
            }
            for number in range(len(prompts))
        ]
        self._end_ids = engine.tokenizer.eos_ids
        self.num_near_ties = 0
        self.ids: list[list[int]] = []
        if not one_by_one:
            replies = engine.generate(input_ids=self.prompts, sampling_params=self.params)
            self.ids = [reply["output_ids"] for reply in replies]
            return
        for prompt, params in zip(self.prompts, self.params, strict=True):
            engine.flush_cache()
            self.ids.append(engine.generate(input_ids=prompt, sampling_params=params)["output_ids"])

    def check(self, outputs: Sequence[Sequence[int]]) -> None:
        """Equal up to the first position where sums in another order may decide otherwise; what differs there is counted."""
        assert len(outputs) == len(self.ids)
        for number, (got, expected) in enumerate(zip(outputs, self.ids, strict=True)):
            if list(got) != list(expected):
                first = next((i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), None)
                assert first is not None, f"prompt {number} gave {len(got)} tokens, expected {len(expected)}"
                margin = self._margin(number, first)
                assert margin < MARGIN, (
                    f"prompt {number} differs at token {first}, margin {margin:.4f}: {got} for {expected}"
                )
                self.num_near_ties += 1

    def _margin(self, number: int, position: int) -> float:
        """Greedy: between the two best tokens. Drawn: from the random number to the edge of the token's share."""
        known = self.prompts[number] + self.ids[number][:position]
        row, params = peer_logprobs(known)[-1].double(), self.params[number]
        row[list(self._end_ids)] = -torch.inf
        if not params["temperature"]:
            best, second = row.topk(2).values.tolist()
            return best - second
        edges = (row / params["temperature"]).softmax(-1).cumsum(-1)
        drawn, token = uniform(params["seed"], len(known)), self.ids[number][position]
        return min(abs(drawn - float(edges[token])), abs(drawn - (float(edges[token - 1]) if token else 0.0)))
