"""ReAct: the model thinks, picks a tool, reads what the tool found, and answers.

Shows `gen` with a stop string and with a regex, `select`, plain Python control flow, and prefix sharing: all questions start
with the same worked examples, whose KV is computed once. The tools are real: a calculator, and a look-up in a small set of
documents. What a 135M model cannot be trusted with is held by constraints: the tool's name, and the form of what a tool is given.

    python examples/agents/react.py                      # on the embedded model
    python examples/agents/react.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import json
import operator
import re
from dataclasses import dataclass
from pathlib import Path

import sglang_lite as sgl

DOCUMENTS = {
    entry["title"]: entry["text"]
    for entry in json.loads((Path(__file__).parent / "data" / "facts.json").read_text(encoding="utf-8"))
}

QUESTIONS = (
    "How high is Mount Kenya?",
    "What is 23 times 17?",
    "How many arms does an octopus have?",
    "What is 512 minus 498?",
    "When was the Eiffel Tower opened?",
    "How deep is Lake Baikal?",
)

EXAMPLES = """\
Answer each question with a tool.

Question: How long is a blue whale?
Thought: The question is about the blue whale, so I search for it.
Action: search blue whale
Observation: The blue whale is 30 metres long. It is the largest animal that has ever lived.
Answer: 30 metres

Question: What is 12 times 9?
Thought: The question asks to multiply 12 by 9.
Action: calculate 12 * 9
Observation: 108
Answer: 108

Question: How many legs does a honey bee have?
Thought: The question is about the honey bee, so I search for it.
Action: search honey bee
Observation: A honey bee has 5 eyes and 6 legs. It visits about 100 flowers on one trip.
Answer: 6 legs

Question: What is 100 minus 35?
Thought: The question asks to subtract 35 from 100.
Action: calculate 100 - 35
Observation: 65
Answer: 65

Question: When does Halley's Comet return?
Thought: The question is about Halley's Comet, so I search for it.
Action: search Halley's Comet
Observation: Halley's Comet returns every 76 years. It was last seen in 1986.
Answer: every 76 years

Question: What is 45 plus 18?
Thought: The question asks to add 45 and 18.
Action: calculate 45 + 18
Observation: 63
Answer: 63

"""

TOOLS = (" calculate", " search")  # with their space: that is how the tokenizer knows words inside a line
CALCULATION = r" [0-9]{1,4} [-+*/] [0-9]{1,4}\n"
QUERY = r" [A-Za-z][A-Za-z' ]{1,30}\n"
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def calculate(expression: str) -> str:
    """The value of `number operator number`; a division by zero is an observation like any other."""
    left, sign, right = expression.split()
    if sign == "/" and int(right) == 0:
        return "cannot divide by zero"
    return f"{OPERATIONS[sign](int(left), int(right)):g}"


def search(query: str) -> str:
    """The document that shares most words with the query; the first one on ties."""

    def words(text: str) -> set[str]:
        return set(re.findall(r"[a-z]+", text.lower()))

    best = max(DOCUMENTS, key=lambda title: len(words(query) & words(f"{title} {DOCUMENTS[title]}")))
    return DOCUMENTS[best]


@sgl.function
def react(s, question: str, max_steps: int = 3):
    """One question: at most `max_steps` tool calls, then an answer."""
    s += EXAMPLES + f"Question: {question}\n"
    for _ in range(max_steps):
        s += "Thought: The question" + sgl.gen("thought", max_tokens=24, stop="\n", temperature=0) + "\nAction:"
        s += sgl.select("tool", TOOLS, choices_method=sgl.greedy_token_selection)
        if s["tool"] == " calculate":
            s += sgl.gen("input", regex=CALCULATION, max_tokens=16, temperature=0)
            observation = calculate(s["input"])
        else:
            s += sgl.gen("input", regex=QUERY, max_tokens=16, temperature=0)
            observation = search(s["input"])
        s += f"Observation: {observation}\n"
        s += sgl.select("next", ["Answer:", "Thought:"], choices_method=sgl.greedy_token_selection)
        if s["next"] == "Answer:":
            break
        s += "\n"
    s += sgl.gen("answer", max_tokens=16, stop="\n", temperature=0)
    return s["answer"].strip()


@dataclass(frozen=True)
class Answer:
    """What the agent did for one question."""

    question: str
    tool: str
    tool_input: str
    answer: str


def run(backend=None, questions=QUESTIONS) -> list[Answer]:
    """Answer all questions at once; they share the worked examples."""
    states = react.run_batch([{"question": question} for question in questions], backend=backend)
    return [
        Answer(question, state["tool"].strip(), state["input"].strip(), state["answer"].strip())
        for question, state in zip(questions, states, strict=True)
    ]


def script(call) -> str:
    """Replies for a run without a model: what a careful model would say."""
    question = call.prompt.rsplit("Question: ", 1)[1].split("\n")[0]
    numbers = re.findall(r"[0-9]+", question)
    if call.name == "thought":
        return " needs a tool.\n"
    if call.name == "tool":
        return TOOLS[0] if numbers else TOOLS[1]
    if call.name == "input":
        if not numbers:
            return " " + next(title for title in DOCUMENTS if title.lower() in question.lower()) + "\n"
        return f" {numbers[0]} {'*' if 'times' in question else '-'} {numbers[1]}\n"
    if call.name == "next":
        return "Answer:"
    observation = call.prompt.rsplit("Observation: ", 1)[1]
    return " " + re.findall(r"[0-9]+", observation)[0] + "\n"


def main(argv: list[str] | None = None) -> int:
    """Print the answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    for result in run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend):
        print(f"{result.question}\n  {result.tool} {result.tool_input}\n  answer: {result.answer}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
