"""The helpers that scripts import beside the language."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_lite.compat import helpers


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path in ("/health", "/file.txt") else 404)
        self.end_headers()
        self.wfile.write(b'{"ok": 1}\n')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_files_are_read_and_written_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('# comment\n{"a": 1}\n\n[2]\n', encoding="utf-8")
    assert list(helpers.read_jsonl(str(path))) == [{"a": 1}, [2]]
    out = tmp_path / "out.txt"
    helpers.dump_state_text(str(out), ["one"])
    helpers.dump_state_text(str(out), ["two"], mode="a")
    assert out.read_text(encoding="utf-8") == "==== 0 ====\none\n\n==== 0 ====\ntwo\n\n"


def test_requests_answer_whatever_the_status(url: str) -> None:
    assert helpers.http_request(f"{url}/echo", json={"x": 1}, api_key="k").json() == {"x": 1}
    missing = helpers.http_request(f"{url}/none")
    assert (missing.status_code, missing.text) == (404, '{"ok": 1}\n')
    streamed = helpers.http_request(f"{url}/health", stream=True)
    assert list(streamed.iter_lines()) == [b'{"ok": 1}']
    with pytest.raises(ValueError, match="expected an address"):
        helpers.http_request("file:///etc/hosts")


def test_a_file_is_downloaded_once(url: str, tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    assert helpers.download_and_cache_file(f"{url}/file.txt", str(path)) == str(path)
    path.write_text("mine", encoding="utf-8")
    helpers.download_and_cache_file(f"{url}/file.txt", str(path))
    assert path.read_text(encoding="utf-8") == "mine"


def test_waiting_for_a_server_ends(url: str) -> None:
    helpers.wait_for_server(url, timeout=60)
    with pytest.raises(TimeoutError, match="no answer in 0 s"):
        helpers.wait_for_server("http://127.0.0.1:9", timeout=0)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    helpers.terminate_process(process)
    assert process.returncode
    with pytest.raises(RuntimeError, match="has ended"):
        helpers.wait_for_server("http://127.0.0.1:9", process=process)
    assert process.stdin is not None
    process.stdin.close()


def test_small_ones(capsys: pytest.CaptureFixture[str]) -> None:
    helpers.print_highlight("<b>x</b>")
    assert capsys.readouterr().out == "<b>x</b>\n"
    assert not helpers.is_hip()

    class Model:
        @staticmethod
        def model_json_schema() -> dict[str, str]:
            return {"type": "object"}

    assert helpers.convert_json_schema_to_str("{}") == "{}"
    assert helpers.convert_json_schema_to_str({"a": 1}) == '{"a": 1}'
    assert helpers.convert_json_schema_to_str(Model) == '{"type": "object"}'
