"""Self-consistency: let the model reason several times, and take the answer that most of its chains agree on.

Shows `fork` into chains that share the question's KV and differ by their seeds, `join`, after which a name is the list of
what the chains gave it, and `run_batch`. A small model slips in many of its chains, but seldom in the same way: the vote is
right more often than a chain is. A regex makes every answer a number, so that votes can be counted.

    python examples/agents/self_consistency.py                      # on the embedded model
    python examples/agents/self_consistency.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from dataclasses import dataclass

import sglang_lite as sgl

EXAMPLES = """\
Question: Tom has 3 pens. He buys 5 more. How many pens does he have now?
Reasoning: Tom had 3 pens and got 5 more, so I add. 3 + 5 = 8.
Answer: 8

Question: There are 9 birds on a tree. 4 birds fly away. How many birds are left?
Reasoning: There were 9 birds and 4 went away, so I subtract. 9 - 4 = 5.
Answer: 5

Question: A box holds 2 toys. How many toys are in 6 boxes?
Reasoning: Each of the 6 boxes holds 2 toys, so I multiply. 6 * 2 = 12.
Answer: 12

Question: Lea has 7 stickers. She gives 2 to her brother. How many stickers does she have now?
Reasoning: Lea had 7 stickers and gave 2 away, so I subtract. 7 - 2 = 5.
Answer: 5

Question: A spider has 8 legs. How many legs do 3 spiders have?
Reasoning: Each of the 3 spiders has 8 legs, so I multiply. 8 * 3 = 24.
Answer: 24

Question: Ben has 10 coins and finds 2 more. How many coins does he have now?
Reasoning: Ben had 10 coins and got 2 more, so I add. 10 + 2 = 12.
Answer: 12

"""

QUESTIONS = (  # each with its solution, which the model never sees
    ("Mia has 6 books. She gets 3 more for her birthday. How many books does she have now?", "9"),
    ("There are 8 cakes on a plate. The children eat 6 cakes. How many cakes are left?", "2"),
    ("A car has 4 wheels. How many wheels do 5 cars have?", "20"),
)


@sgl.function
def solve(s, question: str, num_chains: int):
    """Reason `num_chains` times about one question."""
    s += EXAMPLES + f"Question: {question}\nReasoning:"
    chains = s.fork(num_chains)
    # The thinking is sampled, so that chains differ; what follows from a chain is read off without chance.
    chains += sgl.gen("reasoning", max_tokens=32, stop="\n", temperature=0.7, top_p=0.9) + "\nAnswer:"
    chains += sgl.gen("answer", regex=r" [0-9]{1,3}\n", max_tokens=6, temperature=0)
    chains.join()


@dataclass(frozen=True)
class Vote:
    """The answer that won, how many chains gave it, and what the solution is."""

    question: str
    answer: str
    num_votes: int
    chains: tuple[str, ...]
    solution: str


def run(backend=None, questions=QUESTIONS, num_chains: int = 9, seed: int = 3) -> list[Vote]:
    """Solve all questions at once; the same seed gives the same chains."""
    rows = [{"question": question, "num_chains": num_chains} for question, _ in questions]
    states = solve.run_batch(rows, backend=backend, options=sgl.RunOptions(seed=seed))
    votes = []
    for (question, solution), state in zip(questions, states, strict=True):
        answers = [answer.strip() for answer in state["answer"]]
        answer, num_votes = Counter(answers).most_common(1)[0]
        votes.append(Vote(question, answer, num_votes, tuple(answers), solution))
    return votes


def script(call) -> str:
    """Replies for a run without a model: it always adds, which is not what every question asks for."""
    question = call.prompt.rsplit("Question: ", 1)[1]
    first, second = re.findall("[0-9]+", question)[:2]
    total = int(first) + int(second)
    return f" I add. {first} + {second} = {total}.\n" if call.name == "reasoning" else f" {total}\n"


def main(argv: list[str] | None = None) -> int:
    """Print the votes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    for vote in run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend):
        print(vote.question)
        print(f"  chains: {', '.join(vote.chains)}")
        print(f"  answer: {vote.answer} with {vote.num_votes} of {len(vote.chains)} votes (right: {vote.solution})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
