"""W7: documents under a JSON Schema, several at once."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from benchmarks.texts import passage
from benchmarks.workload import Q4_0, Q4_1, CompletionServer, Measured, PeerError, Request, Workload

_TEXT = {"type": "string", "maxLength": 32}
SCHEMA = {
    "type": "object",
    "properties": {
        "title": _TEXT,
        "category": {"enum": ["report", "letter", "notice", "minutes"]},
        "author": {
            "type": "object",
            "properties": {"first_name": _TEXT, "last_name": _TEXT, "role": {"enum": ["clerk", "editor", "guest"]}},
            "required": ["first_name", "last_name", "role"],
            "additionalProperties": False,
        },
        "published_in_year": {"type": "integer", "minimum": 1000, "maximum": 2999},
        "keywords": {"type": "array", "items": _TEXT, "minItems": 2, "maxItems": 3},
        "is_confidential": {"type": "boolean"},
        "summary": {"type": "string", "maxLength": 80},
    },
    "required": ["title", "category", "author", "published_in_year", "keywords", "is_confidential", "summary"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class JsonDocuments(Workload):
    """Whole documents a second; how long one is stands beside it, for each model run writes its own."""

    code: ClassVar[str] = "W7"
    title: ClassVar[str] = "JSON documents"
    unit: ClassVar[str] = "documents/s"
    slots: ClassVar[tuple[int, ...]] = (1, 4, 8)
    goals = {Q4_1: (1.5, 4.0), Q4_0: (1.5, 4.0)}

    documents: int = 8
    out: int = 240

    def small(self) -> Self:
        """Half of the documents: settings are told apart only with several."""
        return replace(self, documents=4)

    def tiny(self) -> Self:
        """One document."""
        return replace(self, documents=1)

    def on_engine(self, engine: Any, seed: int) -> Measured:
        """One call; the schema is compiled in the warm-up."""
        engine.flush_cache()
        params = {"max_new_tokens": self.out, "temperature": 0, "json_schema": json.dumps(SCHEMA)}
        start = time.perf_counter()
        replies = engine.generate(self._prompts(seed), params)
        seconds = time.perf_counter() - start
        texts = [reply["text"] for reply in replies]
        return self._measured(texts, sum(reply["meta_info"]["completion_tokens"] for reply in replies), seconds)

    def on_server(self, server: CompletionServer, seed: int) -> Measured:
        """All requests at once."""
        schema = json.dumps(SCHEMA)
        requests = [Request(prompt, self.out, schema=schema, ignore_eos=False) for prompt in self._prompts(seed)]
        start = time.perf_counter()
        done = server.complete_all(requests)
        seconds = time.perf_counter() - start
        return self._measured([one.text for one in done], sum(one.tokens for one in done), seconds)

    def _prompts(self, seed: int) -> list[str]:
        return [
            f"Entry {seed}-{number}. {passage((self.code, seed, number), 4)}\nThe entry as JSON:\n"
            for number in range(self.documents)
        ]

    @staticmethod
    def _measured(texts: list[str], tokens: int, seconds: float) -> Measured:
        whole = sum(map(_is_whole, texts))
        if not whole:
            raise PeerError(f"none of {len(texts)} documents is whole; the first one is {texts[0]!r:.200}")
        details = {"documents": len(texts), "tokens a document": tokens / len(texts), "tok/s": tokens / seconds}
        return Measured(whole, seconds, details)


def _is_whole(text: str) -> bool:
    try:
        return set(json.loads(text)) == set(SCHEMA["properties"])
    except ValueError:
        return False
