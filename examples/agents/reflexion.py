"""Reflexion: the model tries, a test judges, the model says what it learns from that, and tries again knowing it.

Shows `s.mark()` and `s.rewind(mark)`: after a failed try the program goes back to the place before it, so that neither the
try nor the verdict stays in the prompt; what was generated can still be read, and only the lesson is written down. The test is
plain Python: a title has to keep rules that are easy to check and hard to keep. The puzzles run side by side.

`gen(check=..., retries=...)` does the same where no lesson is wanted: see json_extraction.

    python examples/agents/reflexion.py                      # on the embedded model
    python examples/agents/reflexion.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import sglang_lite as sgl

PUZZLES = (
    ("a storm at sea", 3, "storm"),
    ("a lost key", 4, "key"),
    ("the first snow", 3, "snow"),
)

EXAMPLES = """\
Find a title that keeps the rules.

Story: a walk in the woods
Rules: 3 words, one of them is "woods"
Title: In The Woods

Story: two friends and a boat
Rules: 4 words, one of them is "boat"
Title: The Boat Of Friends

"""

TITLE = " [A-Z][a-z]{1,9}( [A-Z][a-z]{1,9}){1,4}\n"


def faults(title: str, num_words: int, word: str) -> list[str]:
    """What is wrong with a title; empty: nothing."""
    words = title.lower().split()
    found = []
    if len(words) != num_words:
        found.append(f"it has {len(words)} words, not {num_words}")
    if word not in words:
        found.append(f'the word "{word}" is missing')
    return found


@dataclass(frozen=True)
class Try:
    """One title, what is wrong with it, and what the model says it learns; the last try needs no lesson."""

    title: str
    faults: tuple[str, ...]
    lesson: str | None


@sgl.function
def reflexion(s, story: str, num_words: int, word: str, max_tries: int = 3):
    """Look for a title; gives the tries in order."""
    s += EXAMPLES + f'Story: {story}\nRules: {num_words} words, one of them is "{word}"\n'
    tries = []
    while True:
        before = s.mark()
        s += "Title:" + sgl.gen("title", regex=TITLE, max_tokens=16, temperature=0.7)
        title = s["title"].strip()
        wrong = tuple(faults(title, num_words, word))
        if not wrong or len(tries) + 1 == max_tries:
            return [*tries, Try(title, wrong, None)]
        s += f"This title is wrong: {' and '.join(wrong)}.\nNext time I will" + sgl.gen("lesson", 24, stop=["\n", "."])
        lesson = s["lesson"].strip()
        s.rewind(before)  # as if nothing had happened ...
        s += f"Remember: {word} must be there, {num_words} words. I will {lesson}.\n"  # ... but for what was learnt
        tries.append(Try(title, wrong, lesson))


def run(backend=None, puzzles=PUZZLES, max_tries=3) -> list[list[Try]]:
    """Look for all titles at once."""
    rows = [
        {"story": story, "num_words": number, "word": word, "max_tries": max_tries} for story, number, word in puzzles
    ]
    states = reflexion.with_options(seed=1).run_batch(rows, backend=backend)
    return [state.ret_value for state in states]


def script(call) -> str:
    """Replies for a run without a model: the first title is right, the second needs a lesson, the third is never found."""
    story = call.prompt.rsplit("Story: ", 1)[1].split("\n")[0]
    if call.name == "lesson":
        return " read the rules again."
    if story == PUZZLES[0][0]:
        return " The Storm Speaks\n"
    if story == PUZZLES[1][0]:
        return " The Key Is Gone\n" if "Remember" in call.prompt else " Nobody Is Home\n"
    return " Cold Morning\n"


def main(argv: list[str] | None = None) -> int:
    """Print the tries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    results = run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend)
    for (story, number, word), tries in zip(PUZZLES, results, strict=True):
        print(f'{story} ({number} words, with "{word}")')
        for one in tries:
            print(
                f"  {one.title}: {', '.join(one.faults) or 'good'}" + (f"; I will {one.lesson}" if one.lesson else "")
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
