"""Random numbers that depend on nothing but a seed and a position: no generator, no state, no order of drawing."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, the increment of SplitMix64


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), uniform to 53 bits, that is a pure function of its arguments.

    The two are hashed by the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
    generators", 2014), all 64-bit words of the seed first and the position last.

    Args:
        seed: whole number >= 0 of any size.
        position: whole number >= 0, below 2^64.

    """
    state = _mix(_GAMMA ^ (seed & _MASK))
    while seed := seed >> 64:
        state = _mix(state + _GAMMA ^ (seed & _MASK))
    return (_mix(state + (position + 1) * _GAMMA) >> 11) * 2.0**-53


def _mix(word: int) -> int:
    word &= _MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _MASK
    return word ^ word >> 31
