"""Run with TRITON_INTERPRET=1: draws against the definition, wherever no rounding decides."""

from __future__ import annotations

import numpy as np
import torch

from sglang_lite.kernels.reference.sampling import draw_token, kept_tokens
from sglang_lite.kernels.triton.sampling import CANDIDATES, DAMAGED, NO_TOKEN, SPLIT, greedy, sample

NUMBERS = (0.0, 0.003, 0.2517, 0.5023, 0.7731, 0.9989, 1 - 2**-24)
FILTERS = (
    (0, 1.0, 0.0),
    (1, 1.0, 0.0),
    (7, 1.0, 0.0),
    (50, 0.9, 0.0),
    (0, 0.5, 0.0),
    (0, 0.95, 0.05),
    (0, 1e-6, 0.0),
    (0, 1.0, 0.2),
    (0, 1.0, 1.0),
    (3, 0.999, 0.3),
)
TEMPERATURES = (1.0, 0.7, 2.5, 0.3, 1.5, 30.0, 1.0)


def draw(
    logits: np.ndarray, temperature: list[float], filters: list[tuple[int, float, float]], numbers: list[float]
) -> list[int]:
    out = torch.empty(len(logits), dtype=torch.int64)
    top_k, top_p, min_p = (list(column) for column in zip(*filters, strict=True)) if filters else ([], [], [])
    sample(
        torch.from_numpy(logits),
        torch.tensor(temperature, dtype=torch.float32),
        torch.tensor(top_k, dtype=torch.int32),
        torch.tensor(top_p, dtype=torch.float64),
        torch.tensor(min_p, dtype=torch.float32),
        torch.tensor(numbers, dtype=torch.float64),
        out,
    )
    return out.tolist()


def expected(row: np.ndarray, temperature: float, filters: tuple[int, float, float], number: float) -> set[int]:
    """What may be drawn: one token, or those on both sides of an edge that rounding decides.

    The weights are those of the definition; every bound is moved by 1e-6 both ways.
    """
    top_k, top_p, min_p = filters
    wide = row.astype(np.float64)
    tokens: set[int] = set()
    for share in {top_p * (1 - 1e-6), min(top_p * (1 + 1e-6), 1.0) if top_p < 1 else 1.0}:
        share = 1.0 if top_p >= 1 else share
        for floor in {min_p * (1 - 1e-6), min(min_p * (1 + 1e-6), 1.0)}:
            kept = kept_tokens(wide, temperature, top_k or -1, share, floor)
            for moved in (number * (1 - 1e-6) - 1e-9, number, number + 1e-6 * (1 - number)):
                tokens.add(draw_token(wide, temperature, kept, min(max(moved, 0.0), 1 - 2**-53)))
    return tokens


