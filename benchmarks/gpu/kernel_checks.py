"""Every kernel against its plain reference, in bfloat16 where it takes it, on the shapes of two models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.random_model import LLAMA_8B, PAGE, SMOLLM2, TINY, make_batch, pages_of
from benchmarks.gpu.setting import CheckError, Setting
from sglang_lite.kernels.reference import norm as plain_norm
from sglang_lite.kernels.reference import penalties as plain_penalties
from sglang_lite.kernels.reference import rope as plain_rope
from sglang_lite.kernels.reference import silu as plain_silu
from sglang_lite.kernels.reference import token_mask as plain_mask
from sglang_lite.kernels.reference.logprobs import log_softmax, top_tokens
from sglang_lite.kernels.reference.paged_attention import paged_attention
from sglang_lite.kernels.reference.sampling import draw_token, kept_tokens
from sglang_lite.kernels.triton import logprobs, norm, penalties, rope, sampling, silu, token_mask
from sglang_lite.kernels.triton.linear_q4 import linear_q4, pack_q4, unpack_q4
from sglang_lite.runtime.attention.base import LayerAttention
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.triton import TritonAttention
from sglang_lite.runtime.model.config import ModelConfig

HALF = torch.bfloat16
_RELATIVE = 2.0**-7
"""Two roundings to bfloat16."""


def check_kernels(setting: Setting) -> dict[str, Any]:
    """All of them; the largest error of each as a share of the largest value."""
    found: dict[str, Any] = {}
    wrong: list[str] = []
    configs = [TINY] if setting.size == "cpu" else [LLAMA_8B, SMOLLM2]
    checks: list[tuple[str, Callable[[], float]]] = [
        (f"{name} {config.num_heads}/{config.num_kv_heads}x{config.head_dim}", lambda c=config, f=check: f(setting, c))
        for config in configs
        for name, check in _BY_MODEL.items()
    ]
    checks += [(name, lambda f=check: f(setting)) for name, check in _ALONE.items()]
    for name, check in checks:
        try:
            found[name] = check()
        except Exception as error:  # noqa: BLE001 - all kernels are told of, not the first that fails
            found[name] = None
            wrong.append(f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")
    if wrong:
        raise CheckError("; ".join(wrong), found)
    return found


def _near(got: torch.Tensor, expected: torch.Tensor | np.ndarray, relative: float = _RELATIVE) -> float:
    """The largest error as a share of the largest value; asserts that it is small."""
    wide = got.double().cpu()
    other = torch.as_tensor(expected).double().cpu()
    assert wide.shape == other.shape, f"{tuple(wide.shape)}, expected {tuple(other.shape)}"
    assert bool(torch.isfinite(wide).all()), "NaN or infinity"
    error = float((wide - other).abs().max() / other.abs().max().clamp(min=1e-6))
    assert error <= relative, f"error {error:.2e}, at most {relative:.2e}"
    return error


def _normal(setting: Setting, *shape: int, seed: int = 0, dtype: torch.dtype = HALF) -> torch.Tensor:
    random = torch.Generator(setting.device).manual_seed(seed)
    return torch.randn(shape, generator=random, device=setting.device).to(dtype)


def _attention(
    setting: Setting,
    config: ModelConfig,
    extends: list[int],
    prefixes: list[int],
    options: LayerAttention,
    shared_pages: int = 0,
    *,
    deterministic: bool = True,
) -> float:
    """A step's attention over a pool with noise in every page, among it the sink; `deterministic`: with tiles of the one size."""
    fb = make_batch(extends, prefixes, 100, setting.device, shared_pages)
    pool = KvPool(1, pages_of(fb), config.num_kv_heads, config.head_dim, PAGE, setting.device, HALF, token_major=True)
    pool.k.copy_(_normal(setting, *pool.k.shape, seed=1))
    pool.v.copy_(_normal(setting, *pool.v.shape, seed=2))
    q = _normal(setting, fb.num_tokens, config.num_heads, config.head_dim, seed=3)
    k, v = (_normal(setting, fb.num_tokens, config.num_kv_heads, config.head_dim, seed=seed) for seed in (4, 5))
    attention = TritonAttention(pool, config.num_heads, deterministic=deterministic)
    attention.plan(fb)
    got = attention.forward(q, k, v, 0, options)
    keys, values = pool.k[0].float().transpose(-1, -2), pool.v[0].float()
    slots = fb.out_slots
    assert torch.equal(pool.v[0][slots // PAGE, :, slots % PAGE], v), "values are not where they belong"
    assert torch.equal(pool.k[0][slots // PAGE, :, slots % PAGE], k), "keys are not where they belong"
    scale = config.head_dim**-0.5
    rows = (fb.page_table, fb.q_starts, fb.seq_lens)
    return _near(got, paged_attention(q.float(), keys, values, *rows, scale, options.window, options.soft_cap))


def _decode(setting: Setting, config: ModelConfig) -> float:
    lens = [0, 1, 15, 16, 40] if setting.size == "cpu" else [0, 1, 15, 16, 255, 256, 1023, 4100]
    return _attention(setting, config, [1] * len(lens), lens, LayerAttention())


def _decode_window(setting: Setting, config: ModelConfig) -> float:
    lens = [3, 37] if setting.size == "cpu" else [3, 700, 2050]
    return _attention(setting, config, [1] * len(lens), lens, LayerAttention(window=33, soft_cap=20.0))


def _cascade(setting: Setting, config: ModelConfig) -> float:
    rows, prefix, pages = (3, 40, 2) if setting.size == "cpu" else (32, 1030, 64)
    return _attention(setting, config, [1] * rows, [prefix + row for row in range(rows)], LayerAttention(), pages)


def _extend(setting: Setting, config: ModelConfig) -> float:
    extends, prefixes = ([33, 1, 20], [0, 17, 16]) if setting.size == "cpu" else ([700, 1, 65, 129], [0, 517, 16, 1000])
    exact = _attention(setting, config, extends, prefixes, LayerAttention())
    if setting.size == "cpu":  # rows too short for the large tiles
        return exact
    return max(exact, _attention(setting, config, extends, prefixes, LayerAttention(), deterministic=False))


def _extend_window(setting: Setting, config: ModelConfig) -> float:
    extends, prefixes = ([34], [16]) if setting.size == "cpu" else ([300, 90], [0, 250])
    return _attention(setting, config, extends, prefixes, LayerAttention(window=24, soft_cap=15.0))


def _rows(setting: Setting) -> int:
    return 3 if setting.size == "cpu" else 257


def _norm(setting: Setting, config: ModelConfig) -> float:
    x, residual = (_normal(setting, _rows(setting), config.hidden_size, seed=seed) for seed in (0, 1))
    weight = _normal(setting, config.hidden_size, seed=2)
    wide = weight.double().cpu().numpy()
    alone = _near(norm.rms_norm(x, weight, 1e-5), plain_norm.rms_norm(x.double().cpu().numpy(), wide, 1e-5))
    normed, total = norm.add_rms_norm(x, residual, weight, 1e-5)
    summed = x.double() + residual.double()
    _near(total, summed)
    return max(alone, _near(normed, plain_norm.rms_norm(total.double().cpu().numpy(), wide, 1e-5)))


def _rope(setting: Setting, config: ModelConfig) -> float:
    heads = _normal(setting, _rows(setting), config.num_heads + config.num_kv_heads, config.head_dim)
    angles = _normal(setting, len(heads), config.head_dim // 2, dtype=torch.float32) * 100
    cos, sin = angles.cos(), angles.sin()
    arrays = (array.double().cpu().numpy() for array in (heads, cos, sin))
    return _near(rope.rotate(heads, cos, sin), plain_rope.rotate(*arrays))


def _silu(setting: Setting, config: ModelConfig) -> float:
    gate_up = _normal(setting, _rows(setting), 2 * config.intermediate_size)
    gate, up = np.split(gate_up.double().cpu().numpy(), 2, axis=1)
    tanh = _near(silu.gated(gate_up, "gelu_tanh"), plain_silu.gelu_tanh_mul(gate, up))
    return max(tanh, _near(silu.gated(gate_up, "silu"), plain_silu.silu_mul(gate, up)))


def _linear_q4(setting: Setting, config: ModelConfig) -> float:
    """Against the product with the unpacked matrix, for each way that the number of rows chooses."""
    random = np.random.default_rng(0)
    inputs, outputs = config.hidden_size, min(config.intermediate_size, 2048)
    groups = inputs // 32
    raw = random.integers(0, 256, (outputs, groups, 20), dtype=np.uint8)
    raw[..., :4] = random.uniform(-0.05, 0.05, (outputs, groups, 2)).astype(np.float16).view(np.uint8)
    packed = pack_q4(raw.reshape(outputs, -1), "Q4_1", setting.device)
    matrix = unpack_q4(packed, torch.float32)
    scales = raw[..., :4].copy().view(np.float16).astype(np.float64)
    low, high = raw[..., 4:] & 15, raw[..., 4:] >> 4
    plain = np.concatenate([low, high], axis=-1) * scales[..., :1] + scales[..., 1:]
    worst = _near(matrix, plain.reshape(outputs, inputs), 1e-6)
    for rows in (1, 3) if setting.size == "cpu" else (1, 2, 16, 33, 256, 300):
        x = _normal(setting, rows, inputs)
        for exact in (False, True):
            worst = max(worst, _near(linear_q4(x, packed, deterministic=exact), x.float() @ matrix.T, 2 * _RELATIVE))
    return worst


_BY_MODEL: dict[str, Callable[[Setting, ModelConfig], float]] = {
    "decode attention": _decode,
    "decode attention, window and cap": _decode_window,
    "cascade attention": _cascade,
    "extend attention": _extend,
    "extend attention, window and cap": _extend_window,
    "norms": _norm,
    "rotary positions": _rope,
    "gated activation": _silu,
    "4-bit linear": _linear_q4,
}


def _vocab(setting: Setting) -> int:
    return 1030 if setting.size == "cpu" else LLAMA_8B.vocab_size


def _mask(setting: Setting) -> float:
    vocab = _vocab(setting)
    logits = _normal(setting, 4, vocab, dtype=torch.float32)
    bits = np.random.default_rng(0).integers(-(2**31), 2**31, (4, -(-vocab // 32))).astype(np.int32)
    rows = np.array([2, 0])
    expected = logits.cpu().numpy().copy()
    plain_mask.apply_token_mask(expected, bits, rows)
    device = setting.device
    token_mask.apply_token_mask(logits, torch.from_numpy(bits).to(device), torch.from_numpy(rows).to(device))
    assert np.array_equal(logits.cpu().numpy(), expected), "other tokens are masked"
    return 0.0


def _penalties(setting: Setting) -> float:
    vocab, device = _vocab(setting), setting.device
    logits = _normal(setting, 3, vocab, dtype=torch.float32)
    random = np.random.default_rng(0)
    seen = [random.choice(vocab, size, replace=False) for size in (0, 200)]
    counts = [random.integers(0, 5, len(ids)) for ids in seen]
    expected = logits.cpu().numpy().copy()
    for row, ids, times in zip((2, 1), seen, counts, strict=True):
        plain_penalties.penalize(expected[row], zip(ids.tolist(), times.tolist(), strict=True), 1.3, 0.4, 0.2)
    penalties.apply(
        logits,
        torch.tensor([2, 1], device=device),
        torch.tensor([0, len(seen[0]), len(seen[0]) + len(seen[1])], dtype=torch.int32, device=device),
        torch.from_numpy(np.concatenate(seen)).to(device),
        torch.from_numpy(np.concatenate(counts).astype(np.int32)).to(device),
        *(torch.tensor([value, value], dtype=torch.float32, device=device) for value in (1.3, 0.4, 0.2)),
    )
    return _near(logits, expected, 1e-6)


def _logprobs(setting: Setting) -> float:
    logits = _normal(setting, 2, _vocab(setting), dtype=torch.float32) * 4
    rows, ids, top = (torch.tensor(x, device=setting.device) for x in ([0, 1, 1], [5, 7, 300], [1]))
    found = logprobs.logprobs(logits, rows, ids, top, 5)
    plain = [log_softmax(row) for row in logits.cpu().numpy()]
    best = top_tokens(logits[1].cpu().numpy(), 5)
    assert found.top_ids[0].tolist() == best.tolist(), f"{found.top_ids[0].tolist()}, expected {best.tolist()}"
    given = _near(found.values, np.array([plain[0][5], plain[1][7], plain[1][300]]), 1e-6)
    return max(given, _near(found.top_values[0], plain[1][best], 1e-6))


def _sampling(setting: Setting) -> float:
    """Share of draws that differ from the definition: rounding decides at the edge of a sum, nowhere else."""
    logits = _normal(setting, 4 if setting.size == "cpu" else 64, _vocab(setting), dtype=torch.float32) * 3
    count, device = len(logits), setting.device
    random = np.random.default_rng(0)
    temperature = random.choice([0.0, 0.7, 1.0, 1.5], count)
    top_k, top_p = random.choice([0, 1, 40], count), random.choice([0.5, 0.9, 1.0], count)
    min_p, uniform = random.choice([0.0, 0.05], count), random.random(count)
    out = torch.empty(count, dtype=torch.int64, device=device)
    sampling.sample(
        logits,
        torch.tensor(temperature, dtype=torch.float32, device=device),
        torch.tensor(top_k, dtype=torch.int32, device=device),
        torch.tensor(top_p, dtype=torch.float64, device=device),
        torch.tensor(min_p, dtype=torch.float32, device=device),
        torch.tensor(uniform, dtype=torch.float64, device=device),
        out,
    )
    different = 0
    for i, row in enumerate(logits.cpu().numpy()):
        if temperature[i] == 0:
            assert int(out[i]) == int(row.argmax()), f"greedy gives {int(out[i])}, the best is {int(row.argmax())}"
            continue
        kept = kept_tokens(row.astype(np.float64), temperature[i], int(top_k[i]) or -1, top_p[i], min_p[i])
        different += int(out[i]) != draw_token(row.astype(np.float64), temperature[i], kept, uniform[i])
    share = different / count
    assert share <= 0.02, f"{different} of {count} draws differ"
    return share


_ALONE: dict[str, Callable[[Setting], float]] = {
    "token mask": _mask,
    "penalties": _penalties,
    "log-probabilities": _logprobs,
    "sampling": _sampling,
}
