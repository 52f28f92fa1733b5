"""The helpers that SGLang's examples import from `sglang.utils` and `sglang.srt.utils`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any


def read_jsonl(filename: str) -> Iterator[Any]:
    """The objects of a file with one JSON value a line; empty lines and those that begin with `#` are left out."""
    with Path(filename).open(encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                yield json.loads(line)


def dump_state_text(filename: str, states: Sequence[Any], mode: str = "w") -> None:
    """Write the text of states (or texts) to a file, each below a line with its number."""
    texts = (state if isinstance(state, str) else state.text() for state in states)
    with Path(filename).open(mode, encoding="utf-8") as file:
        file.writelines(f"==== {number} ====\n{text}\n\n" for number, text in enumerate(texts))


class HttpAnswer:
    """What came back: `status_code`, `text`, `json()`, and with `stream` the lines by iteration."""

    def __init__(self, response: Any, *, stream: bool) -> None:
        self.status_code: int = response.status
        self._response = response
        self.content = b"" if stream else response.read()

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode("utf-8")

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.content)

    def iter_lines(self) -> Iterable[bytes]:
        """The lines of a streamed body as they come."""
        return (line.rstrip(b"\r\n") for line in self._response)


def http_request(
    url: str,
    json: Any = None,
    stream: bool = False,
    api_key: str | None = None,
    verify: str | None = None,
    method: str | None = None,
) -> HttpAnswer:
    """One request: POST with a JSON body where one is given, else GET. Error statuses are answers as well."""
    _check_http(url)
    body = None if json is None else _dumps(json)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
    request = urllib.request.Request(url, body, headers, method=method or ("GET" if body is None else "POST"))
    try:
        return HttpAnswer(urllib.request.urlopen(request), stream=stream)
    except urllib.error.HTTPError as error:
        return HttpAnswer(error, stream=stream)


def _dumps(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8")


def _check_http(url: str) -> None:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"requesting {url!r}: expected an address that begins with http:// or https://")


def download_and_cache_file(url: str, filename: str | None = None) -> str:
    """Download a file once; returns its path, which is `filename` or one in the folder for temporary files."""
    path = Path(filename) if filename else Path(tempfile.gettempdir()) / url.rsplit("/", 1)[-1]
    if not path.exists():
        _check_http(url)
        with urllib.request.urlopen(url) as response:
            path.write_bytes(response.read())
    return str(path)


def print_highlight(html_content: str) -> None:
    """Write a text to stdout."""
    sys.stdout.write(f"{html_content}\n")


def wait_for_server(base_url: str, timeout: float | None = None, process: Any = None) -> None:
    """Wait until a server answers `GET /health`.

    Raises:
        TimeoutError: it did not in `timeout` seconds.
        RuntimeError: `process` has ended.
    """
    _check_http(base_url)
    started_s = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(f"{base_url}/health", timeout=5):
                return
        except OSError as error:
            if process is not None and process.poll() is not None:
                raise RuntimeError(f"waiting for {base_url}: its process has ended") from error
            if timeout is not None and time.monotonic() - started_s > timeout:
                raise TimeoutError(f"waiting for {base_url}: no answer in {timeout} s") from error
            time.sleep(0.2)


def terminate_process(process: Any) -> None:
    """End a process and wait until it has ended."""
    process.terminate()
    process.wait()


def convert_json_schema_to_str(json_schema: Any) -> str:
    """A schema as JSON text: from a dict, a text, or a pydantic model class."""
    if isinstance(json_schema, str):
        return json_schema
    return json.dumps(json_schema if isinstance(json_schema, dict) else json_schema.model_json_schema())


def is_hip() -> bool:
    """False: there are no AMD kernels."""
    return False