def rows_of(vocab: int, kind: str) -> np.ndarray:
    random = np.random.default_rng(vocab)
    row = (random.standard_normal(vocab) * 3).astype(np.float32)
    if kind == "ties":
        row = np.round(row)
    if kind == "flat":
        row[:] = np.float32(0.25) * (np.arange(vocab) % 2)
    if kind == "masked":
        row[random.random(vocab) < 0.7] = -np.inf
        row[vocab // 2] = 1.0
    if kind == "extreme":
        row[:] = np.where(np.arange(vocab) % 3 == 0, np.float32(3e38), np.float32(-3e38))
    return row


def check_draws() -> None:
    exact = total = 0
    place = 0
    for vocab in (1, 33, 1000, SPLIT, SPLIT + 1, 2 * SPLIT + 777):
        for kind in ("plain", "ties", "flat", "masked", "extreme"):
            row = rows_of(vocab, kind)
            for _ in range(5 if vocab == 1000 else 1):
                filters, temperature = FILTERS[place % 10], TEMPERATURES[place // 2 % 7]
                number = NUMBERS[place % len(NUMBERS)]
                place += 1
                got = draw(row[None], [temperature], [filters], [number])[0]
                allowed = expected(row, temperature, filters, number)
                assert got in allowed, (vocab, kind, filters, temperature, number, got, allowed)
                exact, total = exact + (len(allowed) == 1), total + 1
    assert exact > 0.9 * total, "the cases stand on rounding edges"


def check_a_flat_row_longer_than_the_candidates() -> None:
    vocab = CANDIDATES + SPLIT + 5
    row = rows_of(vocab, "flat") + np.arange(vocab, dtype=np.float32) * np.float32(1e-5)
    for filters in ((0, 0.9, 0.0), (vocab - 3, 1.0, 0.0), (5000, 0.97, 0.0), (0, 1.0, 0.5)):
        for number in (0.1, 0.6, 0.98):
            got = draw(row[None], [1.0], [filters], [number])[0]
            assert got in expected(row, 1.0, filters, number), (filters, number, got)


def check_top_p_counts_what_top_k_left() -> None:
    """The candidates are just the four of top-k, a hundredth of the row: half of them stay, not half of the row."""
    row = np.full(1000, -1.0, np.float32)
    row[[10, 20, 30, 40]] = 0.0
    assert [draw(row[None], [1.0], [(4, 0.5, 0.0)], [number])[0] for number in (0.1, 0.9)] == [10, 20]


def check_ties_that_are_cut_keep_lower_ids() -> None:
    row = np.zeros(10, np.float32)
    row[[2, 5, 7, 9]] = 1.0
    thirds = [draw(row[None], [1.0], [(3, 1.0, 0.0)], [number])[0] for number in (0.1, 0.5, 0.9)]
    assert thirds == [2, 5, 7], thirds
    halves = [draw(row[None], [1e-3], [(0, 0.5, 0.0)], [number])[0] for number in (0.25, 0.75)]
    assert halves == [2, 5], halves
    both = [draw(row[None], [1.0], [(6, 0.9, 0.0)], [number])[0] for number in (0.999, 0.001)]
    assert both == [9, 0], both  # 0 and 1 are the first zeros; the two hold 0.16 of what top-k left, more than a tenth
    signed = np.array([-1.0, 0.0, -0.0, 0.0], np.float32)
    assert [draw(signed[None], [1.0], [(2, 1.0, 0.0)], [number])[0] for number in (0.2, 0.7)] == [1, 2], "one zero"


def check_rows_of_one_batch() -> None:
    """Greedy, drawn, empty and damaged rows do not disturb each other."""
    vocab = SPLIT + 100
    rows = np.stack([rows_of(vocab, "plain")] * 7)
    rows[2] = -np.inf
    rows[3, 5] = np.nan
    rows[4, vocab - 1] = np.inf
    rows[5, :] = -np.inf
    rows[5, vocab - 2] = -40.0
    heat = [0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.8]
    filters = [(0, 0.9, 0.0), (40, 0.9, 0.1), (0, 0.9, 0.0), (0, 1.0, 0.0), (0, 1.0, 0.0), (5, 0.5, 0.5), (0, 1.0, 0.0)]
    numbers = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.31]
    got = draw(rows, heat, filters, numbers)
    assert got[0] == rows[0].argmax()
    assert got[1] in expected(rows[1], 1.0, filters[1], 0.5)
    assert got[2:6] == [NO_TOKEN, DAMAGED, DAMAGED, vocab - 2], got
    assert got[6] in expected(rows[6], 0.8, filters[6], 0.31)
    alone = [draw(rows[i : i + 1], heat[i : i + 1], filters[i : i + 1], numbers[i : i + 1])[0] for i in range(7)]
    assert alone == got


def check_greedy() -> None:
    rows = np.stack([rows_of(2 * SPLIT + 9, "ties")] * 4)
    rows[1] = -np.inf
    rows[2, 0] = np.nan
    rows[3] = 0
    out = torch.empty(4, dtype=torch.int64)
    greedy(torch.from_numpy(rows), out)
    assert out.tolist() == [int(rows[0].argmax()), NO_TOKEN, DAMAGED, 0]
    greedy(torch.empty(0, 5), torch.empty(0, dtype=torch.int64))
    assert draw(np.empty((0, 5), np.float32), [], [], []) == []


def check_shares_of_many_numbers() -> None:
    """Evenly spread numbers draw every token as often as it is likely, to one."""
    row = np.log(np.array([0.5, 0.125, 0.125, 0.25], np.float32))
    numbers = (np.arange(16) + 0.5) / 16
    got = draw(np.stack([row] * 16), [1.0] * 16, [(0, 1.0, 0.0)] * 16, numbers.tolist())
    assert np.bincount(got).tolist() == [8, 2, 2, 4]


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            with np.errstate(over="ignore", under="ignore"):
                check()
            print(name)
