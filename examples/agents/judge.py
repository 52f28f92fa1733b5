"""A judge by branch, solve and merge: one critic for each dimension, side by side; then one verdict over all of them.

Shows `fork` by dimension (the article is read once, whatever the number of critics), a function of the branch number to
append to a group, `join`, a regex that holds the form of a remark, and `select` for grades: its log-probabilities give an
average over all grades, which says more than the one digit that a small model likes best.

    python examples/agents/judge.py                      # on the embedded model
    python examples/agents/judge.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import sglang_lite as sgl

ARTICLE = json.loads((Path(__file__).parent / "data" / "article.json").read_text(encoding="utf-8"))
DIMENSIONS = ("clarity", "structure", "evidence", "usefulness")
GRADES = (" 1", " 2", " 3", " 4", " 5")  # with their space: that is how the tokenizer knows them inside a line
SCALE = "from 1 (bad) to 5 (excellent)"
REST_OF_SENTENCE = r" [a-z]+(,? [A-Za-z0-9']{1,14}){3,16}\.\n"


@sgl.function
def judge(s, title: str, text: str):
    """Branch: a critic for each dimension. Solve: a remark and a grade. Merge: one sentence and one grade."""
    s += f"Article: {title}\n{text}\n\n"
    critics = s.fork(len(DIMENSIONS))
    critics += lambda i: f"Review of its {DIMENSIONS[i]}: The {DIMENSIONS[i]} of the article"
    critics += sgl.gen("remark", regex=REST_OF_SENTENCE, max_tokens=32, temperature=0, frequency_penalty=0.5)
    critics += lambda i: f"Grade for {DIMENSIONS[i]} {SCALE}:"
    critics += sgl.select("grade", GRADES)
    critics.join()  # from here on each name is the list of what the critics gave it

    s += f"Reviews of the article, graded {SCALE}:\n"
    for dimension, remark, grade in zip(DIMENSIONS, s["remark"], s["grade"], strict=True):
        s += f"Review: The {dimension} of the article{remark}Grade:{grade}\n"
    s += "Review: The whole article" + sgl.gen("verdict", regex=REST_OF_SENTENCE, max_tokens=40, temperature=0)
    s += "Grade:" + sgl.select("overall", GRADES)


@dataclass(frozen=True)
class Review:
    """What one critic says; the grade is the mean over all grades, weighted by how likely the model finds them."""

    dimension: str
    remark: str
    grade: float


@dataclass(frozen=True)
class Verdict:
    """The reviews and what is made of them."""

    reviews: tuple[Review, ...]
    verdict: str
    overall: float


def mean_grade(meta) -> float:
    """The mean of 1 to 5, weighted by probability, from what `select` reports of its choices."""
    weights = [math.exp(logprob) for logprob in meta["normalized_prompt_logprobs"]]
    return round(sum(grade * weight for grade, weight in enumerate(weights, start=1)) / sum(weights), 2)


def run(backend=None, title: str = ARTICLE["title"], text: str = ARTICLE["text"]) -> Verdict:
    """Judge one article."""
    state = judge.run(title=title, text=text, backend=backend)
    reviews = tuple(
        Review(dimension, remark.strip(), mean_grade(meta))
        for dimension, remark, meta in zip(DIMENSIONS, state["remark"], state.get_meta_info("grade"), strict=True)
    )
    return Verdict(reviews, state["verdict"].strip(), mean_grade(state.get_meta_info("overall")))


def script(call) -> str:
    """Replies for a run without a model: the structure is what it likes best."""
    if call.kind == "select":
        return GRADES[4 if "structure" in call.prompt[-60:] else 2]
    return {"remark": " is what one may expect of it.\n", "verdict": " is good but short.\n"}[call.name]


def main(argv: list[str] | None = None) -> int:
    """Print the reviews and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    result = run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend)
    for review in result.reviews:
        print(f"{review.dimension} ({review.grade:.2f}): The {review.dimension} of the article {review.remark}")
    print(f"overall ({result.overall:.2f}): The whole article {result.verdict}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
