"""A decoder on the CPU as one native call a step: the file's own quantised weights, int8 activations, paged attention.

The model behind `CausalModel` that needs no torch modules. A row's numbers are the same to the bit whatever runs beside
it, however its tokens were cut into chunks, and on any number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sglang_lite.kernels.cpu import llama_step as step
from sglang_lite.kernels.cpu.features import missing_features
from sglang_lite.kernels.cpu.jit import is_compiled, mark_compiled
from sglang_lite.kernels.cpu.linear import FLOAT, linear_address
from sglang_lite.kernels.cpu.shared_tiles import plan_batch_tiles
from sglang_lite.kernels.cpu.simd import LANES
from sglang_lite.kernels.cpu.step_team import StepTeam, compile_team
from sglang_lite.kernels.cpu.team import LENGTH
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.execution.native_threads import ThreadChoice
from sglang_lite.runtime.execution.native_weights import Weights, load_weights, unsupported_weight
from sglang_lite.runtime.execution.native_workspace import Workspace
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.rope import RotaryEmbedding
from sglang_lite.runtime.model.weight_names import WeightSource

_ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma2")

# Field of a layer's table -> part of the weights; where a model lacks one, the field is 0.
_LINEARS = {
    step.Q_LINEAR: "q",
    step.K_LINEAR: "k",
    step.V_LINEAR: "v",
    step.O_LINEAR: "out",
    step.GATE_LINEAR: "gate",
    step.UP_LINEAR: "up",
    step.DOWN_LINEAR: "down",
}
_VECTORS = {
    step.ATTN_NORM: "attn_norm",
    step.MLP_NORM: "mlp_norm",
    step.Q_BIAS: "q_bias",
    step.K_BIAS: "k_bias",
    step.V_BIAS: "v_bias",
    step.O_BIAS: "out_bias",
    step.GATE_BIAS: "gate_bias",
    step.UP_BIAS: "up_bias",
    step.DOWN_BIAS: "down_bias",
    step.Q_NORM: "q_norm",
    step.K_NORM: "k_norm",
    step.ATTN_POST_NORM: "attn_post_norm",
    step.MLP_POST_NORM: "mlp_post_norm",
}
_KV_BYTES = {torch.float32: 4, torch.float16: 2, torch.int8: 1}


def build_native(
    source: WeightSource,
    config: ModelConfig,
    kv_pool: KvPool,
    team: StepTeam,
    cache_dir: Path,
    notice: Callable[[str], None],
) -> NativeStep | str:
    """The native step for a model, ready to run; or why there is none, in a sentence for the log.

    Args:
        source: the model's file or folder.
        config: read from it.
        kv_pool: receives keys and values, in main memory.
        team: who computes.
        cache_dir: packed weights are kept below it.
        notice: called with one line before something that takes seconds, the first time on a machine.

    """
    reason = NativeStep.supports(source, config, kv_pool)
    if reason is not None:
        return reason
    weights = load_weights(source, config, cache_dir)
    _compile(weights, notice)
    freqs = source.tensors.tensors.get(source.names.freq_factors or "")
    return NativeStep(config, weights, kv_pool, team, None if freqs is None else freqs.dequantize())


class NativeStep:
    """A `CausalModel`. One thread uses it at a time."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        kv_pool: KvPool,
        team: StepTeam,
        freq_factors: np.ndarray | None = None,
    ) -> None:
        """Bind to a pool; `supports` must have said None. `freq_factors`: float32 [head_dim / 2], divide the frequencies."""
        self._config = config
        self._weights = weights
        self._pool = kv_pool
        self._team = team
        self._choice = ThreadChoice(team.count)
        self._group = config.num_heads // config.num_kv_heads
        self._rope = RotaryEmbedding(config.rope, config.head_dim)
        if freq_factors is not None:
            self._rope.freq_factors.data.copy_(torch.tensor(freq_factors))
        self._floats = _numbers(config)
        self._scratch_bytes = step.scratch_bytes(self._group, config.head_dim)
        self._scratch = np.zeros(team.count * self._scratch_bytes + 64, dtype=np.uint8)
        self._workspace = Workspace(config)
        self._vocab_blocks = -(-config.vocab_size // LANES)
        self._block = self._model_block()

    @staticmethod
    def supports(source: WeightSource, config: ModelConfig, kv_pool: KvPool) -> str | None:
        """None if the native step can run this model here, else what stands against it."""
        if config.architecture not in _ARCHITECTURES:
            return f"architecture {config.architecture!r} has no native step (known: {', '.join(_ARCHITECTURES)})"
        if missing := missing_features():
            return f"the processor lacks {', '.join(missing)}"
        if kv_pool.k.device.type != "cpu" or kv_pool.k.dtype not in _KV_BYTES:
            return f"the KV pool is {kv_pool.k.dtype} on {kv_pool.k.device}, expected float32, float16 or int8 in main memory"
        if LANES % kv_pool.page_size and kv_pool.page_size % LANES:
            return f"pages of {kv_pool.page_size} tokens neither divide {LANES} nor are a multiple of it"
        for name in ("hidden_size", "intermediate_size"):
            if getattr(config, name) % 32:
                return f"{name} is {getattr(config, name)}, not a multiple of 32"
        group = config.num_heads // config.num_kv_heads
        if config.head_dim % LANES or group * config.head_dim % 32:
            return f"head_dim is {config.head_dim} with {group} query heads for a kv head, together no multiple of 32"
        return unsupported_weight(source, config)

    def forward(self, fb: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Run all layers on the batch's new tokens; writes their keys and values.

        Args:
            fb: the batch; page size and pages are the pool's.
            attention: not used; the step attends by itself.

        Returns:
            float32 [T, hidden], before the final norm: what `logits` takes.

        """
        host, block = fb.host, self._block
        assert fb.page_size == self._pool.page_size, (
            f"batch pages of {fb.page_size}, pool pages of {self._pool.page_size}"
        )
        x = np.empty((fb.num_tokens, self._config.hidden_size), dtype=np.float32)
        ids = fb.input_ids.numpy()
        rows = (host.q_starts, host.seq_lens, host.page_table)
        tiles = plan_batch_tiles(*rows, fb.page_size, self._config.num_kv_heads, self._group)
        cos, sin = self._rope.tables(int(host.seq_lens.max(initial=1)))
        block[step.COS], block[step.SIN] = cos.data_ptr(), sin.data_ptr()
        block[step.TOKENS], block[step.ROWS] = fb.num_tokens, fb.num_rows
        block[step.IDS], block[step.X] = ids.ctypes.data, x.ctypes.data
        block[step.POSITIONS], block[step.SLOTS] = host.positions.ctypes.data, host.out_slots.ctypes.data
        block[step.PAGE_TABLE], block[step.TABLE_WIDTH] = host.page_table.ctypes.data, host.page_table.shape[1]
        block[step.Q_STARTS], block[step.SEQ_LENS] = host.q_starts.ctypes.data, host.seq_lens.ctypes.data
        block[step.TILES], block[step.NUM_TILES] = tiles.ctypes.data, len(tiles)
        threads, start = self._choice.choose(fb.num_tokens), time.perf_counter()
        self._run(step.layers_worker(), step.step_phases(self._config.num_layers), fb.num_tokens, threads)
        self._choice.report(fb.num_tokens, threads, time.perf_counter() - start)
        return torch.from_numpy(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, float32 [n, hidden] -> float32 [n, vocab]; pass only the rows that need them."""
        rows = hidden.contiguous().numpy()
        out = np.empty((len(rows), LANES * self._vocab_blocks), dtype=np.float32)
        if len(rows):
            block = self._block
            block[step.TOKENS], block[step.X], block[step.LOGITS] = len(rows), rows.ctypes.data, out.ctypes.data
            self._run(step.head_worker(), step.HEAD_PHASES, len(rows), self._choice.best)
        return torch.from_numpy(out[:, : self._config.vocab_size])

    def logits_of(self, hidden: torch.Tensor, ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Scores of a few tokens a row, the same to the bit as among all: float32 [n, hidden] -> n rows of float32 [len(ids[i])]."""
        rows, lens = hidden.contiguous().numpy(), [len(own) for own in ids]
        wanted = np.repeat(np.arange(len(rows)), lens) * self._vocab_blocks * LANES + np.concatenate(ids)
        keys, places = np.unique(wanted // LANES, return_inverse=True)
        picks = np.stack(np.divmod(keys, self._vocab_blocks), axis=1)
        out = np.empty((len(picks), LANES), dtype=np.float32)
        block = self._block
        block[step.TOKENS], block[step.X], block[step.LOGITS] = len(rows), rows.ctypes.data, out.ctypes.data
        block[step.PICKS], block[step.NUM_PICKS] = picks.ctypes.data, len(picks)
        self._run(step.picked_head_worker(), step.HEAD_PHASES, len(rows), self._choice.best)
        return np.split(out[places, wanted % LANES], np.cumsum(lens)[:-1])

    def _run(self, worker: int, phases: int, tokens: int, threads: int) -> None:
        self._workspace.enter(self._block, tokens)
        self._team.run(worker, self._block, phases, threads)

    def _model_block(self) -> np.ndarray:
        """The int64 block with everything that is the same in all steps."""
        config, weights, pool = self._config, self._weights, self._pool
        block = np.zeros(step.LAYER_TABLE + step.LAYER_FIELDS * config.num_layers, dtype=np.int64)
        embedding = weights["embed"]
        head = weights.get("head", embedding)
        values = {
            LENGTH: len(block),
            step.LAYERS: config.num_layers,
            step.HIDDEN: config.hidden_size,
            step.INNER: config.intermediate_size,
            step.HEADS: config.num_heads,
            step.KV_HEADS: config.num_kv_heads,
            step.DEPTH: config.head_dim,
            step.VOCAB_BLOCKS: self._vocab_blocks,
            step.EMBED_KIND: embedding.kind,
            step.EMBED: embedding.address,
            step.HEAD_LINEAR: linear_address(head.kind),
            step.HEAD: head.address,
            step.HEAD_ROUNDS: int(head.kind != FLOAT),
            step.FINAL_NORM: weights["norm"].address,
            step.FLOATS: self._floats.ctypes.data,
            step.K_POOL: pool.k.data_ptr(),
            step.V_POOL: pool.v.data_ptr(),
            step.K_SCALES: pool.k_scales.data_ptr(),
            step.V_SCALES: pool.v_scales.data_ptr(),
            step.PAGES: pool.num_pages,
            step.PAGE_SIZE: pool.page_size,
            step.SCRATCH: -(-self._scratch.ctypes.data // 64) * 64,
            step.SCRATCH_BYTES: self._scratch_bytes,
            step.ATTEND: step.attend_function(),
            step.KV_ITEM: _KV_BYTES[pool.k.dtype],
            step.GELU: int(config.activation == "gelu_tanh"),
            step.HEAD_NORMS: int(config.qk_norm),
        }
        for field, value in values.items():
            block[field] = value
        for layer in range(config.num_layers):
            fields = block[step.LAYER_TABLE + layer * step.LAYER_FIELDS :]
            for field, part in _VECTORS.items():
                vector = weights.get(f"{layer}.{part}")
                fields[field] = vector.address if vector is not None else 0
            for field, part in _LINEARS.items():
                weight = weights[f"{layer}.{part}"]
                fields[field], fields[field + 1] = linear_address(weight.kind), weight.address
            fields[step.WINDOW] = config.attention_of(layer).window or 0
        return block


def _numbers(config: ModelConfig) -> np.ndarray:
    """The floats of a step, in the order that `llama_step` names."""
    numbers = np.zeros(5, dtype=np.float32)
    numbers[step.EPS] = config.rms_norm_eps
    numbers[step.SCALE] = config.head_dim**-0.5 if config.attention_scale is None else config.attention_scale
    numbers[step.ATTENTION_CAP] = config.attention_soft_cap or 0.0
    numbers[step.LOGIT_CAP] = config.logit_soft_cap or 0.0
    numbers[step.EMBED_SCALE] = config.embedding_scale
    return numbers


def _compile(weights: Weights, notice: Callable[[str], None]) -> None:
    """Compile or load everything that this model's steps call."""
    kinds = sorted({weight.kind for weight in weights.values() if weight.kind})
    part = f"native-step-{'-'.join(map(str, kinds))}"
    compiled = is_compiled(part)
    if not compiled:
        notice("compiling the native step (once for this machine, about 10 s)")
    for kind in kinds:
        linear_address(kind)
    step.attend_function()
    step.layers_worker()
    step.head_worker()
    step.picked_head_worker()
    compile_team()
    if not compiled:
        mark_compiled(part)
