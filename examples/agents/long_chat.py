"""A long chat in a small window: when the dialogue outgrows a budget of tokens, it goes on from a summary of itself.

Shows chat roles, the token counts in `meta_info`, and forks as dialogues: the system turn is a state that is never added to,
and each fork of it begins anew; its KV is computed once. The summary is written on a fork of the old dialogue, so that
asking for it is no turn of the chat.

    python examples/agents/long_chat.py                      # on the embedded model
    python examples/agents/long_chat.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import sglang_lite as sgl

TURNS = (
    "I want to grow vegetables on my balcony. Which ones are easy?",
    "How often do I water them?",
    "I also have a cat. Is that a problem?",
    "What can I plant in winter?",
    "Which vegetables grow in a small pot?",
    "When is the best time to start?",
)
ANSWER = r"[A-Z][a-z']*([,;]? [A-Za-z0-9'-]{1,20}){4,24}[.!?]"
SUMMARY = r" [a-z]+([,;]? [A-Za-z0-9'-]{1,20}){4,24}\."


@dataclass(frozen=True)
class Turn:
    """A question, its answer, the tokens in the window after it, and the summary that the dialogue then went on from."""

    question: str
    answer: str
    num_tokens: int
    summary: str | None


def summarise(dialogue) -> str:
    """What was said so far, in one sentence; the dialogue itself does not change."""
    asked = dialogue.fork(1)[0]
    asked.user("In one sentence, what do I want, and what did you tell me?")
    asked.assistant("You want" + sgl.gen("summary", regex=SUMMARY, max_tokens=48, temperature=0))
    return "You want" + asked["summary"]


@sgl.function
def long_chat(s, turns: tuple[str, ...], budget: int):
    """Answer the turns in order; a dialogue of more than `budget` tokens is replaced by its summary."""
    s.system("You are a helpful gardener. Give short advice.")
    dialogue = s.fork(1)[0]
    introduction = ""
    done: list[Turn] = []
    for question in turns:
        dialogue.user(introduction + question)
        dialogue.assistant(sgl.gen("answer", regex=ANSWER, max_tokens=48, temperature=0))
        answer, meta = dialogue["answer"], dialogue.get_meta_info("answer")
        num_tokens = meta["prompt_tokens"] + meta["completion_tokens"]
        introduction, summary = "", None
        if num_tokens > budget:
            summary = summarise(dialogue)
            introduction = f"(What we said before: {summary})\n"
            dialogue = s.fork(1)[0]
        done.append(Turn(question, answer, num_tokens, summary))
    return tuple(done)


def run(backend=None, turns: tuple[str, ...] = TURNS, budget: int = 150) -> tuple[Turn, ...]:
    """Hold the chat."""
    return long_chat.run(turns=turns, budget=budget, backend=backend).ret_value


def script(call) -> str:
    """Replies for a run without a model: one that tells what it saw, and long ones, which fill the window."""
    if call.name == "summary":
        return f" a garden and asked {call.prompt.count('USER:') - 1} questions."
    return "I answer" + " with many words" * 6 + " and care."


def main(argv: list[str] | None = None) -> int:
    """Print the chat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    for turn in run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend):
        print(f"you: {turn.question}\ngardener: {turn.answer}   [{turn.num_tokens} tokens]")
        if turn.summary is not None:
            print(f"   the dialogue goes on from: {turn.summary}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
