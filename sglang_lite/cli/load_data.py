"""Requests for a load test: bodies of OpenAI's API, made up from a seed or read from a file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from sglang_lite.errors import RequestError

Body = dict[str, Any]
"""Of `/v1/chat/completions` where it has `messages`, else of `/v1/completions`; without `model` and `stream`."""

_WORDS = [
    "river",
    "stone",
    "lamp",
    "garden",
    "winter",
    "letter",
    "market",
    "bridge",
    "signal",
    "copper",
    "harbor",
    "meadow",
    "engine",
    "window",
    "paper",
    "silver",
    "mountain",
    "thunder",
    "kettle",
    "compass",
    "orchard",
    "village",
    "candle",
    "anchor",
    "velvet",
    "tunnel",
    "feather",
    "granite",
    "lantern",
    "saddle",
]
_PREFIX_WORDS = 300
_GROUP = 8
"""Requests that share a beginning."""

_CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "people": {"type": "integer", "minimum": 0, "maximum": 99999999},
        "is_capital": {"type": "boolean"},
    },
    "required": ["name", "people", "is_capital"],
    "additionalProperties": False,
}


def _text(draw: random.Random, count: int) -> str:
    return " ".join(draw.choices(_WORDS, k=count))


def shared_prefix(num: int, max_tokens: int, draw: random.Random) -> list[Body]:
    """Completions in groups: all of a group begin with the same 300 words, then each has its own."""
    prefixes = [f"Notes: {_text(draw, _PREFIX_WORDS)}." for _ in range(-(-num // _GROUP))]
    bodies: list[Body] = [
        {"prompt": f"{prefixes[i // _GROUP]}\nQuestion {i}: {_text(draw, 12)}?\nAnswer:", "max_tokens": max_tokens}
        for i in range(num)
    ]
    draw.shuffle(bodies)
    return bodies


def chat(num: int, max_tokens: int, draw: random.Random) -> list[Body]:
    """Dialogues of one to three questions, with answers between them."""
    bodies: list[Body] = []
    for _ in range(num):
        messages = [{"role": "system", "content": "You answer in a few words."}]
        for _ in range(draw.randint(0, 2)):
            messages.append({"role": "user", "content": f"What is a {draw.choice(_WORDS)}?"})
            messages.append({"role": "assistant", "content": f"It is {_text(draw, draw.randint(4, 30))}."})
        messages.append({"role": "user", "content": f"Tell me about a {_text(draw, draw.randint(1, 20))}."})
        bodies.append({"messages": messages, "max_tokens": max_tokens})
    return bodies


def structured(num: int, max_tokens: int, draw: random.Random) -> list[Body]:
    """Questions whose answer is JSON of a schema."""
    answer = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": _CITY}}
    return [
        {
            "messages": [{"role": "user", "content": f"Describe the town of {_text(draw, 2).title()} as JSON."}],
            "max_tokens": max_tokens,
            "response_format": answer,
        }
        for _ in range(num)
    ]


DATASETS: dict[str, Callable[[int, int, random.Random], list[Body]]] = {
    "shared-prefix": shared_prefix,
    "chat": chat,
    "json": structured,
}


def load(name: str, num: int, max_tokens: int, seed: int) -> list[Body]:
    """`num` bodies of a data set, or of a file with one body a line, which is gone through again where it is short.

    Raises:
        RequestError: there is no such data set or file, or a line is no body; names the line.
    """
    if name in DATASETS:
        return DATASETS[name](num, max_tokens, random.Random(seed))
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"reading the data set {name!r}: {error}; expected one of {sorted(DATASETS)}, or a file"
        ) from error
    bodies = [_body(line, number, max_tokens) for number, line in enumerate(lines, 1) if line.strip()]
    if not bodies:
        raise RequestError(f"reading the data set {name!r}: it is empty, expected one JSON object a line")
    return [bodies[i % len(bodies)] for i in range(num)]


def _body(line: str, number: int, max_tokens: int) -> Body:
    try:
        found: Any = json.loads(line)
    except ValueError as error:
        raise RequestError(f"reading a data set, line {number}: {error}") from None
    if isinstance(found, str):
        found = {"prompt": found}
    if not isinstance(found, dict) or not ({"prompt", "messages"} & set(cast("Body", found))):
        raise RequestError(
            f"reading a data set, line {number}: got {line[:80]!r}, expected a text, or an object with 'prompt' or 'messages'"
        )
    body = cast("Body", found)
    return {
        "max_tokens": max_tokens,
        **{k: v for k, v in body.items() if k not in ("model", "stream", "stream_options")},
    }
