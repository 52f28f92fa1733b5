"""Ops and events have one home, and the contract shows all of them."""

from __future__ import annotations

from sglang_lite import ops, request_tree


def test_the_contract_has_every_name_of_the_ops() -> None:
    assert set(ops.__all__) <= set(request_tree.__all__)
    assert all(getattr(request_tree, name) is getattr(ops, name) for name in ops.__all__)


def test_every_op_is_frozen_and_says_where_it_stands() -> None:
    kinds = [kind for name in ops.__all__ if isinstance(kind := vars(ops)[name], type) and issubclass(kind, ops.Op)]
    assert len(kinds) > 15
    assert all(list(kind.__dataclass_fields__)[:2] == ["id", "branch"] for kind in kinds)
