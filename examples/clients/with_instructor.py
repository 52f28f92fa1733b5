"""`instructor`: a pydantic model as the answer (`pip install instructor`)."""

from __future__ import annotations

from typing import Any, Literal

import instructor  # pyright: ignore[reportMissingImports]
import openai
from pydantic import BaseModel, ConfigDict

from examples.clients.address import server_url
from examples.clients.with_openai import ASKED


class City(BaseModel):
    """The answer."""

    model_config = ConfigDict(extra="forbid")  # else a schema allows further members, and a model may make some up
    city: Literal["Rome", "Oslo"]


def run(url: str) -> Any:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        asking = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
        return asking.chat.completions.create(model="default", messages=ASKED, response_model=City, max_tokens=40)


if __name__ == "__main__":
    print(run(server_url()))
