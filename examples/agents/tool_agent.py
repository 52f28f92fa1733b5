"""An agent with tools: the model calls Python functions, reads what they gave, and answers.

Shows `tool_loop` over `gen(tools=[...])`: the signature and the docstring of a function are all that the model is told, a
grammar holds each call to them, calls of one turn run side by side, and an error of a tool goes back to the model.
`tool_choice="required"` makes a small model look before it speaks; leave it out for a large one.

    python examples/agents/tool_agent.py                      # on the embedded model
    python examples/agents/tool_agent.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Literal

import sglang_lite as sgl

Dish = Literal["soup", "pasta", "cake"]
PRICES = {"soup": 6, "pasta": 11, "cake": 4}
LEFT = {"soup": 3, "pasta": 0, "cake": 9}

ORDERS = (
    "One soup, please.",
    "Two pieces of cake for me.",
    "I would like the pasta.",
)


def order(dish: Dish, count: Literal[1, 2, 3]) -> dict[str, int]:
    """Order a dish in the kitchen; returns what it costs.

    Args:
        dish: what the guest wants.
        count: how many of it.
    """
    if LEFT[dish] < count:
        raise ValueError(f"only {LEFT[dish]} {dish} left")  # the model reads this, and may do something else
    return {"total": PRICES[dish] * count}


@sgl.function
def waiter(s, wish: str):
    """One guest: look, order, answer."""
    s += sgl.system("You are a waiter. Order what the guest wants, then say what it costs.")
    s += sgl.user(sgl.literal(wish))
    sgl.tool_loop(s, [order], name="answer", max_steps=2, tool_choice="required", temperature=0, max_tokens=60)


@dataclass(frozen=True)
class Served:
    """What became of one wish: the calls as `(dish, count)`, what the tool gave, and the answer."""

    wish: str
    calls: tuple[tuple[str, int], ...]
    results: tuple[dict[str, str | int], ...]
    answer: str


def run(backend=None, orders=ORDERS) -> list[Served]:
    """Serve all guests at once; they share the instructions and the description of the tools."""
    served = []
    for wish, state in zip(orders, waiter.run_batch([{"wish": w} for w in orders], backend=backend), strict=True):
        messages = state.messages()  # the whole chat, in OpenAI's form
        calls = [call["function"] for message in messages for call in message.get("tool_calls", ())]
        arguments = [json.loads(call["arguments"]) for call in calls]
        results = tuple(json.loads(message["content"]) for message in messages if message["role"] == "tool")
        served.append(Served(wish, tuple((a["dish"], a["count"]) for a in arguments), results, state["answer"].text))
    return served


def script(call) -> str:
    """Replies for a run without a model: order what the guest names, then tell what came of it."""
    wish = call.prompt.split("USER:", 1)[1].split("\n")[0]
    if "TOOL:" in call.prompt:
        result = json.loads(call.prompt.rsplit("TOOL:", 1)[1].split("\n")[0])
        return f"That is {result['total']} euros." if "total" in result else "I am sorry, there is none left."
    dish = next(dish for dish in PRICES if dish in wish)
    arguments = json.dumps({"dish": dish, "count": 2 if "Two" in wish else 1})
    return f'<tool_call>\n{{"name": "order", "arguments": {arguments}}}\n</tool_call>'


def main(argv: list[str] | None = None) -> int:
    """Print what became of each wish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    for served in run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend):
        print(f"{served.wish}\n  {served.calls} -> {served.results}\n  {served.answer}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
