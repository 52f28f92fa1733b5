"""The one thing pyproject.toml cannot say: the wheel carries the example agents, which `sglang-lite run` shows."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithAgents(build_py):
    """Lay `examples/agents` beside the package's modules; in a checkout the commands find it where it is."""

    def run(self) -> None:
        """Build the package, then copy the examples into it."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "sglang_lite" / "_agents"
            shutil.copytree("examples/agents", target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithAgents})
