"""What a model path means: a local file or folder, or files of a hub repository. Knows no file format's inside."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, Protocol

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.loader import find_embedded_model
from sglang_lite.runtime.model.safetensors_file import INDEX_NAME, SINGLE_NAME

FORMS = (
    "a GGUF file, a folder with config.json and safetensors, owner/repo, owner/repo:Q4_K_M or owner/repo/file.gguf,"
    " each hub form with @revision at its end if wanted"
)

_HUB_FORM = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[\w.-]+)(?:/(?P<file>[^@:]+\.gguf))?"
    r"(?:@(?P<revision>[^@:]+))?(?::(?P<label>[\w.-]+))?(?:@(?P<last_revision>[^@:]+))?"
)
_LABEL = re.compile(r"(?:UD-)?(?:IQ|TQ|MXFP|Q)\d[0-9A-Z_]*|BF16|F16|FP16|F32|FP32", re.IGNORECASE)
_PART = re.compile(r"-\d{5}-of-(?P<parts>\d{5})$")
_WITH_WEIGHTS = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "*.model",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.*",
)


@dataclass(frozen=True)
class ModelSource:
    """Where a model and its tokenizer lie on this machine.

    Attributes:
        kind: `gguf`: one file with both; `folder`: config.json, safetensors and tokenizer files.
        path: the file or the folder.
        commit: of the hub repository it came from; None for local ones.

    """

    kind: Literal["gguf", "folder"]
    path: Path
    commit: str | None = None


@dataclass(frozen=True)
class RepoFiles:
    """The files of a repository at one commit; names with `/` lie in subfolders."""

    commit: str
    names: tuple[str, ...]


class HubApi(Protocol):
    """What is asked of a model hub. Both raise ModelLoadError: not found, not allowed, or not reachable and not cached."""

    def list_files(self, repo: str, revision: str | None) -> RepoFiles:
        """The files of `owner/repo` at a branch, tag or commit (None: the default branch)."""
        ...

    def download(self, repo: str, name: str, commit: str) -> Path:
        """The local path of one file; all files of a commit lie in one folder tree."""
        ...


def resolve_model(model_path: str | None, hub: HubApi) -> ModelSource:
    """Find the files of a model, downloading what is not here yet.

    What exists locally is taken before a repository of the same name.

    Args:
        model_path: see `FORMS`; None: the embedded model.
        hub: asked only for the hub forms.

    Raises:
        ModelLoadError: there is no such model, or it is not clear which of several files is meant; they are listed.

    """
    if model_path is None:
        return ModelSource("gguf", find_embedded_model())
    path = Path(model_path).expanduser()
    if path.is_dir():
        return _local_folder(path, None)
    if path.is_file():
        return _local_file(path)
    folder, colon, label = model_path.rpartition(":")
    if colon and folder and Path(folder).expanduser().is_dir():
        return _local_folder(Path(folder).expanduser(), label)
    form = _HUB_FORM.fullmatch(model_path)
    if form is None or form["repo"].endswith(".gguf") or (form["revision"] and form["last_revision"]):
        raise ModelLoadError(f"{model_path}: no such file or folder (a model path is {FORMS})")
    repo, revision = form["repo"], form["revision"] or form["last_revision"]
    files = hub.list_files(repo, revision)
    if form["file"]:
        name = _only(
            [name for name in files.names if name == form["file"]], files.names, repo, f"file {form['file']!r}"
        )
        return ModelSource("gguf", hub.download(repo, name, files.commit), files.commit)
    if form["label"] or not _has_weights(files.names):
        name = _choose_gguf(files.names, form["label"], repo)
        return ModelSource("gguf", hub.download(repo, name, files.commit), files.commit)
    return _snapshot(repo, files, hub)


def quantization_label(name: str) -> str | None:
    """The part of a GGUF file's name that says how it is quantised (`Q4_K_M`), in capitals; None where none does."""
    stem = _PART.sub("", Path(name).stem)
    found = [m.group() for m in _LABEL.finditer(stem) if not stem[: m.start()][-1:].isalnum()]
    return found[-1].upper() if found else None


