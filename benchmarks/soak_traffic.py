"""What clients do to a server in a soak: good requests, programs, and everything that should not be done."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

import sglang_lite as sgl
from sglang_lite.errors import SglangLiteError

TOPICS = ("rivers", "bread", "stars", "iron", "birds", "clocks", "salt", "maps")
_SCHEMA = json.dumps(
    {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["n"]}
)
_WORDS = ("red", "stone", "walks", "under", "seven", "winter", "paper", "of", "light", "never", "again", "north")
_PASSING = (502, 503, 504)
"""Statuses of a server that is full or starts again."""


@sgl.function
def notes(s: Any, topic: str) -> None:
    """A program with a fork, a select and a value that is read in between."""
    s += f"Notes about {topic}: " + sgl.gen("a", max_tokens=8, temperature=0)
    forks = s.fork(2)
    for number, fork in enumerate(forks):
        fork += f"\n{number}. {s['a']}" + sgl.gen("b", max_tokens=6, temperature=0)
    s += "\nGood? " + sgl.select("pick", ["yes", "no"])
    forks.join()


def prompts() -> list[dict[str, Any]]:
    """Requests whose answers are compared: greedy, some held to a schema."""
    free = {"temperature": 0, "max_new_tokens": 12}
    bodies = [{"text": f"A short text about {topic}:", "sampling_params": free} for topic in TOPICS]
    held = {**free, "json_schema": _SCHEMA}
    return bodies + [{"text": f"The number of {topic} as JSON: ", "sampling_params": held} for topic in TOPICS[:3]]


class Traffic:
    """Clients at random on one server, until told to end. `wrong`: what must not happen, in words."""

    def __init__(self, url: str, key_of: dict[str, str], programs: dict[str, str], seed: int) -> None:
        """`key_of`: the right answer of each prompt, `programs`: of each topic; both by what is asked."""
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.is_over = False
        self._url = url
        self._parts = urlsplit(url)
        self._answers = key_of
        self._programs = programs
        self._draw = random.Random(seed)
        self._http = httpx.AsyncClient(base_url=url, timeout=300, trust_env=False)
        self._backend = sgl.RuntimeEndpoint(url, reconnect_s=300)

    async def run(self, clients: int) -> None:
        """Until `is_over`."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self._plain, self._plain, self._program, self._stream_and_leave, self._abort, self._malformed, self._huge,
            self._slow_reader, self._forgotten_program, self._half_request, self._fresh_text, self._chat,
        ]  # fmt: skip

        async def client() -> None:
            while not self.is_over:
                kind = self._draw.choice(kinds)
                name = kind.__name__.strip("_")
                try:
                    await kind()
                    self.counts[name] += 1
                except (httpx.HTTPError, OSError, asyncio.IncompleteReadError) as error:
                    self.counts[f"{name}: {type(error).__name__}"] += 1

        await asyncio.gather(*(client() for _ in range(clients)))
        await self._http.aclose()
        self._backend.shutdown()

    async def _plain(self) -> None:
        body = self._draw.choice(prompts())
        reply = await self._http.post("/generate", json=body)
        if reply.status_code in _PASSING:
            self.counts["turned away"] += 1
            await asyncio.sleep(0.2)
        elif reply.status_code != 200:
            self.wrong.append(f"/generate answered {reply.status_code}: {reply.text[:200]}")
        elif reply.json()["text"] != self._answers[body["text"]]:
            self.wrong.append(
                f"{body['text']!r} got {reply.json()['text']!r}, expected {self._answers[body['text']]!r}"
            )

    async def _fresh_text(self) -> None:
        """A prompt that nobody has sent before: it fills the prefix cache, which has to evict."""
        text = " ".join(self._draw.choice(_WORDS) for _ in range(80))
        reply = await self._http.post("/generate", json={"text": text, "sampling_params": {"max_new_tokens": 2}})
        if reply.status_code not in (200, *_PASSING):
            self.wrong.append(f"a fresh text got {reply.status_code}: {reply.text[:200]}")

    async def _chat(self) -> None:
        """A chat by OpenAI's API, streamed and read to its end."""
        messages = [{"role": "user", "content": f"Say a word about {self._draw.choice(TOPICS)}."}]
        body = {"messages": messages, "max_tokens": 8, "stream": True}
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as reply:
            lines = [line async for line in reply.aiter_lines() if line.startswith("data: ")]
        if reply.status_code not in (200, *_PASSING):
            self.wrong.append(f"a chat got {reply.status_code}")
        elif reply.status_code == 200 and lines[-1] != "data: [DONE]" and '"error"' not in lines[-1]:
            self.wrong.append(f"a chat's stream ended with {lines[-1][:200]}")

    async def _program(self) -> None:
        topic = self._draw.choice(TOPICS)
        try:
            state = await asyncio.to_thread(lambda: notes.run(topic, backend=self._backend))
        except SglangLiteError as error:
            self.wrong.append(f"the program about {topic}: {type(error).__name__}: {error}")
            return
        if state.text() != self._programs[topic]:
            self.wrong.append(f"the program about {topic} got {state.text()!r}, expected {self._programs[topic]!r}")

    async def _stream_and_leave(self) -> None:
        body = {"text": "Count: 1, 2,", "sampling_params": {"max_new_tokens": 200, "ignore_eos": True}, "stream": True}
        async with self._http.stream("POST", "/generate", json=body) as reply:
            num_left = self._draw.randint(0, 4)
            async for _ in reply.aiter_lines():
                if not num_left:
                    return
                num_left -= 1

    async def _abort(self) -> None:
        rid = f"soak-{secrets.token_hex(6)}"
        body = {"text": "On and on", "sampling_params": {"max_new_tokens": 200, "ignore_eos": True}, "rid": rid}
        asked = asyncio.create_task(self._http.post("/generate", json=body))
        await asyncio.sleep(self._draw.random() * 0.3)
        with suppress(httpx.HTTPError):
            await self._http.post("/abort_request", json={"rid": rid})
        await asked

    async def _malformed(self) -> None:
        path = self._draw.choice(["/generate", "/v1/chat/completions", "/v1/completions", "/v1/programs"])
        bodies: list[bytes] = [
            b"{",
            b"[]",
            b"\xff\xfe",
            b"null",
            b'{"text": 5}',
            b'{"messages": "x", "prompt": {}}',
            b"[" * 5000,
        ]
        bodies += [
            b'{"text": "x", "sampling_params": {"temperature": "hot"}}',
            b'{"ops": [{"op": "gen"}]}',
            b'{"ops": 7}',
        ]
        content = self._draw.choice(bodies)
        reply = await self._http.post(path, content=content, headers={"Content-Type": "application/json"})
        if not (
            400 <= reply.status_code < 500
            or reply.status_code in _PASSING
            or (path, content) == ("/v1/programs", b"{}")
        ):
            self.wrong.append(f"{path} answered {reply.status_code} to {content[:60]!r}")

    async def _huge(self) -> None:
        """More than a body may have, in one piece; the server need not read it all."""
        with suppress(httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            reply = await self._http.post(
                "/generate",
                content=b'{"text": "' + b"x" * (9 << 20) + b'"}',
                headers={"Content-Type": "application/json"},
            )
            if reply.status_code not in (413, *_PASSING):
                self.wrong.append(f"a body of 9 MiB got {reply.status_code}")

    async def _slow_reader(self) -> None:
        """A stream that is read byte by byte, and left in the middle."""
        reader, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port, limit=256)
        body = json.dumps(
            {"text": "Slowly", "stream": True, "sampling_params": {"max_new_tokens": 100, "ignore_eos": True}}
        )
        writer.write(
            f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        try:
            for _ in range(20):
                if not await reader.read(1):
                    return
                await asyncio.sleep(0.05)
        finally:
            writer.close()

    async def _forgotten_program(self) -> None:
        """Opened and never read: it ends by itself after its time to live."""
        gen = {"op": "gen", "id": 1, "branch": 0, "name": None, "params": {"max_new_tokens": 200, "ignore_eos": True}}
        ops = [{"op": "text", "id": 0, "branch": 0, "text": "Nobody reads this"}, gen]
        await self._http.post("/v1/programs", json={"ops": ops, "ttl_s": 0.5})

    async def _half_request(self) -> None:
        """A head or half a body, then the end of the connection."""
        _, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        head = b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
        writer.write(self._draw.choice([head, head + b'\r\n{"text": ', b"\x00\x01\x02\r\n\r\n"]))
        await asyncio.sleep(self._draw.random() * 0.2)
        writer.close()
