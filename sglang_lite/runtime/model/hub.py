"""`HubApi` on huggingface_hub, which reads HF_TOKEN, HF_HUB_OFFLINE and HF_HOME itself. Knows nothing of models."""

from __future__ import annotations

from pathlib import Path

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.source import RepoFiles

_DEFAULT_BRANCH = "main"


class HuggingFaceHub:
    """Repositories of the Hugging Face hub, kept in its usual cache."""

    def list_files(self, repo: str, revision: str | None) -> RepoFiles:
        """See `HubApi.list_files`; where the hub cannot be reached, the files that the cache has."""
        from huggingface_hub import HfApi, errors  # half a second to import, and only hub models need it

        try:
            info = HfApi().model_info(repo, revision=revision)
        except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError) as error:
            raise _refused(repo, revision, error) from error
        except (OSError, errors.HTTPError) as error:  # pyright: ignore[reportPrivateImportUsage] - what its client raises
            cached = _cached_files(repo, revision or _DEFAULT_BRANCH)
            if cached is None:
                raise _unreachable(repo, error) from error
            return cached
        names = tuple(file.rfilename for file in info.siblings or ())
        return RepoFiles(info.sha or revision or _DEFAULT_BRANCH, names)

    def download(self, repo: str, name: str, commit: str) -> Path:
        """See `HubApi.download`."""
        from huggingface_hub import errors, hf_hub_download  # as above

        try:
            return Path(hf_hub_download(repo, name, revision=commit))
        except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
            raise _refused(repo, commit, error) from error
        except errors.LocalEntryNotFoundError as error:
            raise _unreachable(f"{repo}/{name}", error) from error
        except errors.EntryNotFoundError as error:
            raise ModelLoadError(f"{repo}: the repository has no file {name!r} at revision {commit}") from error
        except (OSError, errors.HTTPError) as error:  # pyright: ignore[reportPrivateImportUsage] - what its client raises
            raise _unreachable(f"{repo}/{name}", error) from error


def _cached_files(repo: str, revision: str) -> RepoFiles | None:
    """What the cache has of a branch, tag or commit."""
    from huggingface_hub import scan_cache_dir  # as above
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir().repos
    except CacheNotFound:
        return None
    for entry in (
        cached for kept in repos if kept.repo_id == repo and kept.repo_type == "model" for cached in kept.revisions
    ):
        if revision == entry.commit_hash or revision in entry.refs:
            names = sorted(file.file_path.relative_to(entry.snapshot_path).as_posix() for file in entry.files)
            return RepoFiles(entry.commit_hash, tuple(names))
    return None


def _refused(repo: str, revision: str | None, error: Exception) -> ModelLoadError:
    from huggingface_hub import errors  # as above

    match error:
        case errors.GatedRepoError():
            why = f"access is restricted; accept its terms at https://huggingface.co/{repo} and set HF_TOKEN"
        case errors.RepositoryNotFoundError():
            why = "no such repository on the hub and no such local path; for a private one set HF_TOKEN"
        case errors.RevisionNotFoundError():
            why = f"the repository has no revision {revision!r}"
        case _:
            why = f"not the name of a repository ({error})"
    return ModelLoadError(f"{repo}: {why}")


def _unreachable(what: str, error: Exception) -> ModelLoadError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ModelLoadError(
        f"{what}: not in the local cache, and the hub cannot be asked ({reason}); connect, unset HF_HUB_OFFLINE,"
        " or give a local path"
    )