def _local_file(path: Path) -> ModelSource:
    if path.suffix == ".safetensors" or path.name == "config.json":
        raise ModelLoadError(f"{path}: one file of a model folder; give the folder {path.parent}")
    return ModelSource("gguf", path)


def _local_folder(path: Path, label: str | None) -> ModelSource:
    names = sorted(file.name for file in path.iterdir())
    if label is None and (_has_weights(names) or "config.json" in names):
        return ModelSource("folder", path)
    return ModelSource("gguf", path / _choose_gguf(names, label, str(path)))


def _has_weights(names: Iterable[str]) -> bool:
    names = set(names)
    return "config.json" in names and any(name.endswith(".safetensors") and "/" not in name for name in names)


def _choose_gguf(names: Sequence[str], label: str | None, where: str) -> str:
    """The GGUF file with the wanted label, or the only one."""
    models = [name for name in names if name.endswith(".gguf") and "mmproj" not in name]
    if not models:
        raise ModelLoadError(
            f"{where}: holds neither a GGUF file nor config.json with safetensors, found: {_listed(names) or 'nothing'}"
        )
    wanted = models
    if label is not None:
        wanted = [name for name in models if quantization_label(name) == label.upper()]
    return _only(wanted, models, where, f"a GGUF file labelled {label!r}" if label else "one GGUF file")


def _only(wanted: Sequence[str], known: Sequence[str], where: str, what: str) -> str:
    if len(wanted) == 1:
        if part := _PART.search(Path(wanted[0]).stem):
            raise ModelLoadError(
                f"{where}: {wanted[0]} is one of {int(part['parts'])} parts; merge them first (llama-gguf-split --merge)"
            )
        return wanted[0]
    if wanted and all(_PART.search(Path(name).stem) for name in wanted):
        raise ModelLoadError(
            f"{where}: the model comes in {len(wanted)} parts ({_listed(wanted)}); merge them first"
            " (llama-gguf-split --merge)"
        )
    choices = [name for name in wanted or known if name.endswith(".gguf")]
    labels = dict.fromkeys(label for label in map(quantization_label, choices) if label)
    example = f"; name one, as in {where}:{next(iter(labels))} or {where}/{choices[0]}" if labels else ""
    if not wanted:
        raise ModelLoadError(f"{where}: {what} is not there, found: {_listed(choices) or 'no GGUF file'}{example}")
    raise ModelLoadError(f"{where}: {len(wanted)} GGUF files: {_listed(choices)}{example}")


def _listed(names: Sequence[str], most: int = 40) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _snapshot(repo: str, files: RepoFiles, hub: HubApi) -> ModelSource:
    """Download configuration, tokenizer and weights; small files first, so that a fault shows early."""
    top = [name for name in files.names if "/" not in name]
    folder = hub.download(repo, "config.json", files.commit).parent
    for name in top:
        if name != "config.json" and any(fnmatchcase(name, pattern) for pattern in _WITH_WEIGHTS):
            hub.download(repo, name, files.commit)
    for name in _weight_files(repo, top, files.commit, hub):
        hub.download(repo, name, files.commit)
    return ModelSource("folder", folder, files.commit)


def _weight_files(repo: str, names: Sequence[str], commit: str, hub: HubApi) -> list[str]:
    if INDEX_NAME in names:
        index = hub.download(repo, INDEX_NAME, commit)
        try:
            shards = set(json.loads(index.read_bytes())["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelLoadError(f"{repo}: {INDEX_NAME} is not readable as an index of shards ({error!r})") from error
        return [name for name in names if name in shards]  # what the repository lacks is reported by the reader
    if SINGLE_NAME in names:
        return [SINGLE_NAME]
    return [name for name in names if name.endswith(".safetensors")]
