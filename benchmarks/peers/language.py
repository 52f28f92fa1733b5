"""guidance, Outlines and vLLM as peers, each in an environment of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.worker_process import WorkerProcess
from benchmarks.workload import Completion, Request

_START_S = 180.0

LIBRARIES = {"guidance": "guidance fp32", "outlines": "Outlines fp32", "vllm": "vLLM bf16"}
"""Name -> what stands in tables."""

_SIDE_BY_SIDE = {"vllm": 64}
"""Requests that a library computes together; the others take one at a time."""


class LanguagePeer(WorkerProcess):
    """A `CompletionServer` of one library of `LIBRARIES`."""

    def __init__(
        self,
        library: str,
        python: Path,
        model: Path,
        threads: int,
        folder: Path,
        command: Sequence[str] | None = None,
    ) -> None:
        """Start.

        Args:
            library: its name.
            python: the interpreter of the environment where it is installed.
            model: a GGUF file.
            threads: that it may use.
            folder: where the model's folder for it is kept.
            command: in place of the worker.

        """
        worker = [str(python), "-m", "benchmarks.peers.language_worker", library, str(model), str(threads), str(folder)]
        super().__init__(LIBRARIES[library], command or worker, threads, _START_S)
        self.parallel = _SIDE_BY_SIDE.get(library, 1)
        self._turn = threading.Lock()

    def complete(self, request: Request) -> Completion:
        """Threads wait for each other."""
        return self.complete_all([request])[0]

    def complete_all(self, requests: Sequence[Request]) -> list[Completion]:
        """In one message."""
        asked = [
            {
                "prompt": one.prompt if isinstance(one.prompt, str) else list(one.prompt),
                "max_tokens": one.max_tokens,
                "choices": list(one.choices) if one.choices else None,
                "schema": one.schema,
                "ignore_eos": one.ignore_eos,
            }
            for one in requests
        ]
        with self._turn:
            replies = self.ask({"requests": asked})["replies"]
        return [Completion(one["text"], one["tokens"], 0, one["decode_s"]) for one in replies]
