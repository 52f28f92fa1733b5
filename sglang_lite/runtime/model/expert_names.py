"""What the tensors of experts are called in each kind of file: one for each expert, or one for all of a layer."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from sglang_lite.runtime.model.config import ExpertsConfig
from sglang_lite.runtime.model.weights import WeightPart


@dataclass(frozen=True)
class ExpertNames:
    """One layout. Names inside a layer, whole; `{}` stands for an expert's number where each has a tensor of its own.

    Attributes:
        router: scores of the experts.
        gate: the gates, or gates above ups where `up` is None.
        up: the other factor of the gated product.
        down: back to the residual stream.

    """

    router: str
    gate: str
    up: str | None
    down: str

    def example(self) -> str:
        """A name that files of this layout have in each layer with experts, and files of the others lack."""
        return self.down.format(0)


_FUSED = ExpertNames("mlp.gate.weight", "mlp.experts.gate_up_proj", None, "mlp.experts.down_proj")

MIXTRAL_FOLDER_EXPERTS = (
    ExpertNames(
        "block_sparse_moe.gate.weight",
        "block_sparse_moe.experts.{}.w1.weight",
        "block_sparse_moe.experts.{}.w3.weight",
        "block_sparse_moe.experts.{}.w2.weight",
    ),
    _FUSED,
)
QWEN3_MOE_FOLDER_EXPERTS = (
    ExpertNames(
        "mlp.gate.weight",
        "mlp.experts.{}.gate_proj.weight",
        "mlp.experts.{}.up_proj.weight",
        "mlp.experts.{}.down_proj.weight",
    ),
    _FUSED,
)
GGUF_EXPERTS = (
    ExpertNames("ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"),
    # Files of Mixtral from before the tensors were joined.
    ExpertNames("ffn_gate_inp.weight", "ffn_gate.{}.weight", "ffn_up.{}.weight", "ffn_down.{}.weight"),
)


def layout_of(layouts: Sequence[ExpertNames], layer: str, tensors: Container[str]) -> ExpertNames:
    """The layout of a file, by its tensors under the prefix `layer`, a layer with experts; the first where none fits."""
    return next((layout for layout in layouts if layer + layout.example() in tensors), layouts[0])


def expert_parts(
    names: ExpertNames, experts: ExpertsConfig, hidden: int, source: str, target: str
) -> Iterator[WeightPart]:
    """Every tensor of one layer's experts.

    Args:
        names: the layout of the file.
        experts: the sizes.
        hidden: width of the residual stream.
        source: the layer's prefix in the file.
        target: the `SparseMLP` in the module, with a dot behind.

    """
    inner = experts.intermediate_size
    yield WeightPart(source + names.router, target + "router", (experts.count, hidden))
    rows = {"gate": (names.gate, "gate_up", 0, inner if names.up else 2 * inner, hidden)}
    if names.up is not None:
        rows["up"] = (names.up, "gate_up", inner, inner, hidden)
    rows["down"] = (names.down, "down", 0, hidden, inner)
    for name, weight, first, height, width in rows.values():
        if "{}" not in name:
            yield WeightPart(source + name, target + weight, (experts.count, height, width), first)
            continue
        of_one = 2 * inner if weight == "gate_up" else hidden
        for expert in range(experts.count):
            yield WeightPart(source + name.format(expert), target + weight, (height, width), expert * of_one + first)
