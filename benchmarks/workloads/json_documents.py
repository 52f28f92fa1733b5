"""W7: documents under a JSON Schema, several at once."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from benchmarks.texts import passage
from benchmarks.workload import Q4_0, Q4_1, CompletionServer, Measured, PeerError, Request, Workload

_TEXT = {"type": "string", "maxLength": 24}
SCHEMA: dict[str, Any] = {
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
        "summary": {"type": "string", "maxLength": 64},
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
    limit_s: ClassVar[float] = 70.0
    is_language: ClassVar[bool] = True
    goals: ClassVar[Mapping[str, tuple[float, float]]] = {Q4_1: (1.5, 4.0), Q4_0: (1.5, 4.0)}

    documents: int = 8
    out: int = 320
    fields: tuple[str, ...] = tuple(SCHEMA["required"])

    def small(self) -> Self:
        """Half of the documents: settings are told apart only with several."""
        return replace(self, documents=4)

    def tiny(self) -> Self:
        """One document of two fields."""
        return replace(self, documents=1, fields=("category", "is_confidential"))

    @property
    def schema(self) -> str:
        """JSON Schema of the fields."""
        properties = {name: SCHEMA["properties"][name] for name in self.fields}
        return json.dumps(SCHEMA | {"properties": properties, "required": list(self.fields)})

    def on_engine(self, engine: Any, seed: int) -> Measured:
        """One call; the schema is compiled in the warm-up."""
        engine.flush_cache()
        params = {"max_new_tokens": self.out, "temperature": 0, "json_schema": self.schema}
        start = time.perf_counter()
        replies = engine.generate(self._prompts(seed), params)
        seconds = time.perf_counter() - start
        texts = [reply["text"] for reply in replies]
        return self._measured(texts, sum(reply["meta_info"]["completion_tokens"] for reply in replies), seconds)

    def on_server(self, server: CompletionServer, seed: int) -> Measured:
        """All requests at once."""
        requests = [Request(prompt, self.out, schema=self.schema, ignore_eos=False) for prompt in self._prompts(seed)]
        start = time.perf_counter()
        done = server.complete_all(requests)
        seconds = time.perf_counter() - start
        return self._measured([one.text for one in done], sum(one.tokens for one in done), seconds)

    def _prompts(self, seed: int) -> list[str]:
        return [
            f"Notice {seed}{number:02}. {passage((self.code, seed, number), 4)}\nThe notice as JSON:\n"
            for number in range(self.documents)
        ]

    def _measured(self, texts: list[str], tokens: int, seconds: float) -> Measured:
        whole = sum(map(self._is_whole, texts))
        if not whole:
            raise PeerError(f"none of {len(texts)} documents is whole; the first one is {texts[0]!r:.200}")
        details = {"documents": len(texts), "tokens a document": tokens / len(texts), "tok/s": tokens / seconds}
        return Measured(whole, seconds, details)

    def _is_whole(self, text: str) -> bool:
        try:
            return set(json.loads(text)) == set(self.fields)
        except ValueError:
            return False
