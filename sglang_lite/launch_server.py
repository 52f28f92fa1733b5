"""`python -m sglang_lite.launch_server`: SGLang's way to start a server; the same as `sglang-lite serve`."""

from __future__ import annotations

from sglang_lite.cli.serve import standalone

if __name__ == "__main__":
    raise SystemExit(standalone())
