"""One dialogue to be answered: its prompt, its sampling, how its answers are read; it knows no form of reply."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request

from sglang_lite.chat_formats.thinking import ThinkingFormat
from sglang_lite.chat_formats.tools import ToolFormat
from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.server.answer_reader import AnswerReader
from sglang_lite.runtime.server.chat_prompt import chat_ids, schema_block, shows_schema, with_schema
from sglang_lite.runtime.server.errors import FieldError
from sglang_lite.runtime.server.openai_replies import Delta, Reply, answers, deltas, finish_reason, stream_of
from sglang_lite.runtime.server.openai_schemas import ChatBody, max_tokens_of
from sglang_lite.runtime.server.openai_tools import ToolSet, read_tools
from sglang_lite.runtime.server.service import Service, usage_of
from sglang_lite.runtime.server.sse import newest, unless_gone
from sglang_lite.runtime.text.tokenizer import Tokenizer

_TAIL = 24  # tokens at the end of a prompt in which its opened or closed thinking is looked for


@dataclass(frozen=True, slots=True)
class ChatRun:
    """A checked chat request, ready to run.

    Attributes:
        ids: the prompt.
        thinking: the marks by which thinking is told from the answer; None: it is not.
        tools: the form in which calls are read; None: none are.
        wanted: further arguments of the engine's `async_generate`.
    """

    service: Service
    body: ChatBody
    ids: list[int]
    params: SamplingParams
    thinking: ThinkingFormat | None
    tools: ToolFormat | None
    wanted: dict[str, Any]

    @staticmethod
    async def of(service: Service, body: ChatBody) -> ChatRun:
        """Check `body` and make its prompt.

        Raises:
            RequestError: a wrong field, named; the template refuses; the prompt is too long (at the start of the run).
        """
        body.check(service.config.max_n)
        service.check_batch(body.n)
        plan = _Plan(service, body)
        ids = await asyncio.to_thread(plan.ids)  # a template is foreign code and may take its time
        thinking, held = plan.thinking(ids)
        params = body.sampling(max_tokens_of(body), plan.constraint | held)
        wanted: dict[str, Any] = {"rid": body.rid, "cache_salt": body.cache_salt}
        if body.logprobs:
            wanted |= {"return_logprob": True, "top_logprobs_num": body.top_logprobs or 0}
        tools = service.chat.format.tool_format if plan.tools.choice != "none" else None
        return ChatRun(service, body, ids, params, thinking, tools, wanted)

    def reader(self) -> AnswerReader:
        """What reads one answer."""
        return AnswerReader(self.thinking, self.tools)

    async def replies(self, request: Request) -> list[Reply]:
        """All answers; ends with the client of `request`."""
        return await unless_gone(request, answers(self.service, [self.ids], self.params, **self.wanted))

    async def coming(self) -> AsyncGenerator[Delta, None]:
        """The answers as they grow."""
        replies = await stream_of(self.service, [self.ids], self.params, **self.wanted)
        return deltas(newest(replies), self.service.tokenizer.visible_bytes)

    def usage(self, replies: list[Reply]) -> dict[str, Any]:
        """OpenAI's `usage`, with the tokens of thinking where the model thinks."""
        usage = usage_of(replies, self.body.n)
        if self.thinking is not None:
            count = sum(_num_thinking(self.service.tokenizer, reply, self.thinking) for reply in replies)
            usage["completion_tokens_details"] = {"reasoning_tokens": count}
        return usage


def read_whole(reader: AnswerReader, reply: Reply) -> str | None:
    """Read a finished reply; returns why it ended: `stop`, `length`, `tool_calls` or `abort`."""
    reader.feed(reply["text"], is_end=True)
    return reason_of(reader, finish_reason(reply))


def reason_of(reader: AnswerReader, reason: str | None) -> str | None:
    """`tool_calls` where an answer stopped by itself with calls."""
    return "tool_calls" if reason == "stop" and reader.has_whole_calls else reason


