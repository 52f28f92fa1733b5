"""`langchain-openai`: a chat model with structured output (`pip install langchain-openai`)."""

from __future__ import annotations

from typing import Any, Literal

from langchain_openai import ChatOpenAI  # pyright: ignore[reportMissingImports]
from pydantic import BaseModel

from examples.clients.address import server_url


class City(BaseModel):
    """The answer."""

    city: Literal["Rome", "Oslo"]


def run(url: str) -> Any:
    model = ChatOpenAI(model="default", base_url=f"{url}/v1", api_key="none", max_tokens=60)
    return model.with_structured_output(City, method="json_schema").invoke("Which city is in Italy, Rome or Oslo?")


if __name__ == "__main__":
    print(run(server_url()))
