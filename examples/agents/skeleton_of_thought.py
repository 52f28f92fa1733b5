"""Skeleton of thought: first an outline, then all its points at the same time.

Shows a regex that holds the form of a whole list, and a `@function` called from another one: the points are rows of a
`run_batch` inside the body, which share the examples of the nested program and are decoded together. An answer of several
paragraphs takes as many steps as the outline and the longest one.

    python examples/agents/skeleton_of_thought.py                      # on the embedded model
    python examples/agents/skeleton_of_thought.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

import sglang_lite as sgl

QUESTION = "How can I sleep better?"

OUTLINE_EXAMPLE = """\
Question: How can I learn a language?
Tips:
1. Listen to the radio
2. Speak with people every day
3. Read books for children

"""

POINT_EXAMPLES = """\
Each tip is explained in one sentence.

Tip: Listen to the radio
Because: The ear gets used to the sound of the language, even before the words are known.

Tip: Drink water before a meal
Because: The stomach is filled, so that a smaller meal is enough.

Tip: Walk to work
Because: The legs get some exercise every day, and the ticket is saved.

"""

NUM_POINTS = 3
OUTLINE = "".join(rf"{number}\. [A-Z][a-z]+( [a-z]{{1,12}}){{1,5}}\n" for number in range(1, NUM_POINTS + 1))
SENTENCE = r" [A-Z][a-z]+(,? [A-Za-z']{1,12}){4,18}\.\n"


@sgl.function
def explain(s, tip: str):
    """One point of the outline."""
    s += POINT_EXAMPLES + f"Tip: {tip}\nBecause:"
    s += sgl.gen("sentence", regex=SENTENCE, max_tokens=32, temperature=0)


@sgl.function
def skeleton_of_thought(s, question: str):
    """The outline, then its points side by side, then everything as one text."""
    s += OUTLINE_EXAMPLE + f"Question: {question}\nTips:\n"
    s += sgl.gen("outline", regex=OUTLINE, max_tokens=48, temperature=0)
    tips = re.findall(r"\. (.+)\n", s["outline"])
    points = explain.run_batch([{"tip": tip} for tip in tips])  # on the backend of this program
    return tuple(Point(tip, point["sentence"].strip()) for tip, point in zip(tips, points, strict=True))


@dataclass(frozen=True)
class Point:
    """A point of the outline and its explanation."""

    tip: str
    sentence: str


def run(backend=None, question: str = QUESTION) -> tuple[Point, ...]:
    """Answer one question."""
    return skeleton_of_thought.run(question=question, backend=backend).ret_value


def script(call) -> str:
    """Replies for a run without a model."""
    if call.name == "outline":
        return "1. Go to bed early\n2. Read a dull book\n3. Keep the window open\n"
    tip = call.prompt.rsplit("Tip: ", 1)[1].split("\n")[0]
    return f" It helps many people to {tip.lower()}.\n"


def main(argv: list[str] | None = None) -> int:
    """Print the answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    for number, point in enumerate(run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend), 1):
        print(f"{number}. {point.tip}: {point.sentence}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
