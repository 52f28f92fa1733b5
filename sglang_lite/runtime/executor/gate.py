"""Which programs may begin: as many as their KV fits into the pool, in the order in which they came; it runs nothing.

A program with several gens comes back to what it has computed. With more of them under way than the pool holds each one
would lose its prefixes to the others and compute them again. So such a program begins once those under way leave room for
all that it may need, as far as its tree is known; one that has begun is never held back. Programs of a single gen have
nothing to come back to: they are not held, and not counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sglang_lite.request_tree import ForkOp, GenOp, Op, SelectOp, TextOp

_REQUESTS = (GenOp, SelectOp)

_BYTES_PER_TOKEN = 4
"""Of text that is not tokenised yet: a little less than in English, so a little too many tokens."""

_PAGE_TOKENS = 16
"""What a branch has beside its own tokens: copies in the page where it was forked, and the rest of its last page."""

_OPEN_GEN_TOKENS = 256
"""What a gen without a limit is taken to give."""


class ProgramGate:
    """Counts the KV of programs under way, in tokens, and holds the others back.

    Args:
        pool_tokens: what there is; None: nobody is held back.
    """

    def __init__(self, pool_tokens: int | None) -> None:
        self._pool_tokens = pool_tokens
        self._needs: dict[str, int] = {}
        self._head = ""
        self._held: deque[tuple[str, int, str]] = deque()

    @property
    def num_held(self) -> int:
        """Programs that wait for their turn."""
        return len(self._held)

    def may_begin(self, name: str, ops: Sequence[Op]) -> bool:
        """Whether a program whose first ops these are begins now; if not, `next_ready` names it later."""
        num_requests = sum([isinstance(op, _REQUESTS) for op in ops])
        if self._pool_tokens is None or num_requests < 2:
            return True
        need, head = tokens_needed(ops), _head(ops)
        if not self._held and self._fits(need, head):
            self._begin(name, need, head)
            return True
        self._held.append((name, need, head))
        return False

    def rests(self, name: str) -> None:
        """A program is over, or waits for its client: its KV is no reason to hold others back."""
        self._needs.pop(name, None)

    def forget(self, name: str) -> None:
        """A program that is held back will not begin."""
        self._held = deque(entry for entry in self._held if entry[0] != name)

    @property
    def under_way(self) -> list[str]:
        """The programs that count."""
        return list(self._needs)

    def next_ready(self) -> str | None:
        """The next held program that may begin now, counted from here on; None: there is none."""
        if not self._held or not self._fits(*self._held[0][1:]):
            return None
        name, need, head = self._held.popleft()
        self._begin(name, need, head)
        return name

    def _begin(self, name: str, need: int, head: str) -> None:
        shared = self._shared(head)
        self._needs[name] = need - shared
        self._head = head

    def _fits(self, need: int, head: str) -> bool:
        """The first one always begins, however large it is."""
        assert self._pool_tokens is not None, "without a pool nobody is held"
        return not self._needs or sum(self._needs.values()) + need - self._shared(head) <= self._pool_tokens

    def _shared(self, head: str) -> int:
        """Tokens that it has in common with the program that began last: rows of a batch begin alike."""
        return _common_bytes(head, self._head) // _BYTES_PER_TOKEN if self._needs else 0


def tokens_needed(ops: Sequence[Op]) -> int:
    """About how many tokens the branches of a program have in all at most, what they share counted once."""
    total = 0
    for op in ops:
        match op:
            case TextOp(text=text):
                total += -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)
            case GenOp(params=params):
                limit = _OPEN_GEN_TOKENS if params.max_new_tokens is None else params.max_new_tokens
                total += limit * params.n
            case SelectOp(choices=choices):
                total += max(len(choice.encode("utf-8", "replace")) for choice in choices) // _BYTES_PER_TOKEN + 1
            case ForkOp(children=children):
                total += _PAGE_TOKENS * len(children)
            case _:
                pass
    return total


def _head(ops: Sequence[Op]) -> str:
    """The text of the root up to the first op that is none."""
    parts: list[str] = []
    for op in ops:
        if isinstance(op, TextOp) and op.branch == 0:
            parts.append(op.text)
        elif isinstance(op, _REQUESTS):
            break
    return "".join(parts)


def _common_bytes(left: str, right: str) -> int:
    """Bytes of the longest common beginning."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left.startswith(right[:middle]):
            low = middle
        else:
            high = middle - 1
    return len(left[:low].encode("utf-8", "replace"))
