"""A branch of a scripted program: its text, its marks, what it waits for; it executes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglang_lite.lang.backends.script import Fitted
from sglang_lite.request_tree import GenOp, SamplingParams, SelectOp


@dataclass(slots=True)
class Attempt:
    """The tries of a gen with `hold`: what is held now, and what earlier ones have left on the branch."""

    op: GenOp
    params: SamplingParams
    held: Fitted | None = None
    number: int = 1
    added: str = ""


@dataclass(slots=True)
class ScriptedBranch:
    """One branch.

    `forked_at`: where its own text begins. `ending`: what comes before the end of the open turn. `error`: what ended it; `is_dropped`: its program gave it up, so that its
    error harms no other. `asked`: the select or gen that waits for the program. `attempt`: of the gen that comes next
    or waits. `last_step`: when an op of it ended last. `marks`: text, role and number of children at each mark.
    """

    number: int
    text: str = ""
    forked_at: int = 0
    error: Exception | None = None
    role: str | None = None
    ending: str = ""
    is_dropped: bool = False
    asked: SelectOp | Attempt | None = None
    attempt: Attempt | None = None
    last_step: int = 0
    children: list[int] = field(default_factory=list[int])
    marks: dict[int, tuple[str, str | None, int]] = field(default_factory=dict[int, tuple[str, str | None, int]])

    def fork(self, number: int) -> ScriptedBranch:
        """A child that goes on from here; that of a failed branch has its error."""
        self.children.append(number)
        return ScriptedBranch(number, self.text, len(self.text), self.error, self.role)

    def mark(self, op: int) -> None:
        """Remember this point under the id of its op."""
        self.marks[op] = (self.text, self.role, len(self.children))

    def rewind(self, mark: int) -> list[int]:
        """Be what the branch was at `mark`; returns the children forked since then."""
        self.text, self.role, num_children = self.marks[mark]
        forked = self.children[num_children:]
        del self.children[num_children:]
        return forked

    @property
    def asked_op(self) -> SelectOp | GenOp | None:
        """The op that waits for the program."""
        return self.asked.op if isinstance(self.asked, Attempt) else self.asked
