"""How near the native step is to float32, for each quantisation: perplexity, KL, and equal best tokens on one text.

The reference is the same file dequantised and computed in float32 by torch modules. The text is `data/prose.txt`, written
for this; every position but the last counts, with the true text before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.inside import ModelInside
from benchmarks.peers.llama_files import find_llama_server, find_quantize, requantised
from benchmarks.tables import table
from benchmarks.workload import PeerError

TEXT = Path(__file__).parent / "data" / "prose.txt"
KINDS = ("Q4_1", "Q4_0", "Q8_0", "Q4_K", "Q6_K")
"""`Q4_1` is the file as it is; the others are made from it, see `requantised`."""

KV_TYPES = ("fp16", "int8")
"""Smaller keys and values, measured on the file as it is; the reference keeps float32."""

GATES = {"ppl_change": 0.005, "kl": 0.01, "equal": 0.97}
"""The most that perplexity may change, the most KL, the least share of equal best tokens."""


@dataclass(frozen=True)
class Agreement:
    """One model's distributions beside a reference's, over the positions of a text."""

    tokens: int
    reference_ppl: float
    ppl: float
    kl: float
    equal: float

    @property
    def ppl_change(self) -> float:
        """Relative change of the perplexity."""
        return self.ppl / self.reference_ppl - 1


class Comparison:
    """Adds up distributions piece by piece."""

    def __init__(self) -> None:
        self._tokens = 0
        self._reference = self._own = self._kl = 0.0
        self._equal = 0

    def add(self, reference: np.ndarray, own: np.ndarray, truth: np.ndarray) -> None:
        """Logits of both, float32 `[n, vocab]`, and the tokens that follow, int64 `[n]`."""
        expected, got = _log_softmax(reference), _log_softmax(own)
        chosen = torch.from_numpy(truth)[:, None]
        self._tokens += len(truth)
        self._reference -= float(expected.gather(-1, chosen).double().sum())
        self._own -= float(got.gather(-1, chosen).double().sum())
        self._kl += float((expected.exp() * (expected - got)).sum(-1).double().sum())
        self._equal += int((expected.argmax(-1) == got.argmax(-1)).sum())

    def result(self) -> Agreement:
        """Over all that was added."""
        n = self._tokens
        return Agreement(
            n, float(np.exp(self._reference / n)), float(np.exp(self._own / n)), self._kl / n, self._equal / n
        )


def compare(reference: ModelInside, own: ModelInside, ids: list[int]) -> Agreement:
    """Both models on one text of token ids."""
    comparison = Comparison()
    truth = np.asarray(ids[1:], dtype=np.int64)
    start = 0
    for expected, got in zip(reference.logits(ids[:-1]), own.logits(ids[:-1]), strict=True):
        comparison.add(expected, got, truth[start : start + len(expected)])
        start += len(expected)
    return comparison.result()


def measure(
    model: Path,
    threads: int,
    folder: Path,
    llama_server: Path | None,
    kinds: tuple[str, ...] = KINDS,
    kv_types: tuple[str, ...] = KV_TYPES,
) -> dict[str, Any]:
    """Every quantisation that can be made here; the others with the reason."""
    try:
        tool = find_quantize(find_llama_server(llama_server))
    except PeerError:
        tool = find_quantize(None)
    results: dict[str, Any] = {}
    for kind in kinds:
        try:
            path = model if kind == "Q4_1" else requantised(model, kind, folder, tool)
        except PeerError as error:
            results[kind] = {"not_made": str(error)}
            continue
        results[kind] = _measured(path, threads)
    for kv in kv_types:
        results[f"Q4_1, keys and values in {kv}"] = _measured(model, threads, kv)
    return {"kinds": results, "gates": GATES, "markdown": _markdown(results)}


def _measured(path: Path, threads: int, kv: str = "auto") -> dict[str, Any]:
    with ModelInside(path, threads, kv=kv) as own, ModelInside(path, threads, dtype="float32") as reference:
        ids = own.engine.tokenizer.encode(TEXT.read_text(encoding="utf-8"), parse_special=False)
        found = compare(reference, own, ids)
        return {"executor": own.executor, "file": path.name, "ppl_change": found.ppl_change} | vars(found)


def _markdown(results: dict[str, Any]) -> str:
    rows: list[tuple[str, ...]] = []
    for kind, found in results.items():
        if "not_made" in found:
            rows.append((kind, found["not_made"], "", "", "", "", ""))
            continue
        kept = (
            found["ppl_change"] <= GATES["ppl_change"]
            and found["kl"] <= GATES["kl"]
            and found["equal"] >= GATES["equal"]
        )
        rows.append(
            (
                kind,
                found["executor"],
                f"{found['reference_ppl']:.3f}",
                f"{found['ppl']:.3f} ({100 * found['ppl_change']:+.2f} %)",
                f"{found['kl']:.4f}",
                f"{100 * found['equal']:.1f} %",
                "yes" if kept else "no",
            )
        )
    titles = ("file", "path", "perplexity, float32", "perplexity, ours", "KL", "equal best tokens", "within the gates")
    return table(titles, rows)


def _log_softmax(logits: np.ndarray) -> torch.Tensor:
    return torch.log_softmax(torch.from_numpy(logits), -1)
