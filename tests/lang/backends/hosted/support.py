"""A hosted API in memory: its answers come from a function of the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sglang_lite.lang.backends.hosted.abilities import Abilities
from sglang_lite.lang.backends.hosted.backend import HostedBackend
from sglang_lite.lang.backends.hosted.messages import Message, ModelReply, ModelRequest, TokenRow
from sglang_lite.lang.backends.hosted.retry import RetryPolicy

Answer = Callable[[ModelRequest], Any]
"""Gives a text, a `ModelReply`, or an exception; or a coroutine of one."""

CHAT = Abilities("Fake", params=frozenset({"top_k"}), counts=True)
TEXT = Abilities("FakeText", chat=False, completion=True, forms=False, scores=True)


async def no_sleep(seconds: float) -> None:
    return None


class FakeAdapter:
    def __init__(self, answer: Answer, abilities: Abilities) -> None:
        self.abilities = abilities
        self.requests: list[ModelRequest] = []
        self.num_closes = 0
        self._answer = answer

    async def generate(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        found = self._answer(request)
        if asyncio.iscoroutine(found):
            found = await found
        if isinstance(found, Exception):
            raise found
        if isinstance(found, str):
            meta = {"prompt_tokens": 10, "completion_tokens": len(found.split())}
            found = ModelReply((found,) * request.n, "stop", meta)
        if request.on_text is not None:
            for letter in found.texts[0]:
                request.on_text(letter)
        return found

    async def score(self, prompt: str, choices: tuple[str, ...]) -> tuple[list[TokenRow], dict[str, Any]]:
        rows: list[TokenRow] = [[(-float(len(choice)), -1, choice)] for choice in choices]
        return rows, {"prompt_tokens": 3, "completion_tokens": 0}

    async def count(self, messages: tuple[Message, ...]) -> int:
        return sum(len(str(message["content"]).split()) for message in messages)

    async def close(self) -> None:
        self.num_closes += 1


def fake(answer: Answer, abilities: Abilities = CHAT, **policy: Any) -> tuple[HostedBackend, FakeAdapter]:
    """A backend over a fake API, and the API."""
    adapter = FakeAdapter(answer, abilities)
    backend = HostedBackend(
        adapter, template=None, policy=RetryPolicy(**{"sleep": no_sleep, **policy}), secrets=("sk-topsecret",)
    )
    return backend, adapter


class ApiError(Exception):
    """An error as the clients raise it."""

    def __init__(self, status: int, message: str = "no", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status_code = status
        self.response = type("Response", (), {"headers": headers or {}})()
