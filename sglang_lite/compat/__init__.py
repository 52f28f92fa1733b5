"""Programs written for SGLang, unchanged: `import sglang` and its helper modules resolve here.

From the shell: `python -m sglang_lite.compat SCRIPT.py`; in code: `sglang_lite.compat.install()`.
"""

from __future__ import annotations

from sglang_lite.compat.finder import install, uninstall
from sglang_lite.compat.report import report

__all__ = ["install", "report", "uninstall"]
