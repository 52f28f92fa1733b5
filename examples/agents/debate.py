"""A debate: two speakers who answer each other, and a judge who reads it all twice.

Shows chat roles on two branches: each speaker is a dialogue of its own, in which the other one is the user, and which grows
without being read again. The judge is asked once with each order of the two, since a model prefers what stands first;
the mean of both `select`s has no such preference.

    python examples/agents/debate.py                      # on the embedded model
    python examples/agents/debate.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import sglang_lite as sgl

MOTION = "Cats are better pets than dogs."
PETS = {"Ann": "cats", "Ben": "dogs"}
OPENINGS = ("are", "love to", "never")  # one a round: a small model would say the same thing again
ARGUMENT = r" [a-z]+(,? [a-z]{1,12}){3,12}\."


@dataclass(frozen=True)
class Speech:
    """Who said what."""

    speaker: str
    text: str


@dataclass(frozen=True)
class Debate:
    """The speeches in order, and how convincing the judge finds each speaker (together 1)."""

    speeches: tuple[Speech, ...]
    shares: dict[str, float]
    winner: str


@sgl.function
def debate(s, motion: str, openings: tuple[str, ...]):
    """For each opening one sentence of each speaker, then the judge."""
    s.system(f"This is a friendly debate. The question is: {motion} Every answer is one short sentence.")
    sides = dict(zip(PETS, s.fork(len(PETS)), strict=True))
    speeches: list[Speech] = []
    for opening in openings:
        for name, side in sides.items():
            heard = speeches[-1].text if speeches else "The debate is open."
            side.user(f"{heard} Say something good about {PETS[name]}.")
            # The first words of an answer are given: they keep a small model on its own side.
            words = f"{PETS[name].capitalize()} {opening}"
            side.assistant(words + sgl.gen("argument", regex=ARGUMENT, max_tokens=32, temperature=0.7))
            speeches.append(Speech(name, words + side["argument"]))
    return tuple(speeches), judge(s, speeches)


def judge(s, speeches: list[Speech]) -> dict[str, float]:
    """The share of each speaker, averaged over both orders of the names."""
    transcript = "\n".join(f"{speech.speaker}: {speech.text}" for speech in speeches)
    s.user(f"Read the debate.\n{transcript}\nWho has the better reasons?")
    choices = [f" {pet}" for pet in PETS.values()]
    orders = (list(PETS.values()), list(reversed(PETS.values())))
    readers = s.fork(len(orders))
    for reader, order in zip(readers, orders, strict=True):
        reader.assistant(
            f"Between {order[0]} and {order[1]}, the better reasons are those for" + sgl.select("winner", choices)
        )
    shares = dict.fromkeys(PETS, 0.0)
    for reader in readers:
        weights = [math.exp(logprob) for logprob in reader.get_meta_info("winner")["normalized_prompt_logprobs"]]
        for name, weight in zip(PETS, weights, strict=True):
            shares[name] += weight / sum(weights) / len(orders)
    return shares


def run(backend=None, motion: str = MOTION, openings: tuple[str, ...] = OPENINGS, seed: int = 1) -> Debate:
    """Hold the debate; the same seed gives the same one."""
    options = sgl.RunOptions(seed=seed)
    speeches, shares = debate.run(motion=motion, openings=openings, backend=backend, options=options).ret_value
    shares = {name: round(share, 2) for name, share in shares.items()}
    return Debate(speeches, shares, max(shares, key=lambda name: shares[name]))


def script(call) -> str:
    """Replies for a run without a model: the same arguments again, and a judge for whom the first one has won."""
    if call.kind == "select":
        return " " + call.prompt.rsplit("Between ", 1)[1].split()[0]
    replies = {"are": " good company on every day.", "to": " be with their people.", "never": " ask where you were."}
    return replies[call.prompt.split()[-1]]


def main(argv: list[str] | None = None) -> int:
    """Print the debate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    result = run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend)
    for speech in result.speeches:
        print(f"{speech.speaker}: {speech.text}")
    print(
        "judge: "
        + ", ".join(f"{name} {share:.2f}" for name, share in result.shares.items())
        + f"; {result.winner} wins"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
