"""Steps of the way of a GPU on tensors of the device `meta`, which have a type, a shape and no numbers.

So whatever would wait for the device fails (there is nothing to read), and so does an operation with a tensor of main memory. Kernels
are not run: each launch is compared with the kernel's compile cases. Run by `test_device_flow.py` in a process of its own;
prints a line for each part that went through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.jit import JITFunction

from sglang_lite.kernels.triton.catalogue import collect
from sglang_lite.kernels.triton.linear_q4 import pack_q4
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.triton import TritonAttention
from sglang_lite.runtime.execution.device_queue import HostBuffer, Mark
from sglang_lite.runtime.execution.device_runner import DeviceFlight, DeviceRunner
from sglang_lite.runtime.execution.graph_model import Graph, GraphedModel, GraphSettings
from sglang_lite.runtime.execution.model_runner import CausalModel
from sglang_lite.runtime.execution.triton_sampling import TritonSampling
from sglang_lite.runtime.memory.hold import PageCopy
from sglang_lite.runtime.model import gpu, moe
from sglang_lite.runtime.model.config import ExpertsConfig, ModelConfig
from sglang_lite.runtime.model.linear_q4 import DeviceLinear
from sglang_lite.runtime.model.llama import LlamaForCausalLM
from sglang_lite.runtime.model.model_form import ModelForm, make_placed
from sglang_lite.runtime.model.q4_kernels import TritonMatrix
from sglang_lite.runtime.scheduler.plan import FUTURE_TOKEN, LogprobTarget, Plan, RowPlan
from tests.runtime.execution.device_specs import VOCAB, every_way_to_sample
from tests.runtime.execution.support import plan_of, row, spec

DEVICE = torch.device("meta")
PAGE = 16
CONTEXT = 128
CONFIG = ModelConfig(
    architecture="llama",
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    vocab_size=VOCAB,
    rms_norm_eps=1e-5,
    max_position=CONTEXT,
    tie_word_embeddings=True,
    qk_norm=True,
)
POINTERS = {
    torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32", torch.float64: "*fp64",
    torch.int32: "*i32", torch.int64: "*i64", torch.uint8: "*u8",
}  # fmt: skip


class OnDevice(TorchDispatchMode):
    """Every operation with a tensor of the device has no other one, but for transfers that the host does not wait for.

    Attributes:
        is_recording: a graph is captured; nothing may be transferred.

    """

    def __init__(self) -> None:
        super().__init__()
        self.is_recording = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        result = func(*args, **kwargs)
        made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        places = {x.device.type for x in (*tensors, *made) if x.dim() or x.device.type == "meta"}
        if len(places) > 1:
            name = func.overloadpacket.__name__
            assert name in ("copy_", "_to_copy", "to"), f"{func} on {sorted(places)}"
            assert not self.is_recording, f"{func}: a transfer while a graph is recorded"
            is_free = kwargs.get("non_blocking", False) or (len(args) > 2 and args[2])
            assert is_free, f"{func}: the host waits for a transfer of {[tuple(x.shape) for x in tensors]}"
        return result


class Launches:
    """Stands for the launch of every kernel; notes how often each was launched."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._known: dict[str, list[dict[str, str]]] = {}
        for case in collect():
            self._known.setdefault(case.kernel.__name__, []).append(dict(case.signature))

    def launch(self, kernel: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        name = kernel.__name__
        given = dict(zip(kernel.arg_names, args, strict=False)) | kwargs
        tensors = {key: given[key] for key in kernel.arg_names if isinstance(given[key], torch.Tensor)}
        places = {key: value.device.type for key, value in tensors.items() if value.device != DEVICE}
        assert not places, f"{name}: {places}"
        kinds = {key: POINTERS[value.dtype] for key, value in tensors.items()}
        known = [{key: kind for key, kind in one.items() if kind.startswith("*")} for one in self._known[name]]
        assert kinds in known, f"{name} is launched with {kinds}, compiled for {known}"
        assert all(size > 0 for size in kwargs["grid"]), f"{name}: grid {kwargs['grid']}"
        self.counts[name] += 1


class DeviceBuffer(HostBuffer):
    """Transfers that move nothing."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__(num_bytes, pinned=False)

    def to_device(self, num_bytes: int, device: torch.device) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8, device=device)

    def from_device(self, tensor: torch.Tensor) -> None:
        assert (tensor.device, tensor.dtype, tensor.is_contiguous()) == (DEVICE, torch.int64, True), tensor
        assert 8 * len(tensor) <= self.num_bytes, f"{len(tensor)} numbers for {self.num_bytes} bytes"


class _Reached:
    def wait(self) -> None:
        return


class DeviceQueue:
    """What is queued is looked at by `OnDevice`."""

    device = DEVICE

    def __init__(self, mode: OnDevice) -> None:
        self._mode = mode

    def submit(self, work: Callable[[], None]) -> None:
        with self._mode:
            work()

    def mark(self) -> Mark:
        return _Reached()

    def host_buffer(self, num_bytes: int) -> HostBuffer:
        return DeviceBuffer(num_bytes)


class RecordedGraph:
    def replay(self) -> None:
        return

    def release(self) -> None:
        return


class RecordedGraphs:
    """A capture forbids transfers; a replay does nothing of its own."""

    def __init__(self, mode: OnDevice) -> None:
        self._mode = mode

    def capture(self, launch: Callable[[], None]) -> Graph:
        self._mode.is_recording = True
        with self._mode:
            launch()
        self._mode.is_recording = False
        return RecordedGraph()

    def free_bytes(self) -> int:
        return 1 << 40


def make_runner(mode: OnDevice, dtype: torch.dtype, *, graphs: bool) -> DeviceRunner:
    model = make_placed(lambda: LlamaForCausalLM(CONFIG, form.linear), form := ModelForm("meta", dtype))
    for module in model.modules():
        if isinstance(module, DeviceLinear):
            values = torch.empty(module.out_features, module.in_features, dtype=dtype, device="meta")
            module.weight = torch.nn.Parameter(values, requires_grad=False)
    # Angles are computed on the host, once; what was computed is there.
    model.rope._cos, model.rope._sin = (torch.empty(1024, CONFIG.head_dim // 2, device="meta") for _ in range(2))
    pool = KvPool(2, 64, CONFIG.num_kv_heads, CONFIG.head_dim, PAGE, "meta", dtype, token_major=True)
    attention = TritonAttention(pool, CONFIG.num_heads)
    runs: CausalModel = model
    if graphs:
        runs = GraphedModel(model, attention, RecordedGraphs(mode), GraphSettings((1, 4, 8), CONTEXT, PAGE, "meta"))
        runs.capture()
    queue, ops = DeviceQueue(mode), TritonSampling()
    return DeviceRunner(runs, attention, pool, vocab_size=VOCAB, queue=queue, ops=ops)


def fly(runner: DeviceRunner, launched: Plan, resolved: Plan | None = None) -> DeviceFlight:
    flight = runner.launch(launched)
    flight.sample(resolved or launched)
    return flight


def prompts(lens: Sequence[int], step: int) -> Plan:
    specs = every_way_to_sample()
    rows: list[RowPlan] = []
    for i, count in enumerate(lens):
        ids = [5 + (i + j) % 40 for j in range(count)]
        own = specs[i % len(specs)]._replace(position=count, prompt_ids=ids[:1], output_ids=tuple(ids[1:]))
        pages = [1 + 4 * i + page for page in range(-(-count // PAGE))]
        rows.append(row(f"r{i}", ids, pages, sample=own, targets=[LogprobTarget(0, (4, 5), i % 3)]))
    return replace(plan_of(*rows, copies=[PageCopy(1, 60, 5)]), step=step)


def next_tokens(count: int, length: int, step: int) -> tuple[Plan, Plan]:
    """Rows of one token in flight, and the same with their tokens."""
    rows = [
        row(f"r{i}", [FUTURE_TOKEN], [1 + 4 * i + page for page in range(-(-(length + 1) // PAGE))], prefix_len=length)
        for i in range(count)
    ]
    launched = [one._replace(is_future=True, sample=spec(position=length + 1)) for one in rows]
    resolved = [one._replace(is_future=False, input_ids=(7,)) for one in launched]
    return replace(plan_of(*launched), step=step), replace(plan_of(*resolved), step=step)


def drafts(step: int) -> Plan:
    one = row("r0", [4, 5, 6], [1, 2], prefix_len=20, sample=spec(position=23))
    return replace(plan_of(one._replace(drafts=(spec(position=21), spec(position=22)))), step=step)


def check_steps(launches: Launches, dtype: torch.dtype, *, graphs: bool) -> None:
    mode = OnDevice()
    runner = make_runner(mode, dtype, graphs=graphs)
    launches.counts.clear()
    fly(runner, prompts([20] * 8, 1))
    fly(runner, prompts([50, 1, 3, 40], 2))
    for step, count in enumerate((4, 3, 1), start=3):
        fly(runner, *next_tokens(count, 20 + step, step))
    fly(runner, drafts(6))
    wanted = {"store_kv_kernel", "split_attention_kernel", "combine_kernel", "extend_attention_kernel", "rotate_kernel"}
    wanted |= {
        "rms_norm_kernel",
        "add_rms_norm_kernel",
        "gated_kernel",
        "draw_kernel",
        "penalties_kernel",
        "top_kernel",
    }
    assert wanted | {"bias_kernel", "token_mask_kernel", "values_kernel"} <= set(launches.counts), launches.counts
    if isinstance(model := runner.model, GraphedModel):
        assert model.counters.to_dict()["replays"] == {"1": 1, "4": 2}, model.counters
    print(f"steps in {str(dtype).removeprefix('torch.')}{' with graphs' if graphs else ''}")


def check_experts(launches: Launches) -> None:
    """The two ways of few tokens may be captured."""
    for count, tokens in ((64, 3), (4, 8)):
        experts = ExpertsConfig(count=count, per_token=2, intermediate_size=32, renormalise=True)
        with torch.device("meta"):
            mlp = moe.SparseMLP(64, experts, "silu").bfloat16()
        mode = OnDevice()
        mode.is_recording = True
        x = torch.empty(tokens, 64, dtype=torch.bfloat16, device="meta")
        with mode, torch.inference_mode():
            weights, chosen = mlp.route(x)
            run = mlp.run_gathered if 3 * chosen.numel() <= count else mlp.run_every_expert
            assert run(x, weights, chosen).shape == x.shape
    print("experts")


def check_4_bit_products(launches: Launches) -> None:
    raw: NDArray[np.uint8] = np.zeros((48, 2 * 18), dtype=np.uint8)
    matrix = TritonMatrix(pack_q4(raw, "Q4_0", DEVICE), deterministic=False)
    mode = OnDevice()
    mode.is_recording = True
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for rows in (1, 2, 16, 200, 300):
            with mode, torch.inference_mode():
                out = matrix.multiply(torch.empty(rows, 64, dtype=dtype, device="meta"))
            assert (out.shape, out.dtype) == ((rows, 48), dtype)
    assert {"q4_row_kernel", "q4_tiles_kernel", "q4_unpack_kernel"} <= set(launches.counts), launches.counts
    print("4-bit products")


@contextmanager
def standing_in() -> Iterator[Launches]:
    launches = Launches()
    run, on_gpu = JITFunction.run, gpu.is_on_gpu

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:
        launches.launch(self, args, kwargs)

    JITFunction.run = launch
    gpu.is_on_gpu = lambda x: x.device == DEVICE
    try:
        yield launches
    finally:
        JITFunction.run, gpu.is_on_gpu = run, on_gpu


if __name__ == "__main__":
    with standing_in() as launches:
        for kind in (torch.bfloat16, torch.float32):
            for graphs in (False, True):
                check_steps(launches, kind, graphs=graphs)
        check_experts(launches)
        check_4_bit_products(launches)
