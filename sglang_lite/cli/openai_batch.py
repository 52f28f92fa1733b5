"""A file of OpenAI batch requests, answered one line each; what the output file has already is not asked again."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from sglang_lite.errors import RequestError
from sglang_lite.lang.progress import ProgressBar
from sglang_lite.runtime_process import Runtime

Json = dict[str, Any]

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
"""What a line's `url` may be."""

MAX_AT_A_TIME = 32
"""Requests under way; the server queues and batches them."""

_TIMEOUT_S = 3600.0


def run_batch(source: Path, out: Path, url: str | None, model_path: str | None = None) -> tuple[int, int, int]:
    """Answer the lines of `source` into `out`, which is gone on with where it exists.

    Args:
        source: lines `{"custom_id", "method": "POST", "url", "body"}`.
        out: lines `{"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}`, as they end.
        url: a server; None: one is started for the batch, with `model_path`.

    Returns:
        How many lines were answered now, how many of those with an error, and how many were there already.

    Raises:
        RequestError: a file cannot be read or written, or a line is no request; names the line.
    """
    requests = _read(source)
    done = _answered(out)
    left = [request for request in requests if request["custom_id"] not in done]
    if not left:
        return 0, 0, len(requests)
    with _server(url, model_path) as base, _appending(out) as file:
        failed = _ask_all(base, left, file, len(requests))
    return len(left), failed, len(requests) - len(left)


def local_model(backend: str) -> str | None:
    """The model that `--backend` names; None: the embedded one.

    Raises:
        RequestError: it names something else than a model or a server.
    """
    kind, _, path = backend.partition(":")
    if kind != "local":
        raise RequestError(
            f"running a batch: got --backend {backend!r}, expected local, local:PATH or a server's address"
        )
    return path or None


def _ask_all(base: str, requests: list[Json], file: TextIO, total: int) -> int:
    bar = ProgressBar(total)
    num_done, failed = total - len(requests), 0
    pool = ThreadPoolExecutor(MAX_AT_A_TIME, thread_name_prefix="batch")
    waiting: set[Future[Json]] = set()
    coming = iter(requests)
    try:
        while True:
            for request in coming:
                waiting.add(pool.submit(_ask, base, request))
                if len(waiting) >= MAX_AT_A_TIME:
                    break
            if not waiting:
                return failed
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                answer = future.result()
                failed += answer["response"] is None or answer["response"]["status_code"] != 200
                file.write(json.dumps(answer, ensure_ascii=False) + "\n")
                num_done += 1
            file.flush()
            bar.update(num_done)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        bar.close()


def _ask(base: str, request: Json) -> Json:
    custom_id, data = request["custom_id"], json.dumps(request["body"] | {"stream": False}).encode()
    asked = urllib.request.Request(base + request["url"], data, {"Content-Type": "application/json"})
    response: Json | None = None
    error: Json | None = None
    try:
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_S) as reply:
            response = _response(reply.status, reply.headers.get("X-Request-Id"), reply.read())
    except urllib.error.HTTPError as refused:
        with refused:
            response = _response(refused.code, refused.headers.get("X-Request-Id"), refused.read())
    except OSError as failure:
        error = {"code": "connection", "message": str(failure)}
    return {"id": f"batch_req_{custom_id}", "custom_id": custom_id, "response": response, "error": error}


def _response(status: int, request_id: str | None, data: bytes) -> Json:
    try:
        body: Any = json.loads(data)
    except ValueError:
        body = {"error": {"message": data.decode("utf-8", "replace")[:1000], "type": "server_error"}}
    return {"status_code": status, "request_id": request_id or "", "body": body}


def _read(source: Path) -> list[Json]:
    found: list[Json] = []
    known: set[str] = set()
    for number, request in _lines(source, is_whole=True):
        where = f"reading {source}, line {number}"
        custom_id = request.get("custom_id")
        if not isinstance(custom_id, str) or custom_id in known:
            raise RequestError(f"{where}: custom_id is {custom_id!r:.80}, expected a text that no other line has")
        if request.get("url") not in ENDPOINTS or request.get("method", "POST") != "POST":
            raise RequestError(
                f"{where}: got {request.get('method')} {request.get('url')!r:.80}, expected POST {ENDPOINTS}"
            )
        if not isinstance(request.get("body"), dict):
            raise RequestError(f"{where}: body is {request.get('body')!r:.80}, expected an object")
        known.add(custom_id)
        found.append(request)
    return found


def _answered(out: Path) -> set[str]:
    """Ids of the lines that `out` has; one that an interruption has cut, or that found no server, is asked again."""
    if not out.exists():
        return set()
    kept = [answer for _, answer in _lines(out, is_whole=False) if answer.get("response") is not None]
    text = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in kept)
    if text != out.read_text(encoding="utf-8"):
        fresh = out.with_name(out.name + ".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(out)
    return {str(answer.get("custom_id")) for answer in kept}


def _lines(path: Path, *, is_whole: bool) -> Iterator[tuple[int, Json]]:
    """The objects of a file, with their lines' numbers; not `is_whole`: lines that are none are left out."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    value = json.loads(line) if line.strip() else None
                except ValueError:
                    value = line
                if isinstance(value, dict):
                    yield number, value
                elif value is not None and is_whole:
                    raise RequestError(f"reading {path}, line {number}: got {line.strip()[:80]!r}, expected an object")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"reading {str(path)!r}: {error}") from error


@contextmanager
def _appending(out: Path) -> Iterator[TextIO]:
    try:
        file = out.open("a", encoding="utf-8")
    except OSError as error:
        raise RequestError(f"writing {str(out)!r}: {error}") from error
    with file:
        yield file


@contextmanager
def _server(url: str | None, model_path: str | None) -> Iterator[str]:
    """The address of the server: the given one, or one of its own on a free port."""
    if url is not None:
        yield url.rstrip("/").removesuffix("/v1")
        return
    sys.stderr.write("sglang-lite: loading the model\n")
    with Runtime(model_path) as runtime:
        yield runtime.url
