"""Puts the compiled kernels of test runs where the engine puts them; import it before any kernel."""

from __future__ import annotations

from pathlib import Path

import sglang_lite.grammar
from sglang_lite import env
from sglang_lite.kernels.cpu.jit import prepare_cache

KERNEL_CACHE = prepare_cache(env.cache_dir(), Path(sglang_lite.grammar.__file__).parent.glob("*.py"))
