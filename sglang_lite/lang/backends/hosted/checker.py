"""Looks at the ops of a program before they run: what an API cannot do is refused before anything is paid for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from sglang_lite.lang.backends.hosted.abilities import Abilities, Place
from sglang_lite.request_tree import (
    ArgOp,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    Op,
    RefOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TemplateOp,
    TextOp,
)


class Checker:
    """Follows where the next op of each branch of one program will stand."""

    def __init__(self, abilities: Abilities, num_speculated: int | None) -> None:
        self._abilities = abilities
        self._num_speculated = num_speculated
        self._places: dict[int, Place] = {0: Place()}
        self._marks: dict[int, Place] = {}

    def check(self, ops: Sequence[Op]) -> None:
        """Check ops in order.

        Raises:
            UnsupportedError: one cannot be done there; none of `ops` shall run.
        """
        for op in ops:
            place = self._places.get(op.branch)
            if place is not None:
                self._abilities.check(op, place, self._num_speculated)
                self._places[op.branch] = self._after(op, place)

    def _after(self, op: Op, place: Place) -> Place:
        match op:
            case TextOp(text=text):
                return place.with_text() if text.strip() else place
            case GenOp() | SelectOp() | RefOp() | ArgOp():
                return place.with_text()
            case RoleBeginOp(role=role):
                return place.with_role(role)
            case RoleEndOp():
                return place.without_role()
            case ForkOp(children=children):
                self._places.update(dict.fromkeys(children, place))
            case JoinOp(children=children, mode="concat"):
                for child in children:
                    place = place.joined(self._places.get(child, Place()))
            case TemplateOp(variables=variables):
                named = json.loads(variables)
                return replace(place, has_tools=bool(named["tools"])) if "tools" in named else place
            case MarkOp():
                self._marks[op.id] = place
            case RewindOp(mark=mark):
                return self._marks.get(mark, place)
            case _:
                pass
        return place
