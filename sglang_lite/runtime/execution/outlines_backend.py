"""outlines-core as the engine of constraints: regexes, choices, and the JSON Schemas that it turns into regexes; optional."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sglang_lite.errors import UnsupportedError
from sglang_lite.runtime.execution.grammar_backend import Constraint

OFFERED = ("regex", "choices", "json_schema")
"""Kinds of constraints that outlines-core has."""

_WHITE_SPACE = {"compact": "", "spaced": r"[ ]?", "any": r"[\n\t ]*"}


class OutlinesBackend:
    """Compiles to an `outlines_core.Index`: eager, over the whole vocabulary; no forced tokens.

    What it leaves out of a JSON Schema it leaves out silently, and of alternatives that begin alike it may allow the
    shorter one only. Those are its language, not ours: see `docs/grammar.md`.

    Args:
        token_bytes: bytes of each token id; b"" or None for tokens that are no text.
        eos_ids: tokens that end a text, at least one.

    Raises:
        UnsupportedError: outlines-core is not installed, or there is no end token.

    """

    def __init__(self, token_bytes: Sequence[bytes | None], special_ids: Iterable[int], eos_ids: Iterable[int]) -> None:
        try:
            import outlines_core  # optional: the extra `grammars`
        except ImportError as error:
            raise UnsupportedError(
                "configuring the engine: grammar_backend='outlines' needs the package outlines-core; "
                "install sglang_lite[grammars] or leave it out"
            ) from error
        self._core = outlines_core
        self._eos_ids = tuple(sorted(eos_ids))
        if not self._eos_ids:
            raise UnsupportedError(
                "configuring the engine: grammar_backend='outlines' needs a model with an end token; leave it out"
            )
        left_out = {*special_ids, *self._eos_ids}
        by_bytes: dict[bytes, list[int]] = {}
        for token_id, data in enumerate(token_bytes):
            if data and token_id not in left_out:
                by_bytes.setdefault(data, []).append(token_id)
        self._vocabulary: Any = outlines_core.Vocabulary(self._eos_ids[0], by_bytes)

    def compile(self, constraint: Constraint) -> Any:
        """See `GrammarBackend`."""
        return self._core.Index(self._regex(constraint), self._vocabulary)

    def make_cursor(self, compiled: Any) -> OutlinesCursor:
        """See `GrammarBackend`."""
        return OutlinesCursor(self._core.Guide, compiled, self._eos_ids)

    def _regex(self, constraint: Constraint) -> str:
        match constraint:
            case Constraint("regex", str(pattern)):
                return pattern
            case Constraint("choices", tuple(choices)):
                longest_first = sorted(
                    set(choices), key=lambda text: (-len(text), text)
                )  # it takes the first that fits
                return "|".join(map(re.escape, longest_first))
            case Constraint("json_schema", str(schema)):
                white_space = _WHITE_SPACE[constraint.whitespace]
                return self._core.json_schema.build_regex_from_schema(schema, whitespace_pattern=white_space)
            case _:
                raise ValueError(
                    f"the grammar backend 'outlines' has no {constraint.kind}, only {', '.join(OFFERED)}; "
                    "start the engine with grammar_backend='native'"
                )


class OutlinesCursor:
    """Follows one request. An end token is legal where the text may end; outlines-core itself has one end token and no step for it."""

    def __init__(self, make_guide: Any, index: Any, eos_ids: tuple[int, ...]) -> None:
        self._make_guide = make_guide
        self._index = index
        self._eos_ids = eos_ids
        self._guide = make_guide(index)
        self._accepted: list[int] = []
        self._is_terminated = False

    def accept_token(self, token_id: int) -> bool:
        """See `GrammarCursor`."""
        if token_id in self._eos_ids:
            self._is_terminated = self._is_terminated or self._guide.is_finished()
            return self._is_terminated
        if self._is_terminated:
            return False
        try:
            self._guide.advance(token_id, return_tokens=False)
        except ValueError:
            return False
        self._accepted.append(token_id)
        return True

    def fill_bitmask(self, bitmask: Any, index: int = 0) -> None:
        """See `GrammarCursor`."""
        row = np.zeros(bitmask.shape[1], np.int32)
        if not self._is_terminated:
            self._guide.write_mask_into(row.ctypes.data, row.size, row.itemsize)
        if self._is_terminated or self._guide.is_finished():
            for token_id in self._eos_ids:
                row.view(np.uint32)[token_id >> 5] |= np.uint32(1 << (token_id & 31))
        bitmask[index] = row

    def fork(self) -> OutlinesCursor:
        """See `GrammarCursor`; by replay."""
        twin = OutlinesCursor(self._make_guide, self._index, self._eos_ids)
        for token_id in self._accepted:
            twin.accept_token(token_id)
        twin._is_terminated = self._is_terminated
        return twin

    def jump_forward(self, before: Sequence[int] = ()) -> list[int]:
        """Nothing is known to be forced."""
        return []

    @property
    def is_terminated(self) -> bool:
        """See `GrammarCursor`."""
        return self._is_terminated

    @property
    def has_only_end(self) -> bool:
        """See `GrammarCursor`."""
        return self._guide.is_finished() and not set(self._guide.get_tokens()) - set(self._eos_ids)
