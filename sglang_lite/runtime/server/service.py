"""What the routes share: the engine, its texts, the settings, whether the server is ready; it knows no route."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sglang_lite.chat_formats.recognise import ChatFormat
from sglang_lite.runtime.server.body import BodyReader
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.engine_port import EnginePort
from sglang_lite.runtime.server.errors import HttpError
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.tokenizer import Tokenizer

_LONG_TEXT = 16_384
"""Characters from which a text is tokenised beside the event loop."""


@dataclass
class Service:
    """One server's parts. `phase` is written by the lifecycle only."""

    engine: EnginePort
    config: ServerConfig
    model_name: str
    model_path: str
    context_length: int
    chat: ChatTemplate
    bodies: BodyReader
    phase: Literal["ready", "draining"] = "ready"
    stands_s: Callable[[], float] = lambda: 0.0
    """Seconds for which the scheduler has had work and done no step."""
    counters: dict[str, int] = field(default_factory=lambda: {"prompt_tokens": 0, "generation_tokens": 0})

    @staticmethod
    def of(engine: EnginePort, config: ServerConfig, stands_s: Callable[[], float] = lambda: 0.0) -> Service:
        """Ask the engine what it runs."""
        info = engine.get_server_info()
        tokenizer = engine.tokenizer
        path = str(info["model_path"])
        name = config.served_model_name or Path(path).stem or "default"
        chat = ChatTemplate(tokenizer.chat_template, tokenizer.template_variables)
        if (form := info.get("chat_format")) is not None:
            chat.format = ChatFormat.from_json(form)
        return Service(
            engine, config, name, path, int(info["context_length"]), chat, BodyReader(config), stands_s=stands_s
        )

    @property
    def tokenizer(self) -> Tokenizer:
        """The engine's tokenizer."""
        return self.engine.tokenizer

    async def encode(self, text: str, *, add_bos: bool = True) -> list[int]:
        """Ids of a prompt: special tokens in it are parsed, the begin token comes as the tokenizer's own default says."""
        tokenizer = self.tokenizer

        def work() -> list[int]:
            ids = tokenizer.encode(text, parse_special=True)
            return with_bos(tokenizer, ids) if add_bos else ids

        return await asyncio.to_thread(work) if len(text) > _LONG_TEXT else work()

    def check_batch(self, count: int) -> None:
        """Refuse a request of too many parts.

        Raises:
            HttpError: names the limit.
        """
        if count > self.config.max_batch:
            raise HttpError(
                400, f"{count} prompts and samples in one request, at most {self.config.max_batch}; send fewer"
            )

    def count(self, usage: dict[str, int]) -> None:
        """Add a finished request to the counters of `/metrics`."""
        self.counters["prompt_tokens"] += usage.get("prompt_tokens", 0)
        self.counters["generation_tokens"] += usage.get("completion_tokens", 0)


def with_bos(tokenizer: Tokenizer, ids: Sequence[int], *, from_template: bool = False) -> list[int]:
    """`ids` with the begin token in front where it belongs there."""
    if tokenizer.needs_bos(ids, from_template=from_template):
        assert tokenizer.bos_id is not None, "a tokenizer that adds a begin token has one"
        return [tokenizer.bos_id, *ids]
    return list(ids)


def usage_of(replies: Sequence[dict[str, Any]], samples: int = 1) -> dict[str, Any]:
    """OpenAI's `usage` of the replies of one request; a prompt with `samples` answers is counted once."""
    metas = [reply["meta_info"] for reply in replies]
    prompt = sum(meta["prompt_tokens"] for meta in metas[::samples])
    completion = sum(meta["completion_tokens"] for meta in metas)
    cached = sum(meta.get("cached_tokens", 0) for meta in metas[::samples])
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def facts_of(usage: dict[str, Any], reasons: Sequence[str | None]) -> dict[str, Any]:
    """What the log says of a finished request."""
    return {
        "prompt_tokens": usage["prompt_tokens"],
        "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "finish": ",".join(sorted({str(reason) for reason in reasons})),
    }
