"""What a workload is to the harness: sizes, how each kind of contestant runs it, and what is hoped for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol, Self

LLAMA_CPP = "llama.cpp"
Q4_1, Q4_0 = f"{LLAMA_CPP} Q4_1", f"{LLAMA_CPP} Q4_0"
HF = "transformers fp32"
OURS = "sglang_lite"


class PeerError(Exception):
    """A peer could not start, gave up, or cannot run a workload; the run goes on without it."""


@dataclass(frozen=True)
class Measured:
    """What one run did: `amount` units of work in `seconds`; `details` go into the report."""

    amount: float
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.amount / self.seconds


@dataclass(frozen=True)
class Request:
    """One completion. `prompt`: text or token ids. At most one of `choices` (texts) and `schema` (JSON Schema) is set."""

    prompt: str | Sequence[int]
    max_tokens: int
    choices: tuple[str, ...] | None = None
    schema: str | None = None
    ignore_eos: bool = True


@dataclass(frozen=True)
class Completion:
    """`decode_s`: seconds from the first token to the last by the peer's own clock."""

    text: str
    tokens: int
    prompt_tokens_computed: int
    decode_s: float


class CompletionServer(Protocol):
    """A peer that takes requests."""

    @property
    def parallel(self) -> int:
        """How many requests it computes side by side."""
        ...

    def complete(self, request: Request) -> Completion:
        """Wait for one completion; may be called from several threads. Raises `PeerError`."""
        ...

    def complete_all(self, requests: Sequence[Request]) -> list[Completion]:
        """All of them, side by side; in order."""
        ...


@dataclass(frozen=True)
class BatchTimes:
    """Seconds of a batch: of the prompts, and of all tokens after each row's first."""

    prefill_s: float
    decode_s: float


class BatchPeer(Protocol):
    """A peer that takes batches of prompts of equal length and knows no requests."""

    def generate(self, prompts: Sequence[Sequence[int]], out: int) -> BatchTimes:
        """Greedy, `out` tokens a row. Raises `PeerError`."""
        ...


@dataclass(frozen=True)
class Workload(ABC):
    """The fields of a subclass are its sizes. A round is named by a seed: equal seeds, equal prompts.

    `slots`: settings of parallel slots that a server is tried with. `limit_s`: after so many seconds peers stop taking
    part in further rounds. `goals`: group of contestants -> least ratio that is acceptable, and the one aimed at. `is_language`:
    what libraries on top of a model are made for, so that they are measured too.
    """

    code: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str]
    slots: ClassVar[tuple[int, ...]] = (1, 4)
    limit_s: ClassVar[float] = 90.0
    is_language: ClassVar[bool] = False
    goals: ClassVar[Mapping[str, tuple[float, float]]] = {}

    @abstractmethod
    def small(self) -> Self:
        """A form that takes a few seconds: to warm up, and to find a server's best setting."""

    @abstractmethod
    def tiny(self) -> Self:
        """A form that shows only that everything works."""

    @abstractmethod
    def on_engine(self, engine: Any, seed: int) -> Measured:
        """Run on an `Engine`."""

    @abstractmethod
    def on_server(self, server: CompletionServer, seed: int) -> Measured:
        """Run on a peer that takes requests."""

    def on_batches(self, peer: BatchPeer, seed: int) -> Measured:
        """Run on a peer that takes batches; it may do a part of the work, for its rate.

        Raises:
            PeerError: the workload is none for such a peer.
        """
        raise PeerError(f"{self.code} is not run on batches")

    def settings(self) -> dict[str, Any]:
        """The sizes."""
        return asdict(self)
