"""A branch: the token sequence that ops extend. It owns its ids and its open span, not its requests."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sglang_lite.errors import RequestError
from sglang_lite.request_tree import Op
from sglang_lite.runtime.executor.dialogue import Dialogue, Part, read_object
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.chat_pieces import NO_GUARD, Piece, SpecialGuard, tail_of
from sglang_lite.runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _Mark:
    """What a branch was at a mark."""

    ids: tuple[int, ...]
    pieces: tuple[tuple[str, bool], ...]
    dialogue: Dialogue
    num_texts: int
    num_children: int
    starts_with_role: bool


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
        is_dropped: its program gave it up, by a rewind or a decided race; that it failed harms no other.
        children: ids of the branches forked from it, less those that a rewind took back.
        last_step: the step of its program in which an op of it ended last.
        has_run: a request ran on it or, before the fork, on its parent. `has_own_run`: on it.
        dialogue: its turns.
        rewritten: where the last `flush` found that the template has the dialogue otherwise than it was written, how many
            tokens stayed (`kept_tokens`) and went (`dropped_tokens`); else None.
        num_ops: ops executed so far; with `path` it places an op in its program.
        path: the branch ids from the root.
        computed_len: how many of its leading tokens were computed for it or, before the fork, for its parent.
        prefilled_tokens: computed for it and its siblings before it ran, and not told with any op yet.
        place: which child of which child it is, from the root on: the same in every run, whatever the ids are.
    """

    def __init__(self, branch_id: int, parent: Branch | None) -> None:
        self.id = branch_id
        self.parent = parent
        self.path: tuple[int, ...] = (*parent.path, branch_id) if parent else (branch_id,)
        self.place: tuple[int, ...] = ()
        self.num_children = 0
        self.ids: list[int] = []
        self.queue: deque[Op] = deque()
        self.running: Op | None = None
        self.failed: Exception | None = None
        self.is_born = parent is None
        self.is_ended = False
        self.is_dropped = False
        self.children: list[int] = []
        self.last_step = 0
        self.has_run = False
        self.has_own_run = False
        self.num_ops = 0
        self.text_since_fork: list[str] = []
        self._pieces: list[tuple[str, bool]] = []
        self.dialogue = Dialogue()
        self.rewritten: dict[str, int] | None = None
        self._starts_with_role = False
        self._marks: dict[int, _Mark] = {}
        self.computed_len = 0
        self.prefilled_tokens = 0

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nothing waits here."""
        return self.running is None and not self.queue

    def add_text(self, text: str, *, literal: bool) -> None:
        """Append program text to the open span; inside a role block it is never parsed for special tokens."""
        if text:
            self._pieces.append((text, not literal and self.dialogue.open_turn is None))
            self._note(Part(text))

    def begin_role(
        self, role: str, chat: ChatTemplate, fields: str | None = None, guard: SpecialGuard = NO_GUARD
    ) -> str:
        """Open a turn; returns the template's prefix, now part of the branch. `fields` as in `RoleBeginOp`."""
        known = None if fields is None else read_object(fields, f"the fields of a turn of {role!r}")
        pieces = self.dialogue.begin(role, known, chat, guard)
        if not self.ids and not self._pieces:
            self._starts_with_role = True
        return self._add_template(pieces)

    def end_role(self, chat: ChatTemplate, guard: SpecialGuard = NO_GUARD) -> str:
        """Close the open turn; returns the template's suffix, now part of the branch."""
        return self._add_template(self.dialogue.end(chat, guard))

    def _add_template(self, pieces: list[Piece]) -> str:
        text = "".join(piece for piece, _ in pieces)
        self._pieces += pieces
        self.text_since_fork.append(text)
        return text

    def add_generated(self, ids: list[int], text: str, tail: str, full_text: str | None = None) -> None:
        """Append ids that are not to be tokenised again.

        Args:
            ids: the tokens.
            text: their visible text and `tail`.
            tail: the visible rest of a cut token: it begins the next span.
            full_text: of what a model generated: the text of `ids` with that of special tokens.
        """
        self.ids.extend(ids)
        if tail:
            self._pieces.append((tail, False))
        self.text_since_fork.append(text)
        if full_text is None:
            self.dialogue.add(Part(text.removesuffix(tail) if tail else text, tuple(ids)))
        else:
            self.dialogue.add(Part(full_text, tuple(ids), is_models=True))
        if tail:
            self.dialogue.add(Part(tail))

    def mark(self, op: int) -> None:
        """Remember this point under the id of its op. The open span stays open."""
        self._marks[op] = _Mark(
            tuple(self.ids),
            tuple(self._pieces),
            self.dialogue.copy(),
            len(self.text_since_fork),
            len(self.children),
            self._starts_with_role,
        )

    def rewind(self, mark: int) -> list[int]:
        """Be what the branch was at `mark`; returns the ids of the children forked since then."""
        then = self._marks[mark]
        forked = self.children[then.num_children :]
        del self.children[then.num_children :]
        del self.text_since_fork[then.num_texts :]
        self.ids = list(then.ids)
        self.computed_len = min(self.computed_len, len(self.ids))
        self._pieces = list(then.pieces)
        self.dialogue = then.dialogue.copy()
        self._starts_with_role = then.starts_with_role
        return forked

    def count(self, tokenizer: Tokenizer) -> int:
        """How many tokens the branch has, the open span included, which stays open."""
        self._rewrite(tokenizer)
        open_ids = tokenizer.encode_pieces(self._pieces, previous_id=self.ids[-1] if self.ids else None)
        needs_bos = not self.ids and tokenizer.needs_bos(open_ids, from_template=self._starts_with_role)
        return len(self.ids) + len(open_ids) + needs_bos

    def peek(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """All ids of the branch as they would be if the open span ended here, which stays open.

        Where a template has the dialogue otherwise than it was written, `flush` will give others.
        """
        ids = tokenizer.encode_pieces(self._pieces, previous_id=self.ids[-1] if self.ids else None)
        begin: list[int] = []
        if not self.ids and tokenizer.bos_id is not None:
            begin = [tokenizer.bos_id] if tokenizer.needs_bos(ids, from_template=self._starts_with_role) else []
        return (*self.ids, *begin, *ids)

    def flush(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Tokenise the open span; returns all ids of the branch.

        Raises:
            RequestError: the branch has no token to continue from.
        """
        old = self._rewrite(tokenizer)
        self.close_span(tokenizer)
        self.rewritten = None if old is None else _difference(old, self.ids)
        if not self.ids and tokenizer.needs_bos(()):
            self._extend_from_text([], tokenizer)
        if not self.ids:
            raise RequestError(
                "generating on an empty branch: the prompt has no tokens, expected at least one; append text first"
            )
        return tuple(self.ids)

    def _rewrite(self, tokenizer: Tokenizer) -> list[int] | None:
        """Where the template has the dialogue otherwise than it was written, take its text; returns the ids of before."""
        pieces = self.dialogue.rewritten(tokenizer.guard)
        if pieces is None:
            return None
        old = self.ids
        self.ids = old[: _common_head(old, "".join(text for text, _ in pieces).encode(), tokenizer)]
        head = b"".join(tokenizer.token_bytes[i] for i in self.ids)
        self._pieces = tail_of(pieces, len(head.decode()))
        turn = self.dialogue.open_turn
        for part in turn.content if turn is not None else []:
            if part.ids is None:
                self._pieces.append((part.text, False))
            else:
                self.close_span(tokenizer)
                self.ids.extend(part.ids)
        return old

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
        self.place = (*parent.place, parent.num_children)
        parent.num_children += 1
        self.ids = list(parent.ids)
        self.has_run = parent.has_run
        self.computed_len = parent.computed_len
        self._starts_with_role = parent._starts_with_role
        self.dialogue = parent.dialogue.copy()
        self.is_born = True

    def _note(self, part: Part) -> None:
        self.text_since_fork.append(part.text)
        self.dialogue.add(part)


def _common_head(ids: list[int], text: bytes, tokenizer: Tokenizer) -> int:
    """How many of `ids` stand at the beginning of `text`, up to a special token: behind one, text is tokenised by itself."""
    at = kept = 0
    for number, token in enumerate(ids, 1):
        raw = tokenizer.token_bytes[token]
        if not text.startswith(raw, at):
            break
        at += len(raw)
        if token in tokenizer.special_ids:
            kept = number
    return kept


def _difference(old: list[int], new: list[int]) -> dict[str, int] | None:
    """How many of the `old` ids are at their place in the `new` ones, and how many are not; None: all are."""
    kept = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return {"kept_tokens": kept, "dropped_tokens": len(old) - kept} if kept < len(old) else None
