"""The helpers of `sglang.test.test_utils` that SGLang's benchmark scripts import."""

from __future__ import annotations

import argparse
import unittest
from typing import Any

from sglang_lite.compat.models import OpenAI, RuntimeEndpoint
from sglang_lite.errors import RequestError
from sglang_lite.lang.global_config import global_config

DEFAULT_MODEL_NAME_FOR_TEST = "meta-llama/Llama-3.1-8B-Instruct"

CustomTestCase = unittest.TestCase


def add_common_sglang_args_and_parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Add the arguments that all benchmark scripts share, and read the command line."""
    parser.add_argument("--parallel", type=int, default=64)
    parser.add_argument("--host", default="http://127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--backend", default="srt")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--result-file", default="result.jsonl")
    parser.add_argument("--raw-result-file")
    return parser.parse_args()


def select_sglang_backend(args: argparse.Namespace) -> Any:
    """The backend that `--backend` names: `srt...` a server, `gpt-...` OpenAI's API.

    Raises:
        RequestError: another name.
    """
    if args.backend.startswith("srt"):
        if args.backend == "srt-no-parallel":
            global_config.enable_parallel_encoding = False
        return RuntimeEndpoint(f"{args.host}:{args.port}")
    if args.backend.startswith("gpt-"):
        return OpenAI(args.backend)
    raise RequestError(f"choosing a backend: got --backend {args.backend!r}, expected srt, srt-no-parallel or gpt-...")
