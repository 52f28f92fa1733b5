"""What travels between programs and the adapters of hosted APIs: one request, its answer, the adapter itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from sglang_lite.lang.backends.hosted.abilities import Abilities
from sglang_lite.lang.backends.hosted.forms import Form
from sglang_lite.request_tree import LogprobParams, SamplingParams

Message: TypeAlias = dict[str, Any]
"""A turn as OpenAI writes it: `role` and `content`."""

TokenRow: TypeAlias = list[tuple[float | None, int, str]]
"""Log-probability, token id (-1: the API names none) and text of each token."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model.

    `tool_choice`: `auto`, `required`, `none`, or the name of the tool that must be called.
    Either `prompt` (a text to go on from) or `messages` is set. `continues`: the last message is the beginning of the
    answer. `stop`: what the API shall stop at. `form`: the answer is JSON of this form.
    """

    params: SamplingParams
    prompt: str | None = None
    messages: tuple[Message, ...] = ()
    continues: bool = False
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    n: int = 1
    seed: int | None = None
    form: Form | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str = "none"
    logprob: LogprobParams | None = None
    on_text: Callable[[str], None] | None = None
    """Takes the first answer's pieces as they come; None: it is wanted whole."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Tools that a model called, in OpenAI's form, and what it said beside that."""

    calls: tuple[Mapping[str, Any], ...]
    spoken: str = ""

    def as_text(self) -> str:
        """As a model without an API of its own writes it: one `<tool_call>` block for each."""
        blocks = [
            "<tool_call>\n"
            + json.dumps(
                {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"] or "{}")},
                ensure_ascii=False,
            )
            + "\n</tool_call>"
            for call in self.calls
        ]
        return "\n".join([*([self.spoken] if self.spoken else []), *blocks])


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered: `n` texts, why the first one ended, and `meta_info` as far as the API tells it.

    `calls`: where it called tools; its text then shows them.
    """

    texts: tuple[str, ...]
    finish_reason: str = "stop"
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    calls: Calls | None = None


class Adapter(Protocol):
    """One hosted API. Its coroutines run on the loop that programs run on, and raise what the client raises."""

    @property
    def abilities(self) -> Abilities:
        """What it can do."""
        ...

    async def generate(self, request: ModelRequest) -> ModelReply:
        """One call, streamed where `on_text` is given."""
        ...

    async def score(self, prompt: str, choices: tuple[str, ...]) -> tuple[list[TokenRow], dict[str, Any]]:
        """The tokens of each choice behind the prompt, and what was spent. Only called where abilities say `scores`."""
        ...

    async def count(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the messages. Only called where abilities say `counts`."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@runtime_checkable
class TextScorer(Protocol):
    """An adapter that scores tokens alone and counts those of texts. Called where abilities say `scores_alone`."""

    async def score_alone(self, rows: Sequence[TokenRow]) -> list[TokenRow]:
        """The same tokens, without what stood before them."""
        ...

    async def count_text(self, text: str) -> int:
        """Tokens of a text."""
        ...
