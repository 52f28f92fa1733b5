"""`lm-evaluation-harness` on the forty items that lie here (`pip install "lm_eval[api]"`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lm_eval  # pyright: ignore[reportMissingImports]
from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]

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


def run(url: str) -> Any:
    arguments = f"model=default,base_url={url}/v1/completions,tokenizer=gpt2,tokenized_requests=False,num_concurrent=1"
    found = lm_eval.simple_evaluate(
        "local-completions", model_args=arguments, tasks=[TASK], task_manager=TaskManager(), batch_size=8
    )
    return found["results"]["facts"]


if __name__ == "__main__":
    print(run(server_url()))
