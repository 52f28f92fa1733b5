"""Seeds of ops: each follows from its program's seed and its place, so that forks, rows and `n` differ and runs repeat."""

from __future__ import annotations

from hashlib import blake2b

SEED_BITS = 63


def derive_seed(program_seed: int, path: tuple[int, ...], op_index: int, sample: int = 0, attempt: int = 0) -> int:
    """The seed of sample number `sample` of the `op_index`-th op on the branch `path`."""
    place = f"{program_seed}/{'.'.join(map(str, path))}/{op_index}/{sample}{f'/{attempt}' if attempt else ''}".encode()
    return int.from_bytes(blake2b(place, digest_size=8).digest(), "little") >> (64 - SEED_BITS)
