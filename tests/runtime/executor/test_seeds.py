from __future__ import annotations

from sglang_lite.runtime.executor.seeds import SEED_BITS, derive_seed


def test_every_place_has_its_own_seed_and_always_the_same() -> None:
    places = [
        (seed, path, op, sample)
        for seed in (1, 2)
        for path in ((0,), (0, 1), (0, 11))
        for op in (0, 1, 11)
        for sample in (0, 1)
    ]
    seeds = [derive_seed(*place) for place in places]
    assert len(set(seeds)) == len(places)
    assert seeds == [derive_seed(*place) for place in places]
    assert all(0 <= seed < 2**SEED_BITS for seed in seeds)


def test_digits_of_neighbouring_numbers_do_not_run_together() -> None:
    """Branch 1 op 11 is not branch 11 op 1."""
    assert derive_seed(1, (0, 1), 11) != derive_seed(1, (0, 11), 1)
    assert derive_seed(1, (0, 1), 1, 1) != derive_seed(11, (0, 1), 1)