class _Plan:
    """What a request asks of prompt and sampling, before there are ids."""

    def __init__(self, service: Service, body: ChatBody) -> None:
        self._service = service
        self._body = body
        self._chat = service.chat
        self.tools: ToolSet = read_tools(body.tools, body.tool_choice, body.parallel_tool_calls)
        self._asked = body.constraint()
        self.constraint = self._constraint()
        self._messages = body.messages_for_template()
        self._variables = dict(body.chat_template_kwargs or {})
        self._is_off = self._read_effort()

    def ids(self) -> list[int]:
        """The prompt."""
        messages, schema = self._messages, self._schema_to_show()
        shown = messages if schema is None else with_schema(messages, schema)
        try:
            return self._encoded(shown)
        except RequestError:
            first = messages[0]
            if schema is None or first["role"] != "user":
                raise
            # The template takes no system message: the form of the answer goes in front of the first turn.
            return self._encoded([{**first, "content": f"{schema_block(schema)}\n\n{first['content']}"}, *messages[1:]])

    def _encoded(self, messages: list[dict[str, Any]]) -> list[int]:
        return chat_ids(
            self._service.tokenizer,
            self._chat,
            messages,
            self._variables,
            continue_final=self._body.continue_final_message,
            tools=self.tools.shown,
        )

    def thinking(self, ids: list[int]) -> tuple[ThinkingFormat | None, dict[str, Any]]:
        """How thinking is read in answers to the prompt `ids`, and the sampling parameters that it needs."""
        form = self._chat.format.thinking
        if form is None:
            return None, {}
        tail = self._service.tokenizer.decode(ids[-_TAIL:], False).rstrip()
        if tail.endswith(form.marks[1]):
            return None, {}  # the prompt has closed it
        form = replace(form, starts_inside=form.starts_inside or tail.endswith(form.marks[0]))
        budget = 0 if self._is_off else self._body.thinking_budget
        held: dict[str, Any] = {}
        # Calls at the model's choice stand in free text, in which it may think, or not.
        is_free = self.tools.choice == "auto" and not self._asked
        if (self.constraint and not is_free) or self._body.own_constraint or budget is not None:
            held = {"thinking": form.held_marks(budget)} | ({} if budget is None else {"thinking_budget": budget})
        return form if self._body.separate_reasoning is not False else None, held

    def _constraint(self) -> dict[str, Any]:
        asked, form = self._asked, self._chat.format.tool_format
        if self.tools.choice == "none":
            return asked
        if not asked:
            return self.tools.constraint(form, None)
        if "json_schema" not in asked:
            raise FieldError(
                "reading the request: tools beside a response_format that is neither text nor JSON; give one of them",
                "response_format",
            )
        answer = {"type": "json_schema", "json_schema": json.loads(asked["json_schema"])}
        held = self.tools.constraint(form, answer if self.tools.choice == "auto" else None)
        return held | {"json_strict": held["json_strict"] and asked.get("json_strict", True)}

    def _schema_to_show(self) -> Any:
        """The schema that goes into the prompt; None: none does."""
        mode = self._service.config.schema_in_prompt
        if mode == "never" or "json_schema" not in self._asked:
            return None
        schema = json.loads(self._asked["json_schema"])
        return None if mode == "auto" and shows_schema(self._messages, schema) else schema

    def _read_effort(self) -> bool:
        """Whether the model is not to think."""
        switch, effort = self._chat.format.thinking_switch, self._body.reasoning_effort
        if effort == "none" and switch is not None:
            self._variables.setdefault(switch, False)
        elif effort is not None and re.search(r"\breasoning_effort\b", self._chat.source):
            self._variables.setdefault("reasoning_effort", effort)
        elif effort not in (None, "none") and self._chat.format.thinking is None:
            raise UnsupportedError(
                "reading the request: reasoning_effort is not supported: the model has no such setting"
            )
        if self._body.thinking_budget == 0 or effort == "none":
            return True
        return switch is not None and self._variables.get(switch) is False


def _num_thinking(tokenizer: Tokenizer, reply: Reply, form: ThinkingFormat) -> int:
    """How many output tokens are thinking, marks included."""
    text = reply["text"]
    if not form.starts_inside and not text.lstrip().startswith(form.marks[0]):
        return 0
    before, mark, _ = text.partition(form.marks[1])
    if not mark:
        return len(reply["output_ids"])
    size = len((before + mark).encode())
    for count, token_id in enumerate(reply["output_ids"]):
        if size <= 0:
            return count
        size -= len(tokenizer.visible_bytes[token_id])
    return len(reply["output_ids"])
