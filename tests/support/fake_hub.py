"""A hub in memory whose repositories are folders; counts what was downloaded."""

from __future__ import annotations

import shutil
from pathlib import Path

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.source import RepoFiles


class FakeHub:
    """Repositories by name and revision; `download` copies a file into a cache as the real hub's client does."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.downloaded: list[str] = []
        self._repos: dict[tuple[str, str], Path] = {}

    def add(self, repo: str, folder: Path, revision: str = "main") -> None:
        self._repos[repo, revision] = folder

    def list_files(self, repo: str, revision: str | None) -> RepoFiles:
        folder = self._repos.get((repo, revision or "main"))
        if folder is None:
            raise ModelLoadError(f"{repo}: no such repository, or no revision {revision!r}")
        names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
        return RepoFiles(f"commit-{revision or 'main'}", tuple(names))

    def download(self, repo: str, name: str, commit: str) -> Path:
        self.downloaded.append(name)
        target = self.cache / repo / commit / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self._repos[repo, commit.removeprefix("commit-")] / name, target)
        return target
