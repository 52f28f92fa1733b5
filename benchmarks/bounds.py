"""What this machine allows, and how much of it is reached: memory reads for decode at batch 1, products for prefill.

Reads: the sum of 64-bit numbers far larger than any cache, on all threads. Products: the model's own quantised layers
alone at 512 rows, on all threads, no other operation between, over several row tiles; and torch's float32 product of one
of the shapes. Best of several repetitions each, for a bound is what is possible.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.inside import ModelInside
from benchmarks.tables import number, table
from benchmarks.workloads.decode_one import DecodeOne

ROWS = 512
_REPEATS = 7
_READ_BYTES = 512 << 20
_TILES = (32, 128, ROWS)
_CONTEXT = 64
_PRODUCTS = 20
_GOALS = {"decode": (0.55, 0.70), "prefill": (0.60, 0.75)}


def measure(model: Path, threads: int, folder: Path, llama_server: Path | None) -> dict[str, Any]:
    """Bounds and shares, as plain data."""
    with ModelInside(model, threads) as inside:
        if inside.executor != "native":
            return {"executor": inside.executor, "markdown": f"No bounds: the model runs on {inside.executor}."}
        read = best_rate(_READ_BYTES, reader(threads))
        weights, config = inside.model._weights, inside.model._config
        weight_bytes, macs = weight_sizes(weights, config)
        product = best_rate(ROWS, layer_products(weights, config, threads))
        deep, wide = config.hidden_size, 2 * config.intermediate_size
        float_product = best_rate(_PRODUCTS * ROWS * deep * wide, torch_product(ROWS, deep, wide, threads))
        inside.step(1, _CONTEXT, 1)
        decode = 1 / statistics.median(inside.step(1, _CONTEXT + i, 1) for i in range(96))
        prefill = ROWS / statistics.median(inside.step(1, 0, ROWS) for _ in range(5))
        inside.engine.flush_cache()
        engine_decode = DecodeOne().on_engine(inside.engine, 0).rate
        kv_bytes = (_CONTEXT + 48) * inside.pool.bytes_per_page(
            *(inside.pool.num_layers, inside.pool.num_kv_heads, inside.pool.head_dim, 1, inside.pool.k.element_size())
        )
    step_bytes = weight_bytes + kv_bytes
    found = {
        "read_bytes_per_s": read,
        "step_bytes": step_bytes,
        "decode_bound": read / step_bytes,
        "decode": decode,
        "engine_decode": engine_decode,
        "product_tokens_per_s": product,
        "product_macs_per_s": product * macs,
        "float32_macs_per_s": float_product,
        "prefill": prefill,
    }
    return found | {"shares": shares(found), "goals": _GOALS, "markdown": _markdown(found, threads)}


def best_rate(amount: float, run: Callable[[], None]) -> float:
    """Most units a second of several runs, the first not counted."""
    run()
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return amount / best


def on_threads(jobs: Sequence[Callable[[], object]]) -> None:
    """All jobs, each on a thread of its own."""
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def reader(threads: int) -> Callable[[], None]:
    """Reads `_READ_BYTES` once."""
    from numba import njit  # after the engine has named the folder of compiled kernels

    @njit(nogil=True)
    def add_up(numbers: np.ndarray) -> Any:
        total = np.uint64(0)
        for value in numbers:
            total += value
        return total

    parts = np.array_split(np.ones(_READ_BYTES // 8, dtype=np.uint64), threads)
    add_up(parts[0][:8])
    return lambda: on_threads([lambda part=part: add_up(part) for part in parts])


def weight_sizes(weights: dict[str, Any], config: Any) -> tuple[int, int]:
    """Bytes of all matrices that a decode step reads, and products that one token takes in the layers."""
    head = weights.get("head", weights["embed"]).data.nbytes
    matrices = _matrices(weights, config)
    return head + sum(one.data.nbytes for one, _, _ in matrices), sum(rows * columns for _, rows, columns in matrices)


def layer_products(weights: dict[str, Any], config: Any, threads: int) -> Callable[[], None]:
    """All matrices of the layers times `ROWS` rows; the row tile that is fastest here."""
    from sglang_lite.kernels.cpu.linear import linear_address

    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 12)
    jobs = [
        (call(linear_address(weight.kind)), weight.address, deep // 32, columns)
        for weight, columns, deep in _matrices(weights, config)
    ]
    width = max(columns for _, _, _, columns in jobs)
    groups = max(groups for _, _, groups, _ in jobs)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, 32 * groups), dtype=np.float32)
    a = rng.integers(-127, 128, (ROWS, 32 * groups), dtype=np.int8)
    scales, sums = np.full((ROWS, groups, 2), 0.01, np.float32), np.zeros((ROWS, groups), np.float32)
    y = np.zeros((ROWS, width), np.float32)

    def part(thread: int, tile: int) -> None:
        for function, w, deep, columns in jobs:
            blocks = columns // 16
            first, last = blocks * thread // threads, blocks * (thread + 1) // threads
            for row in range(0, ROWS, tile):
                function(
                    *(w, x.ctypes.data + 128 * deep * row, a.ctypes.data + 32 * deep * row),
                    *(scales.ctypes.data + 8 * deep * row, sums.ctypes.data + 4 * deep * row),
                    *(y.ctypes.data + 4 * (width * row + 16 * first), 4 * width, min(tile, ROWS - row), deep),
                    *(first, last, 0),
                )

    def run(tile: int) -> None:
        on_threads([lambda thread=thread: part(thread, tile) for thread in range(threads)])

    best = max(_TILES, key=lambda tile: best_rate(1, lambda: run(tile)))
    return lambda: run(best)


def torch_product(rows: int, deep: int, columns: int, threads: int) -> Callable[[], None]:
    """One float32 product of torch, several times."""
    torch.set_num_threads(threads)
    a, b, out = torch.randn(rows, deep), torch.randn(deep, columns), torch.empty(rows, columns)

    def run() -> None:
        for _ in range(_PRODUCTS):
            torch.mm(a, b, out=out)

    return run


def shares(found: dict[str, float]) -> dict[str, float]:
    """What is reached of each bound."""
    return {
        "decode": found["decode"] / found["decode_bound"],
        "engine_decode": found["engine_decode"] / found["decode_bound"],
        "prefill": found["prefill"] / found["product_tokens_per_s"],
    }


def _matrices(weights: dict[str, Any], config: Any) -> list[tuple[Any, int, int]]:
    """The layers' matrices with their rows and columns."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes = {
        "q": (queries, hidden),
        "k": (keys, hidden),
        "v": (keys, hidden),
        "out": (hidden, queries),
        "gate": (inner, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
    }
    layers = range(config.num_layers)
    return [(weights[f"{layer}.{part}"], *shape) for layer in layers for part, shape in shapes.items()]


