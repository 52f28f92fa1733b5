"""Tree of thought: propose several next steps, judge each, go on from the best ones.

Shows a regex that holds the form of a sentence, `fork` (every proposal is a child that shares its parent's KV), forks of forks (a judge reads a proposal on a branch of
its own, so that the verdict never becomes part of the story), `select` as a judge whose log-probability is the score, and seeds.

    python examples/agents/tree_of_thought.py                      # on the embedded model
    python examples/agents/tree_of_thought.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import sglang_lite as sgl

TASK = "a lighthouse keeper who finds a message in a bottle"
STEPS = ("Beginning", "Problem", "Ending")
SENTENCE = r" [A-Z][a-z]+( [A-Za-z']{1,12},?){4,16}\.\n"


@dataclass(frozen=True)
class Thought:
    """One proposal in the tree: its step, its text, and how the judge likes it (0 to 1)."""

    step: str
    text: str
    score: float
    is_kept: bool


@dataclass(frozen=True)
class Result:
    """Every proposal in the order of making, and the story along the best path."""

    thoughts: tuple[Thought, ...]
    story: tuple[str, ...]


def ask_judge(branch):
    """Let the model judge the branch's last sentence, on a branch of its own; does not wait for the verdict."""
    asked = branch.fork(1)[0]
    asked += "A reader says that the last sentence is" + sgl.select("verdict", [" good", " bad"])
    return asked


def score(asked) -> float:
    """How likely the judge finds it good, against bad."""
    good, bad = asked.get_meta_info("verdict")["normalized_prompt_logprobs"]
    return math.exp(good) / (math.exp(good) + math.exp(bad))


@sgl.function
def tree_of_thought(s, task: str, width: int, keep: int):
    """A short story in three sentences: at each step `width` proposals for each of the `keep` best branches."""
    s += f"A very short story in three sentences about {task}.\n"
    thoughts: list[Thought] = []
    best = [(1.0, s, ())]
    for step in STEPS:
        proposals = []
        for _, branch, story in best:
            children = branch.fork(width)
            children += f"{step}:" + sgl.gen("text", regex=SENTENCE, max_tokens=48, temperature=0.8, top_p=0.9)
            proposals += [(child, ask_judge(child), story) for child in children]
        ranked = sorted(
            ((score(asked), child, (*story, child["text"].strip())) for child, asked, story in proposals),
            key=lambda entry: -entry[0],
        )
        thoughts += [Thought(step, story[-1], score, rank < keep) for rank, (score, _, story) in enumerate(ranked)]
        best = ranked[:keep]
    return Result(tuple(thoughts), best[0][2])


def run(backend=None, task: str = TASK, width: int = 3, keep: int = 2, seed: int = 7) -> Result:
    """Grow the tree; the same seed gives the same tree."""
    options = sgl.RunOptions(seed=seed)
    return tree_of_thought.run(task=task, width=width, keep=keep, backend=backend, options=options).ret_value


def script(call) -> str:
    """Replies for a run without a model: numbered sentences, of which the judge likes the odd ones."""
    if call.kind == "select":
        return call.choices[0 if "odd" in call.prompt.rsplit(":", 1)[1] else 1]
    return f" The keeper reads {'odd' if call.index % 2 else 'even'} words on paper.\n"


def main(argv: list[str] | None = None) -> int:
    """Print the tree and the best story."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    result = run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend)
    for thought in result.thoughts:
        print(f"{'*' if thought.is_kept else ' '} {thought.score:.2f} {thought.step}: {thought.text}")
    print("\n" + "\n".join(result.story))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
