"""One forward on the CPU: decode of one row and of sixteen, prefill of a prompt; the native step beside torch modules.

Both run the embedded model's own file on the same threads, in the same run, round by round in turn, without scheduler,
sampler and tokenizer: a step is the layers and the head of every row's last token. Tokens per second; the best round
says most where other programs share the machine.

    python -m benchmarks.cpu_step --rounds 5 --json cpu_step.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import environment, spread
from sglang_lite import env
from sglang_lite.kernels.cpu.jit import prepare_cache
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.execution.model_runner import CausalModel
from sglang_lite.runtime.model.loader import find_embedded_model, gguf_weights, load_model, open_gguf

PAGE_SIZE = 16
WORKLOADS = {"decode b=1": (1, 64), "decode b=16": (16, 16), "prefill 512": (0, 512)}
"""Name -> rows that decode (0: a prompt is computed) and tokens that each has before."""


class Bench:
    """A model over a pool of its own, with room for sixteen rows."""

    def __init__(self, model: CausalModel, attention: AttentionBackend, vocab_size: int) -> None:
        self._model = model
        self._attention = attention
        self._vocab_size = vocab_size
        self._rng = np.random.default_rng(0)

    def step(self, rows: int, prefix: int, extend: int) -> float:
        """Seconds of one step of `rows` rows, each with `extend` new tokens after `prefix`."""
        ids = self._rng.integers(0, self._vocab_size, rows * extend)
        width = -(-(prefix + extend) // PAGE_SIZE)
        table = 1 + np.arange(rows * width).reshape(rows, width)
        fb = ForwardBatch.build(ids, np.full(rows, extend), np.full(rows, prefix), table, PAGE_SIZE)
        start = time.perf_counter()
        with torch.inference_mode():
            hidden = self._model.forward(fb, self._attention)
            self._model.logits(hidden[fb.q_starts[1:].long() - 1])
        return time.perf_counter() - start


def native(threads: int) -> Bench:
    """The native step; its kernels are compiled or loaded here."""
    from sglang_lite.kernels.cpu.step_team import StepTeam
    from sglang_lite.runtime.attention.torch_ref import TorchAttention
    from sglang_lite.runtime.execution.native_step import build_native

    file, config = open_gguf(find_embedded_model())
    pool = KvPool(config.num_layers, 700, config.num_kv_heads, config.head_dim, PAGE_SIZE)
    model = build_native(gguf_weights(file, config), config, pool, StepTeam(threads), env.cache_dir(), print)
    assert not isinstance(model, str), f"no native step here: {model}"
    return Bench(model, TorchAttention(pool), config.vocab_size)


def torch_modules(threads: int) -> Bench:
    """Torch modules in float32 with the compiled attention."""
    from sglang_lite.kernels.cpu.threads import configure_threads
    from sglang_lite.runtime.attention.cpu import CpuAttention

    loaded = load_model(find_embedded_model())
    config = loaded.config
    pool = KvPool(config.num_layers, 700, config.num_kv_heads, config.head_dim, PAGE_SIZE)
    return Bench(loaded.module, CpuAttention(pool, config.num_heads, configure_threads(threads)), config.vocab_size)


def rate(bench: Bench, name: str, steps: int) -> float:
    """Tokens per second of one round: of the median step, or of one prompt."""
    rows, tokens = WORKLOADS[name]
    if rows == 0:
        return tokens / bench.step(1, 0, tokens)
    return rows / statistics.median(bench.step(rows, tokens + i, 1) for i in range(steps))


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds, in turn."""
    prepare_cache(env.cache_dir())
    makers: dict[str, Callable[[int], Bench]] = {"native": native, "torch": torch_modules}
    benches = {name: make(args.threads) for name, make in makers.items() if name in args.paths}
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(args.rounds + 1):
        entry = {
            name: {path: rate(bench, name, args.steps) for path, bench in benches.items()} for name in args.workloads
        }
        if number:  # the first one warms up
            rounds.append(entry)
            print(f"round {number}: {json.dumps(entry)}")
    summary: dict[str, Any] = {}
    for name in args.workloads:
        summary[name] = {path: spread([entry[name][path] for entry in rounds]) for path in benches}
        if len(benches) == len(makers):
            summary[name]["ratio"] = spread([entry[name]["native"] / entry[name]["torch"] for entry in rounds])
    return {"settings": vars(args) | {"json": None}, "environment": environment(), "rounds": rounds, "summary": summary}


def main(argv: list[str] | None = None) -> int:
    """Measure and print; `--json` keeps everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=32, help="decode steps in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--paths", nargs="+", choices=("native", "torch"), default=["native", "torch"])
    parser.add_argument("--workloads", nargs="+", choices=tuple(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--json", type=Path, help="write everything to this file")
    args = parser.parse_args(argv)
    report = measure(args)
    print(json.dumps(report["summary"], indent=2))
    if args.json:
        args.json.write_text(json.dumps(report, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
