"""Few-shot classification: sort messages by choosing one of a few labels, and say how sure the model is.

Shows `run_batch` over rows that share a prefix of worked examples (computed once, reused by each row), `select`, which can
give nothing but a label, and its log-probabilities: a share for each label, by which doubtful messages can be set aside.

    python examples/agents/few_shot_select.py                      # on the embedded model
    python examples/agents/few_shot_select.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import sglang_lite as sgl

MESSAGES = tuple(
    (entry["text"], entry["label"])
    for entry in json.loads((Path(__file__).parent / "data" / "messages.json").read_text(encoding="utf-8"))
)

EXAMPLES = """\
Message: The chairs were dirty and the music was too loud.
Kind: a complaint

Message: Are you open on Monday?
Kind: a question

Message: What a wonderful dinner, we will come back!
Kind: praise

Message: My coffee never came.
Kind: a complaint

Message: The soup was delicious.
Kind: praise

Message: Do you serve breakfast?
Kind: a question

Message: The bread was old and the bill was wrong.
Kind: a complaint

Message: I enjoyed the dessert very much!
Kind: praise

Message: How far is it to the station?
Kind: a question

"""

CHOICES = {" a complaint": "complaint", " praise": "praise", " a question": "question"}


@sgl.function
def classify(s, message: str):
    """Choose a label for one message."""
    s += EXAMPLES + "Message: "
    s += sgl.literal(message)  # what strangers wrote is text, even where it looks like a control token
    s += "\nKind:" + sgl.select("label", list(CHOICES))


@dataclass(frozen=True)
class Classified:
    """A message, the label that was chosen, its share among all labels, and the label that a person gave."""

    message: str
    label: str
    confidence: float
    expected: str


def confidence(meta, chosen: str) -> float:
    """The share of the chosen label: how likely each choice is as a whole, by its tokens' log-probabilities."""
    weights = {
        choice: math.exp(sum(logprob for logprob, *_ in tokens))
        for choice, tokens in zip(CHOICES, meta["input_token_logprobs"], strict=True)
    }
    return weights[chosen] / sum(weights.values())


def run(backend=None, messages=MESSAGES) -> list[Classified]:
    """Classify all messages at once."""
    states = classify.run_batch([{"message": text} for text, _ in messages], backend=backend)
    return [
        Classified(
            text, CHOICES[state["label"]], round(confidence(state.get_meta_info("label"), state["label"]), 2), label
        )
        for (text, label), state in zip(messages, states, strict=True)
    ]


def script(call) -> str:
    """Replies for a run without a model: by the punctuation."""
    message = call.prompt.rsplit("Message: ", 1)[1].split("\n")[0]
    return {"?": " a question", "!": " praise"}.get(message[-1], " a complaint")


def main(argv: list[str] | None = None) -> int:
    """Print the labels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    results = run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend)
    for result in results:
        print(f"{result.label:9} {result.confidence:.2f} {result.message}")
    print(f"{sum(result.label == result.expected for result in results)} of {len(results)} as a person would")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