def _markdown(found: dict[str, float], threads: int) -> str:
    reached = shares(found)
    rows = [
        ("memory reads", f"{found['read_bytes_per_s'] / 1e9:.1f} GB/s", "", ""),
        ("bytes read a decode step", f"{found['step_bytes'] / 1e6:.1f} MB", "", ""),
        ("decode, batch 1: bound by reads", f"{number(found['decode_bound'])} tok/s", "", ""),
        _share_row("decode, batch 1: the model alone", found["decode"], reached["decode"], _GOALS["decode"]),
        _share_row("decode, batch 1: the engine", found["engine_decode"], reached["engine_decode"], _GOALS["decode"]),
        ("products, float32 (torch)", f"{found['float32_macs_per_s'] / 1e9:.0f} GMAC/s", "", ""),
        ("products, the file's storage", f"{found['product_macs_per_s'] / 1e9:.0f} GMAC/s", "", ""),
        (f"prefill {ROWS}: bound by products", f"{number(found['product_tokens_per_s'])} tok/s", "", ""),
        _share_row(f"prefill {ROWS}: the model alone", found["prefill"], reached["prefill"], _GOALS["prefill"]),
    ]
    return table((f"on {threads} threads", "measured", "share of the bound", "safe / goal"), rows)


def _share_row(name: str, rate: float, share: float, goals: tuple[float, float]) -> tuple[str, str, str, str]:
    return name, f"{number(rate)} tok/s", f"{100 * share:.0f} %", f"{100 * goals[0]:.0f} / {100 * goals[1]:.0f} %"
