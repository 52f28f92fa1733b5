"""First use ahead of the first request: what is compiled or prepared once is made now. Knows no server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.engine.notices import progress, told

_SCHEMA = json.dumps({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})


def warmed(engine: Engine) -> Engine:
    """The engine after one token and without a trace of it in the cache."""
    progress("warming up ...")
    first = min(engine.tokenizer.eos_ids, default=0)
    engine.generate(input_ids=[first], sampling_params={"max_new_tokens": 1, "temperature": 0})
    engine.flush_cache()
    return engine


def warm_machine(model_path: str | None, settings: dict[str, Any], say: Callable[[str], None]) -> None:
    """Leave on disk all that later starts with these settings find there: kernels, tokenizer, weights, grammar tables.

    Raises:
        ModelLoadError, RequestError: as `Engine`.
    """
    with told(say), Engine(model_path, **settings) as engine:
        warmed(engine)
        progress("compiling the kernels of the other backends ...")
        from sglang_lite.kernels.cpu.warmup import warm_up  # kernels: the engine has named their folder

        warm_up(progress)
        progress("preparing grammars ...")
        first = min(engine.tokenizer.eos_ids, default=0)
        for constraint in ({"json_schema": _SCHEMA}, {"regex": "[a-z]{1,3}"}, {"choices": ["yes", "no"]}):
            engine.generate(input_ids=[first], sampling_params={"max_new_tokens": 16, "temperature": 0, **constraint})
