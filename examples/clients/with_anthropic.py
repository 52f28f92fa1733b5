"""The official `anthropic` client: a tool that must be called, streamed."""

from __future__ import annotations

from typing import Any

import anthropic

from examples.clients.address import server_url
from examples.clients.with_openai import ASKED, CITY


def run(url: str) -> Any:
    with anthropic.Anthropic(base_url=url, api_key="none") as client:
        choice: Any = {"type": "any", "disable_parallel_tool_use": True}
        with client.messages.stream(
            model="default",
            max_tokens=60,
            messages=ASKED,
            tools=[{"name": "choose", "input_schema": CITY}],
            tool_choice=choice,
        ) as stream:
            block = stream.get_final_message().content[0]
    assert block.type == "tool_use"
    return block.input


if __name__ == "__main__":
    print(run(server_url()))
