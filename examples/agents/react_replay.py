"""A replay of recorded ReAct runs: the model proposes each step, the record says how it went on.

Shows `fork(1)` as a trial: at each step a branch generates what the model would do now, is joined, and leaves the text as it
was; then the recorded step is appended. So every run costs the same, whatever the model says, and what is measured is how much
of each prompt was reused: all of it but the newest step. `s["proposal"]` has all proposals: the list grows with each join.

    python examples/agents/react_replay.py                      # on the embedded model
    python examples/agents/react_replay.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import sglang_lite as sgl

RECORDS = json.loads((Path(__file__).parent / "data" / "react_steps.json").read_text(encoding="utf-8"))

EXAMPLE = """\
Answer each question in steps of Thought, Action and Observation.

Question: How many legs do two honey bees have?
Thought 1: I look up how many legs one has.
Action 1: search honey bee
Observation 1: A honey bee has 6 legs.
Thought 2: 6 times 2 is 12.
Action 2: finish 12 legs

"""


@sgl.function
def replay(s, question: str, steps: list):
    """One record: a proposal for each step, then the step as it was."""
    s += EXAMPLE + f"Question: {question}\n"
    for number, step in enumerate(steps, start=1):
        with s.copy() as trial:
            trial += f"Thought {number}:" + sgl.gen("proposal", max_tokens=24, stop="Observation", temperature=0)
        s += f"Thought {number}: {step['thought']}\nAction {number}: {step['action']}\n"
        if step["observation"]:
            s += f"Observation {number}: {step['observation']}\n"


@dataclass(frozen=True)
class Replayed:
    """One record: what the model proposed at each step, and the share of its prompts that was reused."""

    question: str
    proposals: tuple[str, ...]
    reused: float


def run(backend=None, records=None) -> list[Replayed]:
    """Replay all records side by side."""
    records = RECORDS if records is None else records
    results: list[Replayed] = []
    for record, state in zip(records, replay.run_batch(records, backend=backend), strict=True):
        metas = state.get_meta_info("proposal")
        prompt = sum(meta["prompt_tokens"] for meta in metas)
        reused = round(sum(meta["cached_tokens"] for meta in metas) / prompt, 2)
        results.append(Replayed(record["question"], tuple(text.strip() for text in state["proposal"]), reused))
    return results


def script(call) -> str:
    """Replies for a run without a model: the number of the step."""
    number = call.prompt.rsplit("Thought ", 1)[1].rstrip(":")
    return f" This is step {number}.\nAction {number}: search\nObservation {number}: made up"


def main(argv: list[str] | None = None) -> int:
    """Print the proposals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    for result in run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend):
        print(f"{result.question} ({result.reused:.0%} reused)")
        for number, proposal in enumerate(result.proposals, start=1):
            print(f"  {number}: {' '.join(proposal.split())}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
