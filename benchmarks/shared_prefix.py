"""Requests that share a long prompt: prompt tokens computed and requests per second, beside transformers.

The engine computes the shared part once; transformers, which keeps nothing between sequences, is the baseline: the same
weights in float32, the same prompts in padding-free batches, in the same run, round by round in turn.

    python -m benchmarks.shared_prefix --rounds 3 --json shared_prefix.json
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import environment, spread

Prompts = list[list[int]]


def make_prompts(requests: int, shared: int, own: int, seed: int) -> Prompts:
    """Token ids: `shared` that all begin with, then `own` of each."""
    rng = random.Random(seed)
    head = [rng.randrange(1000, 40000) for _ in range(shared)]
    return [head + [rng.randrange(1000, 40000) for _ in range(own)] for _ in range(requests)]


def ours(prompts: Prompts, out: int) -> tuple[Callable[[], dict[str, Any]], Callable[[], None]]:
    """A round on the engine with an empty cache, and how to end the engine."""
    import sglang_lite as sgl

    engine = sgl.Engine()
    params = {"max_new_tokens": out, "temperature": 0, "ignore_eos": True}
    engine.generate(input_ids=[[1, 2, 3]], sampling_params=params)

    def one_round() -> dict[str, Any]:
        engine.flush_cache()
        start = time.perf_counter()
        replies = engine.generate(input_ids=prompts, sampling_params=params)
        seconds = time.perf_counter() - start
        assert isinstance(replies, list), "a list of prompts gives a list of replies"
        computed = sum(reply["meta_info"]["computed_tokens"] for reply in replies)
        return {"seconds": seconds, "requests_per_s": len(prompts) / seconds, "prompt_tokens_computed": computed}

    return one_round, engine.shutdown


def transformers_peer(prompts: Prompts, out: int, batch: int) -> Callable[[], dict[str, Any]]:
    """A round on transformers: greedy `generate` over batches of `batch` prompts of equal length."""
    import torch
    from transformers import AutoConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    from sglang_lite.runtime.model.loader import find_embedded_model

    path = find_embedded_model()
    config: Any = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model: Any = LlamaForCausalLM(config).eval()
    model.load_state_dict(load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"], strict=False)
    model.tie_weights()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def one_round() -> dict[str, Any]:
        start = time.perf_counter()
        for first in range(0, len(prompts), batch):
            ids = torch.tensor(prompts[first : first + batch])
            with torch.inference_mode():
                model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=out, do_sample=False)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "requests_per_s": len(prompts) / seconds}

    return one_round


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds, in turn."""
    prompts = make_prompts(args.requests, args.shared, args.own, args.seed)
    run_ours, end = ours(prompts, args.out)
    peer = transformers_peer(prompts, args.out, args.batch) if args.peer else None
    rounds: list[dict[str, Any]] = []
    for number in range(args.rounds):
        entry: dict[str, Any] = {"sglang_lite": run_ours()}
        if peer is not None:
            entry["transformers"] = peer()
            entry["ratio"] = entry["sglang_lite"]["requests_per_s"] / entry["transformers"]["requests_per_s"]
        rounds.append(entry)
        print(f"round {number + 1}: {entry}")
    end()
    summary: dict[str, Any] = {
        "prompt_tokens_computed": rounds[0]["sglang_lite"]["prompt_tokens_computed"],
        "optimum": args.shared + args.requests * args.own,
        "requests_per_s": spread([entry["sglang_lite"]["requests_per_s"] for entry in rounds]),
    }
    if peer is not None:
        summary["transformers_requests_per_s"] = spread([e["transformers"]["requests_per_s"] for e in rounds])
        summary["ratio"] = spread([entry["ratio"] for entry in rounds])
    return {"settings": vars(args) | {"json": None}, "environment": environment(), "rounds": rounds, "summary": summary}


def main(argv: list[str] | None = None) -> int:
    """Measure and print; `--json` keeps everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--shared", type=int, default=800)
    parser.add_argument("--own", type=int, default=32)
    parser.add_argument("--out", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="prompts in a batch of transformers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-peer", dest="peer", action="store_false", help="without transformers")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    args = parser.parse_args(argv)
    report = measure(args)
    print(json.dumps(report["summary"], indent=2))
    if args.json:
        args.json.write_text(json.dumps(report, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
