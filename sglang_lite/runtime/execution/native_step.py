"""A Llama on the CPU as one native call a step: the file's own quantised weights, int8 activations, paged attention.

The model behind `CausalModel` that needs no torch modules. A row's numbers are the same to the bit whatever runs beside
it, however its tokens were cut into chunks, and on any number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from sglang_lite.kernels.cpu import llama_step as step
from sglang_lite.kernels.cpu.features import missing_features
from sglang_lite.kernels.cpu.jit import is_compiled, mark_compiled
from sglang_lite.kernels.cpu.linear import FLOAT, linear_address
from sglang_lite.kernels.cpu.paged_attention import plan_tiles
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
from sglang_lite.runtime.model.gguf_file import GgufFile
from sglang_lite.runtime.model.rope import RotaryEmbedding

_ARCHITECTURES = ("llama",)

# Field of a layer's table -> tensor of the layer.
_NORMS = {step.ATTN_NORM: "attn_norm", step.MLP_NORM: "ffn_norm"}
_LINEARS = {
    step.Q_LINEAR: "attn_q",
    step.K_LINEAR: "attn_k",
    step.V_LINEAR: "attn_v",
    step.O_LINEAR: "attn_output",
    step.GATE_LINEAR: "ffn_gate",
    step.UP_LINEAR: "ffn_up",
    step.DOWN_LINEAR: "ffn_down",
}


def build_native(
    gguf: GgufFile,
    config: ModelConfig,
    kv_pool: KvPool,
    team: StepTeam,
    cache_dir: Path,
    notice: Callable[[str], None],
) -> NativeStep | str:
    """The native step for a model, ready to run; or why there is none, in a sentence for the log.

    Args:
        gguf: the model's file.
        config: read from it.
        kv_pool: receives keys and values, in main memory.
        team: who computes.
        cache_dir: packed weights are kept below it.
        notice: called with one line before something that takes seconds, the first time on a machine.

    """
    reason = NativeStep.supports(gguf, config, kv_pool)
    if reason is not None:
        return reason
    weights = load_weights(gguf, config, cache_dir)
    _compile(weights, notice)
    freqs = gguf.tensors.get("rope_freqs.weight")
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
        self._floats = np.array([config.rms_norm_eps, config.head_dim**-0.5], dtype=np.float32)
        self._scratch_bytes = step.scratch_bytes(self._group, config.head_dim)
        self._scratch = np.zeros(team.count * self._scratch_bytes + 64, dtype=np.uint8)
        self._workspace = Workspace(config)
        self._vocab_blocks = -(-config.vocab_size // LANES)
        self._block = self._model_block()

    @staticmethod
    def supports(gguf: GgufFile, config: ModelConfig, kv_pool: KvPool) -> str | None:
        """None if the native step can run this model here, else what stands against it."""
        if config.architecture not in _ARCHITECTURES:
            return f"architecture {config.architecture!r} has no native step (known: {', '.join(_ARCHITECTURES)})"
        if missing := missing_features():
            return f"the processor lacks {', '.join(missing)}"
        if kv_pool.k.device.type != "cpu" or kv_pool.k.dtype != torch.float32:
            return f"the KV pool is {kv_pool.k.dtype} on {kv_pool.k.device}, expected float32 in main memory"
        if LANES % kv_pool.page_size and kv_pool.page_size % LANES:
            return f"pages of {kv_pool.page_size} tokens neither divide {LANES} nor are a multiple of it"
        for name in ("hidden_size", "intermediate_size", "head_dim"):
            if getattr(config, name) % 32:
                return f"{name} is {getattr(config, name)}, not a multiple of 32"
        return _beyond_plain(config) or unsupported_weight(gguf, config)

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
        tiles = plan_tiles(np.diff(host.q_starts), self._config.num_kv_heads, self._group)
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

    def _run(self, worker: int, phases: int, tokens: int, threads: int) -> None:
        self._workspace.enter(self._block, tokens)
        self._team.run(worker, self._block, phases, threads)

    def _model_block(self) -> np.ndarray:
        """The int64 block with everything that is the same in all steps."""
        config, weights, pool = self._config, self._weights, self._pool
        block = np.zeros(step.LAYER_TABLE + step.LAYER_FIELDS * config.num_layers, dtype=np.int64)
        head = weights.get("output.weight", weights["token_embd.weight"])
        embedding = weights["token_embd.weight"]
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
            step.FINAL_NORM: weights["output_norm.weight"].address,
            step.FLOATS: self._floats.ctypes.data,
            step.K_POOL: pool.k.data_ptr(),
            step.V_POOL: pool.v.data_ptr(),
            step.PAGES: pool.num_pages,
            step.PAGE_SIZE: pool.page_size,
            step.SCRATCH: -(-self._scratch.ctypes.data // 64) * 64,
            step.SCRATCH_BYTES: self._scratch_bytes,
            step.ATTEND: step.attend_function(),
        }
        for field, value in values.items():
            block[field] = value
        for layer in range(config.num_layers):
            fields = block[step.LAYER_TABLE + layer * step.LAYER_FIELDS :]
            for field, name in _NORMS.items():
                fields[field] = weights[f"blk.{layer}.{name}.weight"].address
            for field, name in _LINEARS.items():
                weight = weights[f"blk.{layer}.{name}.weight"]
                fields[field], fields[field + 1] = linear_address(weight.kind), weight.address
        return block


def _beyond_plain(config: ModelConfig) -> str | None:
    """What the model's configuration asks for that the step does not do."""
    asked = {
        "a sliding window": any(window is not None for window in config.windows),
        "an attention scale of its own": config.attention_scale is not None,
        "bounded scores": config.attention_soft_cap is not None or config.logit_soft_cap is not None,
        "scaled embeddings": config.embedding_scale != 1.0,
        f"the activation {config.activation}": config.activation != "silu",
        "biases": config.qkv_bias or config.out_bias or config.mlp_bias,
        "norms of queries and keys": config.qk_norm,
    }
    return next((f"{what} is not built into the native step" for what, there in asked.items() if there), None)


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
    compile_team()
    if not compiled:
        mark_compiled(part)
