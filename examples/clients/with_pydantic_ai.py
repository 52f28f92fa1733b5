"""`pydantic-ai`: an agent whose output is a pydantic model (`pip install pydantic-ai-slim openai`)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput  # pyright: ignore[reportMissingImports]
from pydantic_ai.models.openai import OpenAIChatModel  # pyright: ignore[reportMissingImports]
from pydantic_ai.providers.openai import OpenAIProvider  # pyright: ignore[reportMissingImports]

from examples.clients.address import server_url


class City(BaseModel):
    """The answer."""

    city: Literal["Rome", "Oslo"]


def run(url: str) -> Any:
    model = OpenAIChatModel("default", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    agent = Agent(model, output_type=NativeOutput(City))
    return agent.run_sync("Which city is in Italy, Rome or Oslo?", model_settings={"max_tokens": 60}).output


if __name__ == "__main__":
    print(run(server_url()))
