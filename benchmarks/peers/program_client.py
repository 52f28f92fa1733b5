"""Runs programs over a server that takes requests: text so far and one request for each gen and select."""

from __future__ import annotations

from typing import Any

from benchmarks.whole_text_client import WholeTextClient
from benchmarks.workload import Completion, CompletionServer, Request


class ProgramClient(WholeTextClient):
    """A backend over a completion server; a `select` is one request whose grammar is the list of its choices."""

    def __init__(self, server: CompletionServer) -> None:
        super().__init__(None)
        self._server = server
        self.prompt_tokens_computed = 0

    def generate(self, prompts: list[str], params: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
        """One request for each prompt."""
        return [{"text": self._complete(_request(prompt, params)).text} for prompt in prompts]

    def choose(self, text: str, choices: tuple[str, ...]) -> str:
        """What the server's grammar lets the model say."""
        said = self._complete(Request(text, max(map(len, choices)) + 2, choices=choices, ignore_eos=False)).text
        return said if said in choices else choices[0]

    def get_server_info(self) -> dict[str, Any]:
        """Nothing is known."""
        return {}

    def flush_cache(self) -> bool:
        """Nothing: each round has prompts of its own."""
        return True

    def _complete(self, request: Request) -> Completion:
        done = self._server.complete(request)
        with self._lock:
            self.requests += 1
            self.chars_sent += len(request.prompt)
            self.prompt_tokens_computed += done.prompt_tokens_computed
        return done


def _request(prompt: str, params: dict[str, Any]) -> Request:
    return Request(prompt, params["max_new_tokens"], ignore_eos=bool(params["ignore_eos"]))
