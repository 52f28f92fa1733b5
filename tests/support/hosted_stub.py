"""A server that speaks OpenAI's chat completions and completions and Anthropic's messages, and says what the test lays in its mouth."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Failure:
    """An answer that is an error."""

    status: int
    message: str = "try later"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class CallsTools:
    """An answer that calls tools: (name, arguments) pairs."""

    calls: list[tuple[str, dict[str, Any]]]
    text: str = ""


@dataclass
class Cut:
    """An answer that the limit of tokens cut."""

    text: str


Reply = Any
"""A text (the earliest stop cuts it), `Failure`, `CallsTools`, `Cut`, or a function of the request's body that gives one."""


@dataclass
class Stub:
    """`replies` are used up in order; the last one stays. `requests`: (path, headers, body) of each paid call."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    owned_by: str = "somebody"
    gate: threading.Event | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.requests]

    def take(self, body: dict[str, Any]) -> Reply:
        with self.lock:
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply(body) if callable(reply) else reply


def _cut(text: str, stops: Any) -> str:
    found = [text.find(stop) for stop in ([stops] if isinstance(stops, str) else stops or []) if stop in text]
    return text[: min(found)] if found else text


def _tokens(text: str) -> int:
    return len(text.split())


class _Handler(BaseHTTPRequestHandler):
    stub: Stub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        return None

    def do_GET(self) -> None:
        card = {"id": "m", "object": "model", "created": 0, "owned_by": self.stub.owned_by}
        self._json(200, {"object": "list", "data": [card]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.stub.lock:
            self.stub.requests.append((self.path, {name.lower(): text for name, text in self.headers.items()}, body))
        if self.stub.gate is not None:
            self.stub.gate.wait(20)
        routes: dict[str, Callable[[dict[str, Any]], None]] = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completions,
            "/v1/messages": self._messages,
            "/v1/messages/count_tokens": self._count,
        }
        routes[self.path.partition("?")[0]](body)

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def _events(self, events: list[tuple[str | None, Any]], end: str | None) -> None:
        text = "".join(
            (f"event: {name}\n" if name else "") + f"data: {json.dumps(value)}\n\n" for name, value in events
        )
        data = (text + (end or "")).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _reply(self, body: dict[str, Any]) -> Reply:
        reply = self.stub.take(body)
        if isinstance(reply, Failure):
            self._json(reply.status, {"error": {"message": reply.message, "type": "e"}, "type": "error"}, reply.headers)
            return None
        return reply

    def _chat(self, body: dict[str, Any]) -> None:
        replies = [self._reply(body) for _ in range(body.get("n", 1))]
        if any(reply is None for reply in replies):
            return
        prompt = sum(_tokens(str(m["content"])) for m in body["messages"])
        choices: list[dict[str, Any]] = []
        for index, reply in enumerate(replies):
            text, calls, reason = self._parts(reply, body.get("stop"))
            message: dict[str, Any] = {"role": "assistant", "content": text}
            if calls:
                message["tool_calls"] = [
                    {"id": f"c{i}", "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
                    for i, (n, a) in enumerate(calls)
                ]
            logprobs = None
            if body.get("logprobs"):
                entry = {"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []}
                logprobs = {"content": [entry], "refusal": None}
            choices.append({"index": index, "message": message, "finish_reason": reason, "logprobs": logprobs})
        done = sum(_tokens(choice["message"]["content"] or "") for choice in choices)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": done,
            "total_tokens": prompt + done,
            "prompt_tokens_details": {"cached_tokens": 1},
        }
        base = {"id": "chat-1", "created": 0, "model": body["model"]}
        if not body.get("stream"):
            self._json(200, {**base, "object": "chat.completion", "choices": choices, "usage": usage})
            return
        events: list[tuple[str | None, Any]] = []

        def chunk(index: int, delta: dict[str, Any], reason: str | None = None) -> None:
            choice = {"index": index, "delta": delta, "finish_reason": reason}
            events.append((None, {**base, "object": "chat.completion.chunk", "choices": [choice]}))

        for choice in choices:
            for letter in choice["message"]["content"] or "":
                chunk(choice["index"], {"content": letter})
            for i, call in enumerate(choice["message"].get("tool_calls") or []):
                begin = {"index": i, **call, "function": {**call["function"], "arguments": ""}}
                chunk(choice["index"], {"tool_calls": [begin]})
                rest = {"index": i, "function": {"arguments": call["function"]["arguments"]}}
                chunk(choice["index"], {"tool_calls": [rest]})
            chunk(choice["index"], {}, choice["finish_reason"])
        events.append((None, {**base, "object": "chat.completion.chunk", "choices": [], "usage": usage}))
        self._events(events, "data: [DONE]\n\n")

    def _parts(self, reply: Reply, stops: Any) -> tuple[str, list[tuple[str, dict[str, Any]]], str]:
        if isinstance(reply, Cut):
            return reply.text, [], "length"
        if isinstance(reply, CallsTools):
            return reply.text, reply.calls, "tool_calls"
        return _cut(reply, stops), [], "stop"

    def _completions(self, body: dict[str, Any]) -> None:
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        choices: list[dict[str, Any]] = []
        for index, prompt in enumerate(prompts):
            if body.get("echo"):
                choices.append(
                    {"index": index, "text": prompt, "finish_reason": "length", "logprobs": self._scores(prompt)}
                )
                continue
            for _ in range(body.get("n", 1)):
                reply = self._reply(body)
                if reply is None:
                    return
                text, _, reason = self._parts(reply, body.get("stop"))
                choices.append({"index": len(choices), "text": text, "finish_reason": reason, "logprobs": None})
        used, done = sum(map(_tokens, prompts)), sum(_tokens(c["text"]) for c in choices)
        usage = {"prompt_tokens": used, "completion_tokens": done, "total_tokens": used + done}
        base = {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": body["model"]}
        if not body.get("stream"):
            self._json(200, {**base, "choices": choices, "usage": usage})
            return
        events: list[tuple[str | None, Any]] = [
            (None, {**base, "choices": [{"index": 0, "text": letter, "finish_reason": None, "logprobs": None}]})
            for letter in choices[0]["text"]
        ]
        events.append(
            (
                None,
                {
                    **base,
                    "choices": [
                        {"index": 0, "text": "", "finish_reason": choices[0]["finish_reason"], "logprobs": None}
                    ],
                },
            )
        )
        events.append((None, {**base, "choices": [], "usage": usage}))
        self._events(events, "data: [DONE]\n\n")

    def _scores(self, prompt: str) -> dict[str, Any]:
        """One token a letter; the rarer in the reply, the worse."""
        liked = str(self.stub.take({}))
        return {
            "tokens": list(prompt),
            "token_logprobs": [None] + [-0.1 if letter in liked else -3.0 for letter in prompt[1:]],
            "text_offset": list(range(len(prompt))),
            "top_logprobs": None,
        }

    def _messages(self, body: dict[str, Any]) -> None:
        reply = self._reply(body)
        if reply is None:
            return
        content: list[dict[str, Any]] = []
        reason = "end_turn"
        choice = body.get("tool_choice")
        if choice and choice.get("name") == "answer":
            content.append({"type": "tool_use", "id": "t1", "name": choice["name"], "input": json.loads(reply)})
            reason = "tool_use"
        elif isinstance(reply, CallsTools):
            content += [{"type": "text", "text": reply.text}] if reply.text else []
            content += [
                {"type": "tool_use", "id": f"t{i}", "name": n, "input": a} for i, (n, a) in enumerate(reply.calls)
            ]
            reason = "tool_use"
        elif isinstance(reply, Cut):
            content.append({"type": "text", "text": reply.text})
            reason = "max_tokens"
        else:
            content.append({"type": "text", "text": _cut(reply, body.get("stop_sequences"))})
        usage = {
            "input_tokens": 5,
            "output_tokens": sum(_tokens(c.get("text", "")) for c in content),
            "cache_read_input_tokens": 2,
        }
        whole = {
            "id": "msg-1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "stop_sequence": None,
        }
        if not body.get("stream"):
            self._json(200, {**whole, "content": content, "stop_reason": reason, "usage": usage})
            return
        events: list[tuple[str | None, Any]] = []

        def event(name: str, **fields: Any) -> None:
            events.append((name, {"type": name, **fields}))

        event(
            "message_start",
            message={**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 0}},
        )
        for index, block in enumerate(content):
            if block["type"] == "text":
                event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                for letter in block["text"]:
                    event("content_block_delta", index=index, delta={"type": "text_delta", "text": letter})
            else:
                event("content_block_start", index=index, content_block={**block, "input": {}})
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
                event("content_block_delta", index=index, delta=delta)
            event("content_block_stop", index=index)
        event(
            "message_delta",
            delta={"stop_reason": reason, "stop_sequence": None},
            usage={"output_tokens": usage["output_tokens"]},
        )
        event("message_stop")
        self._events(events, None)

    def _count(self, body: dict[str, Any]) -> None:
        self._json(200, {"input_tokens": sum(_tokens(str(m["content"])) for m in body["messages"])})


@contextmanager
def hosted_stub(*replies: Reply, owned_by: str = "somebody") -> Iterator[Stub]:
    """Serve until the end of the block."""
    stub = Stub(replies=list(replies), owned_by=owned_by)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"stub": stub}))
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)
