"""The arguments of `Engine.generate`, checked and made into single requests; knows no queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sglang_lite.errors import ContextLengthError, RequestError
from sglang_lite.request_tree import LogprobParams, SamplingParams
from sglang_lite.runtime.text.tokenizer import Tokenizer

Params: TypeAlias = SamplingParams | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One request as the client asked for it: token ids, sampling (`n` is 1), log-probabilities, its id and priority if
    it chose them. `cache_salt`: it shares cached prefixes with requests of the same one only.
    """

    input_ids: tuple[int, ...]
    sampling: SamplingParams
    logprob: LogprobParams | None = None
    rid: str | None = None
    priority: int | None = None
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What every request must fit: ids below `vocab_size`, a prompt shorter than `max_prompt_len` tokens."""

    vocab_size: int
    context_length: int
    pool_tokens: int


def logprob_params(
    return_logprob: bool, start_len: int | None, top_num: int | None, token_ids: Sequence[int] | None, with_text: bool
) -> LogprobParams | None:
    """SGLang's four arguments as one; `start_len` -1 or None means: output only."""
    if not return_logprob:
        return None
    if top_num is not None and top_num < 0:
        raise RequestError(f"reading log-probability arguments: top_logprobs_num={top_num}, expected >= 0")
    start = None if start_len is None or start_len < 0 else start_len
    return LogprobParams(start, top_num or 0, tuple(token_ids or ()), with_text)


def build_requests(
    tokenizer: Tokenizer,
    limits: Limits,
    prompt: str | Sequence[str] | None,
    input_ids: Sequence[int] | Sequence[Sequence[int]] | None,
    params: Params | Sequence[Params],
    logprob: LogprobParams | None,
    rid: str | Sequence[str] | None,
    priority: int | None = None,
    cache_salt: str | None = None,
) -> tuple[list[GenerateRequest], bool]:
    """One request per prompt and sample, in order; and whether the caller gave a single prompt with one sample.

    Raises:
        RequestError: both or neither of `prompt` and `input_ids`, lists of different length, ids outside the
            vocabulary, an empty prompt, a prompt that can never fit (`ContextLengthError`), a wrong parameter.
    """
    id_lists, is_single = _prompt_ids(tokenizer, prompt, input_ids)
    samplings = _spread(params, len(id_lists), "sampling_params")
    rids: list[str | None] = (
        [None] * len(id_lists) if rid is None else [rid] if isinstance(rid, str) else list[str | None](rid)
    )
    if len(rids) != len(id_lists):
        raise RequestError(f"reading rid: {len(rids)} for {len(id_lists)} prompts, expected one each")
    requests: list[GenerateRequest] = []
    for ids, given, own_rid in zip(id_lists, samplings, rids, strict=True):
        sampling = given if isinstance(given, SamplingParams) else SamplingParams.from_mapping(given)
        _check(ids, sampling, limits)
        is_single = is_single and sampling.n == 1
        for sample in range(sampling.n):
            seed = None if sampling.seed is None else sampling.seed + sample
            sample_rid = own_rid if own_rid is None or sampling.n == 1 else f"{own_rid}-{sample}"
            own = sampling.with_(n=1, seed=seed)
            requests.append(GenerateRequest(ids, own, logprob, sample_rid, priority, cache_salt or ""))
    return requests, is_single


def _prompt_ids(
    tokenizer: Tokenizer, prompt: str | Sequence[str] | None, input_ids: Sequence[int] | Sequence[Sequence[int]] | None
) -> tuple[list[tuple[int, ...]], bool]:
    if (prompt is None) == (input_ids is None):
        raise RequestError("generating: expected exactly one of prompt and input_ids")
    if isinstance(prompt, str):
        return [_encode(tokenizer, prompt)], True
    if prompt is not None:
        return [_encode(tokenizer, text) for text in prompt], False
    assert input_ids is not None, "checked above"
    if not len(input_ids):
        raise RequestError("generating: input_ids is empty, expected at least one token")
    if isinstance(input_ids[0], int):
        return [_ids(input_ids)], True
    return [_ids(ids) for ids in input_ids], False


def _encode(tokenizer: Tokenizer, text: object) -> tuple[int, ...]:
    if not isinstance(text, str):
        raise RequestError(f"generating: a prompt is {type(text).__name__}, expected str")
    ids = tokenizer.encode(text, parse_special=True)
    if tokenizer.needs_bos(ids):
        assert tokenizer.bos_id is not None, "a tokenizer that adds a begin token has one"
        return (tokenizer.bos_id, *ids)
    return tuple(ids)


def _ids(values: object) -> tuple[int, ...]:
    if not isinstance(values, Sequence) or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise RequestError(f"generating: input_ids has {values!r:.80}, expected whole numbers or lists of them")
    return tuple(values)


def _spread(params: Params | Sequence[Params], count: int, name: str) -> list[Params]:
    if params is None or isinstance(params, Mapping | SamplingParams):
        return [params] * count
    if len(params) != count:
        raise RequestError(f"reading {name}: {len(params)} for {count} prompts, expected one for all or one each")
    return list(params)


def _check(ids: tuple[int, ...], sampling: SamplingParams, limits: Limits) -> None:
    if not ids:
        raise RequestError("generating: the prompt has no tokens, expected at least one; give some text")
    if not 0 <= min(ids) <= max(ids) < limits.vocab_size:
        bad = next(i for i in ids if not 0 <= i < limits.vocab_size)
        raise RequestError(f"generating: token id {bad}, expected 0 to {limits.vocab_size - 1}")
    for token_id, _ in sampling.logit_bias:
        if token_id >= limits.vocab_size:
            raise RequestError(f"reading logit_bias: token id {token_id}, expected below {limits.vocab_size}")
    room = min(limits.context_length, limits.pool_tokens)
    if len(ids) >= room:
        raise ContextLengthError(
            f"generating: the prompt has {len(ids)} tokens, at most {room - 1} fit (context {limits.context_length}, "
            f"KV pool {limits.pool_tokens}); shorten it or raise context_length or max_total_tokens"
        )
