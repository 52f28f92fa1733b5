"""Prompts of the workloads, made from a seed: every round has new ones, the same for whoever takes part."""

from __future__ import annotations

import random

_SENTENCES = (
    "The ferry left at six with two cars and a crate of lemons on its deck.",
    "A narrow road climbs from the quarry to the chapel on the ridge.",
    "The council paid for a new roof after the storm had taken the old one.",
    "Every winter the river floods the lower meadow and leaves it grey with silt.",
    "Her brother keeps bees behind the station and sells the honey in brown jars.",
    "The museum closed one wing because the heating had failed again.",
    "Three students counted the swifts that nested under the bridge.",
    "The price of glass doubled while the factory was being repaired.",
    "Nobody knew who had painted the small blue door at the end of the lane.",
    "The train stopped between two fields, and the driver got out to look.",
    "An old map in the library shows a canal that was never dug.",
    "The baker opens early on market days and shuts when the bread is gone.",
    "They moved the lamp nearer to the window so that boats could see it.",
    "A committee of five read all the letters and answered two of them.",
    "The orchard was sold last autumn to a family from the coast.",
    "Rain fell for nine days, and the cellar of the town hall filled with water.",
)

_LOW_ID, _HIGH_ID = 1000, 40000
"""Ordinary tokens of a vocabulary of 49,152."""


def passage(seed: object, sentences: int) -> str:
    """Sentences in an order that the seed fixes; about 15 tokens each."""
    return " ".join(random.Random(str(seed)).choices(_SENTENCES, k=sentences))


def token_ids(seed: object, count: int, vocab_size: int = _HIGH_ID) -> list[int]:
    """Random ids, for workloads in which only the number of tokens counts."""
    rng = random.Random(str(seed))
    low, high = min(_LOW_ID, vocab_size // 4), min(_HIGH_ID, vocab_size)
    return [rng.randrange(low, high) for _ in range(count)]
