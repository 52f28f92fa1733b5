"""What it takes to compile one Triton kernel for a GPU that need not be there; knows no kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class CompileCase:
    """One kernel with the types and constants of one call.

    Attributes:
        name: `module.kernel[what is special]`, unique.
        kernel: the jit function.
        signature: by argument `*bf16`, `i32`, `i32:16` (a multiple of 16), `fp32`, ... or `constexpr`, in the kernel's order.
        constants: the value of each constexpr.
        options: of the compiler, such as `num_warps` and `num_stages`.

    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
