"""The adapter to huggingface_hub, with its calls replaced: no network is needed, and none is used."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.hub import HuggingFaceHub
from sglang_lite.runtime.model.source import RepoFiles

COMMIT = "a" * 40


def http_error(kind: type[Exception]) -> Exception:
    """An error as the client raises it, without the response that its constructor wants."""
    error = kind.__new__(kind)
    Exception.__init__(error, "said the server")
    return error


def raising(error: Exception) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise error

    return call


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one file of `me/tiny` at branch main, laid out as the client does."""
    folder = tmp_path / "hub" / "models--me--tiny"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "blobs" / "1").write_text("{}")
    (snapshot / "config.json").symlink_to(folder / "blobs" / "1")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    scan = huggingface_hub.scan_cache_dir
    monkeypatch.setattr(huggingface_hub, "scan_cache_dir", lambda: scan(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_repository_is_listed_at_the_commit_that_its_revision_means(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def model_info(self: Any, repo: str, revision: str | None) -> Any:
        asked.append((repo, revision))
        return SimpleNamespace(
            sha=COMMIT, siblings=[SimpleNamespace(rfilename="a.gguf"), SimpleNamespace(rfilename="x/b")]
        )

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    assert HuggingFaceHub().list_files("me/tiny", "v1") == RepoFiles(COMMIT, ("a.gguf", "x/b"))
    assert asked == [("me/tiny", "v1")]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            errors.RepositoryNotFoundError,
            "me/tiny: no such repository on the hub and no such local path; for a private",
        ),
        (errors.GatedRepoError, "me/tiny: access is restricted; accept its terms at https://huggingface.co/me/tiny"),
        (errors.RevisionNotFoundError, "me/tiny: the repository has no revision 'v1'"),
        (errors.HFValidationError, "me/tiny: not the name of a repository"),
    ],
)
def test_what_the_hub_refuses_is_said_plainly(
    kind: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", raising(http_error(kind)))
    with pytest.raises(ModelLoadError, match=message):
        HuggingFaceHub().list_files("me/tiny", "v1")


@pytest.mark.parametrize(
    "kind", [errors.OfflineModeIsEnabled, errors.HfHubHTTPError, ConnectionError, errors.HTTPError]
)
def test_without_the_hub_the_cache_is_used(kind: type[Exception], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", raising(http_error(kind)))
    for revision in (None, "main", COMMIT):
        assert HuggingFaceHub().list_files("me/tiny", revision) == RepoFiles(COMMIT, ("config.json",))
    for repo, revision in (("me/tiny", "v1"), ("me/other", None)):
        with pytest.raises(
            ModelLoadError, match=rf"{repo}: not in the local cache, and the hub cannot be asked \(said the"
        ):
            HuggingFaceHub().list_files(repo, revision)


def test_without_any_cache_the_error_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = huggingface_hub.scan_cache_dir
    monkeypatch.setattr(huggingface_hub, "scan_cache_dir", lambda: scan(tmp_path / "none"))
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", raising(ConnectionError("no route")))
    with pytest.raises(ModelLoadError, match=r"not in the local cache, .*\(no route\); connect, unset HF_HUB_OFFLINE"):
        HuggingFaceHub().list_files("me/tiny", None)


def test_a_file_is_downloaded_at_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", lambda repo, name, revision: f"/cache/{repo}/{revision}/{name}"
    )
    assert HuggingFaceHub().download("me/tiny", "x/a.gguf", COMMIT) == Path(f"/cache/me/tiny/{COMMIT}/x/a.gguf")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (errors.GatedRepoError, "me/tiny: access is restricted"),
        (errors.EntryNotFoundError, r"me/tiny: the repository has no file 'a\.gguf' at revision main"),
        (errors.LocalEntryNotFoundError, r"me/tiny/a\.gguf: not in the local cache"),
        (errors.HTTPError, r"me/tiny/a\.gguf: not in the local cache"),
        (OSError, r"me/tiny/a\.gguf: not in the local cache"),
    ],
)
def test_a_file_that_does_not_come_is_said_plainly(
    kind: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", raising(http_error(kind)))
    with pytest.raises(ModelLoadError, match=message):
        HuggingFaceHub().download("me/tiny", "a.gguf", "main")
