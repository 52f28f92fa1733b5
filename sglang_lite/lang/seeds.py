"""Seeds of runs: what a row of a batch and a run inside another derive from the one they belong to."""

from __future__ import annotations

import hashlib

from sglang_lite.request_tree import Program, SeededProgram


def row_seed(seed: int | None, row: int) -> int | None:
    """The seed of a row: the same for the same two numbers on every machine; None for None."""
    return _derived(seed, str(row))


def nested_seed(seed: int | None, number: int) -> int | None:
    """The seed of the `number`-th run inside the body of a run; None for None."""
    return _derived(seed, f"nested/{number}")


def seed_of(program: Program, given: int | None) -> int | None:
    """The seed of a program that was opened with `given`: where that is None, the one that its backend drew."""
    if given is None and isinstance(program, SeededProgram):
        return program.seed
    return given


def _derived(seed: int | None, place: str) -> int | None:
    if seed is None:
        return None
    return int.from_bytes(hashlib.blake2b(f"{seed}/{place}".encode(), digest_size=8).digest(), "big") >> 1
