"""`RuntimeEndpoint`: programs on a server, as the same ops over HTTP; it knows the routes, not what runs behind them."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

from sglang_lite import env
from sglang_lite.chat_formats.recognise import ChatFormat
from sglang_lite.errors import EngineStoppedError, ProgramError
from sglang_lite.lang.backends.generate_api import GenerateBackend
from sglang_lite.lang.backends.http_client import Answer, HttpClient, shared_loop
from sglang_lite.lang.backends.remote_program import RemoteProgram
from sglang_lite.lang.backends.remote_rows import RemoteRows
from sglang_lite.lang.backends.retries import Patience
from sglang_lite.lang.backends.server_answers import checked, error_of
from sglang_lite.lang.chat_templates import named_template, template_for
from sglang_lite.request_tree import EventSink, Finding, OpFailed, Program, RequestTree, TreeRow


class RuntimeEndpoint:
    """A server as a backend.

    A server of this package runs programs itself. One that has only `/generate`, as SGLang's, gets each gen and select as
    a request with the whole text so far.

    Args:
        base_url: its address, `http://host:port`.
        api_key: its key, where it asks for one. None: what `SGLANG_LITE_API_KEY` holds.
        verify: for https, a file or folder of certificates, or False for none; None: the system's.
        chat_template_name: one of SGLang's templates: programs then run as with `SGLANG_LITE_COMPAT=strict:NAME`. None:
            the model's own.
        reconnect_s: how long running programs wait for a server that has gone; then they fail. One that answers that it
            loads or is full is waited for five times as long.

    Raises:
        ExecutionError: no server answers there, or it refuses the key.
        RequestError: there is no template of that name.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        verify: str | bool | None = None,
        chat_template_name: str | None = None,
        *,
        reconnect_s: float = 60.0,
    ) -> None:
        self._patience = Patience(reconnect_s)
        self.chat_template_name = chat_template_name
        self._http = HttpClient(base_url, api_key or env.api_key(), context=_tls_context(base_url, verify))
        self.base_url = self._http.base_url
        self._programs: WeakSet[RemoteProgram] = WeakSet()
        self._rows: WeakSet[RemoteRows] = WeakSet()
        self._is_shut_down = False
        self.model_info: dict[str, Any] = self._ask_model()
        self._texts: GenerateBackend | None = None
        """What runs programs where the server has no `/v1/programs`."""
        if not self.model_info.get("programs"):
            name, path = chat_template_name, str(self.model_info.get("model_path") or "")
            template = template_for(path) if name is None else named_template(name)
            self._texts = GenerateBackend(self._http, template, reconnect_s)

    def _ask_model(self) -> dict[str, Any]:
        answer = self._request("GET", "/get_model_info", None)
        if answer.status == 404:  # newer servers of SGLang's
            answer = self._request("GET", "/model_info", None)
        return cast("dict[str, Any]", checked(answer, f"connecting to {self.base_url}"))

    def get_model_name(self) -> str:
        """The path of the server's model."""
        return str(self.model_info["model_path"])

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> Program:
        """Start a program; its events come on a thread of this module. Nothing is sent before the first ops."""
        if self._is_shut_down:
            raise EngineStoppedError(f"opening a program on {self.base_url}: the backend was shut down; make a new one")
        if self._texts is not None:
            return self._texts.open_program(sink, seed=seed)
        program = RemoteProgram(self._http, sink, secrets.randbits(63) if seed is None else seed, self._patience)
        self._programs.add(program)
        return program

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow]) -> list[Program]:
        """Start a program for each row of arguments of `tree`, all with one request (see `request_tree.RowsBackend`)."""
        if self._is_shut_down:
            raise EngineStoppedError(f"opening rows on {self.base_url}: the backend was shut down; make a new one")
        if self._texts is not None:
            return [open_row(self._texts, tree, row) for row in rows]
        seeds = [secrets.randbits(63) if row.seed is None else row.seed for row in rows]
        remote = RemoteRows(self._http, tree, rows, seeds, self._patience)
        self._rows.add(remote)
        remote.start()
        return list(remote.rows)

    def check(self, tree: RequestTree) -> list[Finding]:
        """What the server finds in a tree before it runs (see `request_tree.TreeChecker`); nothing, where it cannot look."""
        if self._texts is not None:
            return []
        answer = self._request("POST", "/v1/programs/check", tree.to_json())
        return [Finding(**found) for found in checked(answer, "checking a tree")["findings"]]

    def chat_format(self) -> ChatFormat:
        """How the server's model writes tool calls and thinking, as it said when this object was made."""
        return ChatFormat.from_json(self.model_info.get("chat_format") or {})

    def flush_cache(self) -> bool:
        """Forget the server's prefixes; False while requests run."""
        answer = self._request("POST", "/flush_cache", {})
        if answer.status == 400:
            return False
        if answer.status >= 400:
            raise error_of(answer, "flushing the cache")
        return True

    def get_server_info(self) -> dict[str, Any]:
        """The server's configuration and counters."""
        return self._json("GET", "/get_server_info")

    def generate(self, prompt: str | list[str], sampling_params: dict[str, Any] | None = None, **fields: Any) -> Any:
        """The reply of `/generate`."""
        body = {"text": prompt, "sampling_params": sampling_params or {}, **fields}
        return checked(self._request("POST", "/generate", body), "generating")

    def cache_prefix(self, text: str) -> None:
        """Compute a prefix so that programs find it."""
        self.generate(text, {"max_new_tokens": 0, "temperature": 0})

    def shutdown(self) -> None:
        """End this object's programs; the server goes on. Idempotent."""
        self._is_shut_down = True
        if self._texts is not None:
            self._texts.shutdown()
        for program in list(self._programs):
            program.fail_all(EngineStoppedError(f"the backend for {self.base_url} was shut down"))
        for rows in list(self._rows):
            rows.fail_all(EngineStoppedError(f"the backend for {self.base_url} was shut down"))
        shared_loop.call(self._http.close)

    def _json(self, method: str, path: str) -> dict[str, Any]:
        return cast("dict[str, Any]", checked(self._request(method, path, None), f"{method} {path}"))

    def _request(self, method: str, path: str, body: Any) -> Answer:
        future = shared_loop.start(self._http.request(method, path, body))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def open_row(backend: GenerateBackend, tree: RequestTree, row: TreeRow) -> Program:
    """One row as a program of its own; one whose arguments do not fit fails alone."""
    program = backend.open_program(row.sink, seed=row.seed)
    try:
        program.append(tree.bound(row.arguments))
    except ProgramError as error:
        for op in tree.ops:
            row.sink(OpFailed(op, error))
    program.close()
    return program


def _tls_context(base_url: str, verify: str | bool | None) -> ssl.SSLContext | None:
    if not base_url.startswith("https:") or verify in (None, True):
        return None
    if isinstance(verify, str):
        is_folder = Path(verify).is_dir()
        return ssl.create_default_context(cafile=None if is_folder else verify, capath=verify if is_folder else None)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
