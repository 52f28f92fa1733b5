"""A process that answers batches with transformers in float32: a line of JSON in, a line of JSON out.

In: `{"prompts": [[ids]], "out": n}`. Out: `{"prefill_s": ..., "decode_s": ...}`, or `{"error": ...}`. The first line out says
that the model is loaded.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch


def load(path: Path) -> Any:
    """The weights of a GGUF file in transformers' own modules; `from_pretrained` would ask for the package accelerate."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config: Any = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)
    model.load_state_dict(read["tensors"], strict=False)
    model.tie_weights()
    return model


def generate(model: Any, prompts: list[list[int]], out: int) -> dict[str, float]:
    """Greedy, without the checks of `model.generate`: the least that its modules take."""
    with torch.inference_mode():
        start = time.perf_counter()
        step = model(torch.tensor(prompts), use_cache=True, logits_to_keep=1)
        tokens = step.logits[:, -1].argmax(-1, keepdim=True)
        first = time.perf_counter()
        for _ in range(out - 1):
            step = model(tokens, past_key_values=step.past_key_values, use_cache=True, logits_to_keep=1)
            tokens = step.logits[:, -1].argmax(-1, keepdim=True)
        return {"prefill_s": first - start, "decode_s": time.perf_counter() - first}


def main() -> None:
    """Serve until the input ends. Arguments: the GGUF file, the number of threads."""
    torch.set_num_threads(int(sys.argv[2]))
    replies, sys.stdout = sys.stdout, sys.stderr
    model = load(Path(sys.argv[1]))
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            reply: dict[str, Any] = generate(model, asked["prompts"], asked["out"])
        except (RuntimeError, ValueError) as error:
            reply = {"error": repr(error)}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
