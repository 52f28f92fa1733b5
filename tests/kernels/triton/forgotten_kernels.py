"""Run in a process of its own: modules whose kernels have no compile case, or not all of them, are refused."""

from __future__ import annotations

from types import ModuleType

import triton

from sglang_lite.kernels.triton.catalogue import cases_of
from sglang_lite.kernels.triton.compile_case import CompileCase


@triton.jit
def first_kernel(x):
    pass


@triton.jit
def second_kernel(x):
    pass


def complaint(**members: object) -> str:
    """What is said of a module with these members."""
    module = ModuleType(__name__)
    vars(module).update(members)
    try:
        cases_of(module)
    except AssertionError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    case = CompileCase("m.first_kernel", first_kernel, {"x": "*fp32"})
    assert "no compile_cases()" in complaint(first_kernel=first_kernel)
    print("no cases")
    both = {"first_kernel": first_kernel, "second_kernel": second_kernel}
    assert "leaves out ['second_kernel']" in complaint(**both, compile_cases=lambda: [case])
    print("one left out")
    assert not complaint(first_kernel=first_kernel, compile_cases=lambda: [case])
    print("none")
