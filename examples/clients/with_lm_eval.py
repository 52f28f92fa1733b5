"""`lm-evaluation-harness` on the forty items that lie here (`pip install "lm_eval[api]"`); the server tokenises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import lm_eval  # pyright: ignore[reportMissingImports]
from lm_eval.models.openai_completions import LocalCompletionsAPI  # pyright: ignore[reportMissingImports]

from examples.clients.address import server_url

FACTS = Path(__file__).with_name("data") / "facts.jsonl"
TASK = {
    "task": "facts",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": str(FACTS)}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{text}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "answer",
    "target_delimiter": "",
}


class Served(LocalCompletionsAPI):  # pyright: ignore[reportUntypedBaseClass]
    """`local-completions` with the tokens of the server's `/tokenize`."""

    def __init__(self, url: str) -> None:
        super().__init__(base_url=f"{url}/v1/completions", model="default", tokenizer_backend=None, batch_size=8)
        self._tokenize_url = f"{url}/tokenize"
        self.tokenizer = self._tokenize_url  # anything: it is only asked whether it is there
        self.tokenized_requests = True

    def tok_encode(self, string: Any, **_: Any) -> Any:
        """Ids of a text, or of each of several."""
        body = {"prompt": string, "add_special_tokens": False}
        return httpx.post(self._tokenize_url, json=body, timeout=60).raise_for_status().json()["tokens"]


def run(url: str) -> Any:
    return lm_eval.simple_evaluate(Served(url), tasks=[TASK], bootstrap_iters=0)["results"]["facts"]


if __name__ == "__main__":
    print(run(server_url()))
