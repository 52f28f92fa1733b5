"""What is expected of a real GPU, and whether figures reach it. Imports nothing."""

from __future__ import annotations

from typing import Any

GOALS = {"decode_share": 0.80, "prefill_share": 0.60, "idle_share": 0.05}
"""Decode at batch 1 and 64 as a share of the bandwidth bound, prefill of the matmul rate: at least; idle of a decode step: at most."""


def met(figures: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """Which goals the figures of a real GPU reach, by name; they are told and fail nothing."""
    found: dict[str, bool] = {}
    decode, prefill, idle = (figures.get(name, {}) for name in ("decode", "prefill", "idle"))
    for rows in (1, 64):
        if isinstance(one := decode.get(f"batch {rows}"), dict):
            found[f"decode at batch {rows}: 80 % of the bandwidth bound"] = (
                one["share_of_bound"] >= GOALS["decode_share"]
            )
    shares = [one["share_of_products"] for one in prefill.values() if isinstance(one, dict)]
    if shares:
        found["prefill: 60 % of the matmul rate"] = max(shares) >= GOALS["prefill_share"]
    if idle.get("idle_share") is not None:
        found["idle: under 5 % of a decode step"] = idle["idle_share"] < GOALS["idle_share"]
    return found
