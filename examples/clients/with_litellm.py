"""`litellm`: the server as a model of its kind `hosted_vllm` or `openai` (`pip install litellm`)."""

from __future__ import annotations

from typing import Any

import litellm  # pyright: ignore[reportMissingImports]

from examples.clients.address import server_url
from examples.clients.with_openai import ASKED, CITY


def run(url: str) -> Any:
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
    done = litellm.completion(
        model="openai/default",
        api_base=f"{url}/v1",
        api_key="none",
        messages=ASKED,
        response_format=form,
        max_tokens=40,
    )
    return done.choices[0].message.content


if __name__ == "__main__":
    print(run(server_url()))
