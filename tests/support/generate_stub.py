"""A server that has SGLang's `/generate` and nothing of programs: its fields, its layouts, over an engine that talks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sglang_lite.errors import ContextLengthError, SglangLiteError
from sglang_lite.runtime.engine.engine import Engine

_FIELDS = {"text", "input_ids", "sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num"}
_FIELDS |= {"token_ids_logprob", "return_text_in_logprobs", "stream", "rid"}
_PARAMS = {
    "max_new_tokens",
    "min_new_tokens",
    "n",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
}
_PARAMS |= {"min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "ignore_eos"}
_PARAMS |= {"no_stop_trim", "skip_special_tokens", "spaces_between_special_tokens", "sampling_seed"}
_PARAMS |= {"regex", "json_schema", "ebnf", "structural_tag"}


@dataclass
class GenerateStub:
    """`requests`: the bodies of `/generate`. `failures`: statuses that the next requests get. `model_path`: what it says."""

    engine: Engine
    url: str = ""
    model_path: str = "toy/talking.gguf"
    requests: list[dict[str, Any]] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    stub: GenerateStub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        return None

    def do_GET(self) -> None:
        known = {"model_path": self.stub.model_path, "tokenizer_path": self.stub.model_path, "is_generation": True}
        if self.path in ("/get_model_info", "/get_server_info"):
            self._send(200, known)
        else:
            self._send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path == "/flush_cache":
            self._send(200, "Cache flushed.\nPlease check backend logs for more details.", kind="text/plain")
        elif self.path != "/generate":
            self._send(404, {"detail": "Not Found"})
        else:
            self.stub.requests.append(body)
            self._generate(body)

    def _generate(self, body: dict[str, Any]) -> None:
        if self.stub.failures:
            self._send(self.stub.failures.pop(0), {"error": {"message": "not now"}})
            return
        samplings = body.get("sampling_params", {})
        if unknown := (set(body) - _FIELDS) | (set(samplings) - _PARAMS):
            self._send(400, {"error": {"message": f"unexpected {sorted(unknown)}"}})
            return
        body = {("prompt" if name == "text" else name): value for name, value in body.items()}
        try:
            if body.get("stream"):
                self._stream(self.stub.engine.generate(**body))
            else:
                made: Any = self.stub.engine.generate(**body)
                self._send(200, [_shaped(one) for one in made] if isinstance(made, list) else _shaped(made))
        except ContextLengthError:
            self._send(400, {"error": {"message": "The input is longer than the model's context length (512 tokens)."}})
        except SglangLiteError as error:
            self._send(400, {"error": {"message": str(error)}})

    def _stream(self, replies: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        for reply in replies:
            self.wfile.write(f"data: {json.dumps(_shaped(reply))}\n\n".encode())
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _send(self, status: int, value: Any, kind: str = "application/json") -> None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _shaped(reply: dict[str, Any]) -> dict[str, Any]:
    """SGLang's layout: the first entry of the input's log-probabilities has none, wherever the list begins."""
    meta = dict(reply["meta_info"])
    if meta.get("input_token_logprobs"):
        (_, token, text), *rest = meta["input_token_logprobs"]
        meta["input_token_logprobs"] = [(None, token, text), *rest]
    return {**reply, "meta_info": meta}


@contextmanager
def generate_stub(engine: Engine) -> Iterator[GenerateStub]:
    """The server, until the end of the block; the engine is its owner's."""
    stub = GenerateStub(engine)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"stub": stub}))
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="generate-stub")
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
