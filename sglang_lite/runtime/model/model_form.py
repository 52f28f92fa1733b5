"""In what form a model's weights lie on a device, and how a module made without memory gets it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from sglang_lite.runtime.model.linear import LinearMethod
from sglang_lite.runtime.model.linear_q4 import DeviceLinear, Q4Packer
from sglang_lite.runtime.model.rope import RotaryEmbedding

_Module = TypeVar("_Module", bound=nn.Module)


@dataclass(frozen=True)
class ModelForm:
    """Where a model's weights lie and as what.

    Attributes:
        device: as torch names it.
        dtype: of weights and activations.
        pack_q4: who keeps 4-bit matrices of a GGUF file as they are stored; None: they are turned into `dtype`.

    """

    device: str
    dtype: torch.dtype
    pack_q4: Q4Packer | None = None

    def linear(self, in_features: int, out_features: int) -> LinearMethod:
        """A `LinearFactory`."""
        return DeviceLinear(in_features, out_features, self.device, self.dtype, self.pack_q4)


def make_placed(make: Callable[[], _Module], form: ModelForm) -> _Module:
    """Make a module whose parameters lie where `form` says, with no values yet; each gets its memory once.

    Parameters that several modules share stay shared. Factors of rotary frequencies stay float32, with their values.
    """
    with torch.device("meta"):
        module = make()
    placed: dict[int, nn.Parameter] = {}
    for owner in module.modules():
        exact = isinstance(owner, RotaryEmbedding)
        for name, parameter in list(owner._parameters.items()):
            if parameter is None or parameter.device.type != "meta":
                continue
            if id(parameter) not in placed:
                kind = {"device": form.device, "dtype": torch.float32 if exact else form.dtype}
                values = torch.ones(parameter.shape, **kind) if exact else torch.empty(parameter.shape, **kind)
                placed[id(parameter)] = nn.Parameter(values, requires_grad=False)
            setattr(owner, name, placed[id(parameter)])
    return module
