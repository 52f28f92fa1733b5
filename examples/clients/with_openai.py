"""The official `openai` client: an answer by a schema, and a tool that must be called."""

from __future__ import annotations

from typing import Any

import openai

from examples.clients.address import server_url

CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
ASKED: list[Any] = [{"role": "user", "content": "Which city is in Italy, Rome or Oslo?"}]


def run(url: str) -> tuple[str, str]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        form: Any = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
        done = client.chat.completions.create(model="default", messages=ASKED, response_format=form, max_tokens=40)
        tool: Any = {"type": "function", "function": {"name": "choose", "parameters": CITY}}
        called = client.chat.completions.create(
            model="default",
            messages=ASKED,
            tools=[tool],
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=60,
        )
    call = (called.choices[0].message.tool_calls or [])[0]
    assert call.type == "function"
    return done.choices[0].message.content or "", call.function.arguments


if __name__ == "__main__":
    print(run(server_url()))
