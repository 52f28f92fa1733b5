"""Who takes part: the engine, llama.cpp's server in its quantisations and settings, transformers, libraries on top of it, vLLM."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.peers.hf import HfPeer
from benchmarks.peers.language import LIBRARIES, LanguagePeer
from benchmarks.peers.llama_files import find_llama_server, find_quantize, requantised
from benchmarks.peers.llama_server import LlamaServer, ServerSettings
from benchmarks.workload import HF, LLAMA_CPP, OURS, Measured, PeerError, Workload

PEERS = ("llama.cpp", "hf", *LIBRARIES)
"""Names that `--peers` takes."""


class Contestant(Protocol):
    """One who runs workloads. `group`: those that differ in settings only; `name`: with the setting."""

    @property
    def group(self) -> str:
        """What stands in the table."""
        ...

    @property
    def name(self) -> str:
        """Group and setting."""
        ...

    def run(self, workload: Workload, seed: int, limit_s: float) -> Measured:
        """One round; started on first use. Raises `PeerError`, also where it takes longer than `limit_s`."""
        ...

    def stop(self) -> None:
        """End whatever was started. Idempotent; a later `run` starts again."""
        ...


class Ours:
    """The engine in this process."""

    group = name = OURS

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._engine: Any = None

    @property
    def engine(self) -> Any:
        """Started on first use."""
        if self._engine is None:
            self._engine = self._make()
        return self._engine

    def run(self, workload: Workload, seed: int, limit_s: float) -> Measured:
        """One round, however long it takes: without it there is nothing to compare."""
        return workload.on_engine(self.engine, seed)

    def stop(self) -> None:
        """Shut the engine down."""
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None


@dataclass
class LlamaContestant:
    """A server of one model file and one number of slots."""

    group: str
    settings: Callable[[], ServerSettings]
    parallel: int
    _server: LlamaServer | None = None

    @property
    def name(self) -> str:
        """With the number of slots."""
        return f"{self.group} np={self.parallel}"

    def run(self, workload: Workload, seed: int, limit_s: float) -> Measured:
        """One round; after a failure the server is ended, for it may still compute."""
        if self._server is None:
            self._server = LlamaServer(self.settings())
        self._server.deadline = time.monotonic() + limit_s
        try:
            return workload.on_server(self._server, seed)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.stop()
            self._server = None


@dataclass
class HfContestant:
    """transformers."""

    model: Callable[[], Path]
    threads: int
    _peer: HfPeer | None = None
    group: str = HF
    name: str = HF

    def run(self, workload: Workload, seed: int, limit_s: float) -> Measured:
        """One round."""
        if type(workload).on_batches is Workload.on_batches:
            raise PeerError(f"{workload.code} is not run on batches")
        if self._peer is None:
            self._peer = HfPeer(self.model(), self.threads)
        self._peer.deadline = time.monotonic() + limit_s
        try:
            return workload.on_batches(self._peer, seed)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process."""
        if self._peer is not None:
            self._peer.stop()
            self._peer = None


@dataclass
class LanguageContestant:
    """guidance, Outlines or vLLM; `make` starts it."""

    library: str
    make: Callable[[], LanguagePeer]
    _peer: LanguagePeer | None = None

    @property
    def group(self) -> str:
        """The library and the type of its weights."""
        return LIBRARIES[self.library]

    name = group

    def run(self, workload: Workload, seed: int, limit_s: float) -> Measured:
        """One round; after a failure the process is ended, for it may still compute."""
        if self._peer is None:
            self._peer = self.make()
        self._peer.deadline = time.monotonic() + limit_s
        try:
            return workload.on_server(self._peer, seed)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process."""
        if self._peer is not None:
            self._peer.stop()
            self._peer = None


class Field:
    """All contestants of a run; those that several workloads share are started once."""

    def __init__(self, ours: Ours, peers: Sequence[str], setup: PeerSetup) -> None:
        self.ours = ours
        self._peers = peers
        self._setup = setup
        self._servers: dict[tuple[str, int], LlamaContestant] = {}
        self._hf: HfContestant | None = None
        self._libraries = {
            name: LanguageContestant(name, lambda name=name: setup.library(name)) for name in peers if name in LIBRARIES
        }

    def of(self, workload: Workload) -> list[Contestant]:
        """Who takes part in a workload."""
        contestants: list[Contestant] = [self.ours]
        if "llama.cpp" in self._peers:
            contestants += [
                self._server(kind, parallel) for kind in self._setup.quantisations for parallel in workload.slots
            ]
        if "hf" in self._peers and type(workload).on_batches is not Workload.on_batches:
            if self._hf is None:
                self._hf = HfContestant(self._setup.model, self._setup.threads)
            contestants.append(self._hf)
        if workload.is_language:
            contestants += self._libraries.values()
        return contestants

    def stop(self) -> None:
        """End all of them."""
        for contestant in (self._hf, *self._libraries.values(), *self._servers.values(), self.ours):
            if contestant is not None:
                contestant.stop()

    def _server(self, kind: str, parallel: int) -> LlamaContestant:
        if (kind, parallel) not in self._servers:
            self._servers[kind, parallel] = LlamaContestant(
                f"{LLAMA_CPP} {kind}", lambda: self._setup.server(kind, parallel), parallel
            )
        return self._servers[kind, parallel]


@dataclass(frozen=True)
class PeerSetup:
    """What peers are started with. `quantisations`: `Q4_1` is the file as it is, others are made from it in `folder`.

    `pythons`: the interpreter of the environment in which a library of `LIBRARIES` is installed; else this one.
    """

    model: Callable[[], Path]
    threads: int
    folder: Path
    llama_server: Path | None = None
    quantisations: tuple[str, ...] = ("Q4_1", "Q4_0")
    pythons: Mapping[str, Path] = field(default_factory=dict)

    def library(self, name: str) -> LanguagePeer:
        """One of `LIBRARIES`, started. Raises `PeerError`."""
        python = self.pythons.get(name, Path(sys.executable))
        return LanguagePeer(name, python, self.model(), self.threads, self.folder)

    def server(self, kind: str, parallel: int) -> ServerSettings:
        """Settings of one llama-server; makes its file where it is missing. Raises `PeerError`."""
        binary, model = find_llama_server(self.llama_server), self.model()
        if kind != "Q4_1":
            model = requantised(model, kind, self.folder, find_quantize(binary))
        return ServerSettings(binary, model, parallel, self.threads)
