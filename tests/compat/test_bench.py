"""The arguments that benchmark scripts share, and the backend that they name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import pytest

from sglang_lite.compat import bench, models
from sglang_lite.errors import RequestError
from sglang_lite.lang import ScriptedBackend, global_config, set_default_backend


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    models.choose(None, None)
    set_default_backend(None)
    global_config.enable_parallel_encoding = True


def test_the_shared_arguments_have_sglangs_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", "--parallel", "2"])
    args = bench.add_common_sglang_args_and_parse(argparse.ArgumentParser())
    assert (args.parallel, args.host, args.port, args.backend) == (2, "http://127.0.0.1", 30000, "srt")
    assert (args.result_file, args.raw_result_file) == ("result.jsonl", None)


def test_a_backend_by_its_name() -> None:
    backend = ScriptedBackend()
    models.choose(None, backend)

    def chosen(name: str) -> object:
        return bench.select_sglang_backend(argparse.Namespace(backend=name, host="http://localhost", port=1))

    assert chosen("srt") is chosen("gpt-4") is backend
    assert global_config.enable_parallel_encoding
    assert chosen("srt-no-parallel") is backend
    assert not global_config.enable_parallel_encoding
    with pytest.raises(RequestError, match="'vllm'"):
        chosen("vllm")
