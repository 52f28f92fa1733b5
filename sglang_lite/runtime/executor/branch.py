"""A branch: the token sequence that ops extend. It owns its ids and its open span, not its requests."""

from __future__ import annotations

from collections import deque

from sglang_lite.errors import RequestError
from sglang_lite.request_tree import Op
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.tokenizer import Tokenizer


class Branch:
    """One branch of a program.

    Text between two generated values, fork points or special tokens is one *span*: its pieces are joined and tokenised
    once, when the ids are needed. Generated ids are kept as they are.

    Attributes:
        id, parent: branch ids; the root's parent is None.
        ids: the tokens so far, without the open span.
        queue: ops that wait for the one that runs.
        running: the op whose request is under way.
        failed: why the branch can do nothing more.
        is_born: a fork child is born when its parent reaches the fork; until then its ops wait.
        is_ended: no further ops come.
        has_run: a request ran on it or, before the fork, on its parent. `has_own_run`: on it.
        num_ops: ops executed so far; with `path` it places an op in its program.
        path: the branch ids from the root.
    """

    def __init__(self, branch_id: int, parent: Branch | None) -> None:
        self.id = branch_id
        self.parent = parent
        self.path: tuple[int, ...] = (*parent.path, branch_id) if parent else (branch_id,)
        self.ids: list[int] = []
        self.queue: deque[Op] = deque()
        self.running: Op | None = None
        self.failed: Exception | None = None
        self.is_born = parent is None
        self.is_ended = False
        self.has_run = False
        self.has_own_run = False
        self.num_ops = 0
        self.text_since_fork: list[str] = []
        self._pieces: list[tuple[str, bool]] = []
        self._history: list[tuple[str, str]] = []
        self._role: str | None = None
        self._content: list[str] = []
        self._starts_with_role = False

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nothing waits here."""
        return self.running is None and not self.queue

    def add_text(self, text: str, *, literal: bool) -> None:
        """Append program text to the open span; inside a role block it is never parsed for special tokens."""
        if text:
            self._pieces.append((text, not literal and self._role is None))
            self._note(text)

    def begin_role(self, role: str, chat: ChatTemplate) -> str:
        """Open a turn; returns the template's prefix, now part of the branch."""
        prefix = chat.role_begin(self._history, role)
        if not self.ids and not self._pieces:
            self._starts_with_role = True
        self._role, self._content = role, []
        self._pieces.append((prefix, True))
        self.text_since_fork.append(prefix)
        return prefix

    def end_role(self, chat: ChatTemplate) -> str:
        """Close the open turn; returns the template's suffix, now part of the branch."""
        assert self._role is not None, f"branch {self.id}: a role is open when it is closed"
        content = "".join(self._content)
        suffix = chat.role_end(self._history, self._role)
        self._history.append((self._role, content))
        self._role = None
        self._pieces.append((suffix, True))
        self.text_since_fork.append(suffix)
        return suffix

    def add_generated(self, ids: list[int], text: str, tail: str) -> None:
        """Append generated ids whose text is `text`; `tail`, the visible rest of a cut token, begins the next span."""
        self.ids.extend(ids)
        if tail:
            self._pieces.append((tail, False))
        self._note(text)

    def flush(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Tokenise the open span; returns all ids of the branch.

        Raises:
            RequestError: the branch has no token to continue from.
        """
        self.close_span(tokenizer)
        if not self.ids and tokenizer.needs_bos(()):
            self._extend_from_text([], tokenizer)
        if not self.ids:
            raise RequestError(
                "generating on an empty branch: the prompt has no tokens, expected at least one; append text first"
            )
        return tuple(self.ids)

    def close_span(self, tokenizer: Tokenizer) -> None:
        """Tokenise the open span, if there is one; a begin token goes before the first tokens of a program once."""
        if self._pieces:
            previous_id = self.ids[-1] if self.ids else None
            self._extend_from_text(tokenizer.encode_pieces(self._pieces, previous_id=previous_id), tokenizer)
            self._pieces = []

    def _extend_from_text(self, ids: list[int], tokenizer: Tokenizer) -> None:
        if not self.ids and tokenizer.needs_bos(ids, from_template=self._starts_with_role):
            assert tokenizer.bos_id is not None, "a tokenizer that adds a begin token has one"
            self.ids.append(tokenizer.bos_id)
        self.ids.extend(ids)

    def copy_from(self, parent: Branch, tokenizer: Tokenizer) -> None:
        """Be born: take over all that `parent` has at this point; the open span ends here."""
        parent.close_span(tokenizer)
        self.ids = list(parent.ids)
        self.has_run = parent.has_run
        self._starts_with_role = parent._starts_with_role
        self._history = list(parent._history)
        self._role, self._content = parent._role, list(parent._content)
        self.is_born = True

    def _note(self, text: str) -> None:
        self.text_since_fork.append(text)
        if self._role is not None:
            self._content.append(text)
