"""A compiled grammar: an immutable source and vocabulary, tables and masks that fill as they are needed; knows no request."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sglang_lite.grammar.bitmask import Bitmask, num_words
from sglang_lite.grammar.compressed import CompressedFsm, compress
from sglang_lite.grammar.json_schema import SchemaNote, describe_schema
from sglang_lite.grammar.jump import JumpForward
from sglang_lite.grammar.kernels import DEAD
from sglang_lite.grammar.tables import ForcedRun, LazyTables
from sglang_lite.grammar.vocab import TokenVocab

_MAX_MASKS = 20_000  # states whose mask is known; most share theirs with others


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """What a grammar was compiled from: the kind of front end and the text given to it."""

    kind: str
    text: str


class TokenMask(NamedTuple):
    """The tokens allowed in one state: int32 [ceil(V / 32)] (read-only) and their number."""

    words: Bitmask
    num_allowed: int


@dataclass(slots=True)
class _HeldMask:
    """A mask that is kept, and how many states it is that of."""

    mask: TokenMask
    key: int
    uses: int


@dataclass(frozen=True, slots=True)
class GrammarStatistics:
    """Sizes and counters of one compiled grammar at one moment.

    `nfa_states`, `byte_classes`: the automaton. `dfa_states`, `stack_cells`: deterministic states and stack cells found so far.
    `table_bytes`: memory of all these. `masks`, `mask_bytes`: masks held now. `mask_hits`, `mask_misses`: lookups answered
    from them, and computed.
    """

    nfa_states: int
    byte_classes: int
    dfa_states: int
    stack_cells: int
    table_bytes: int
    masks: int
    mask_bytes: int
    mask_hits: int
    mask_misses: int


class CompiledGrammar:
    """The tables of one grammar over one vocabulary, shared by all requests that use it; safe in several threads.

    A state is an int, `DEAD` (-1) when no text of the grammar begins with what was read. Where the tables outgrow what is kept, they
    begin anew, and whoever asks about an older state gets StaleStateError: `replayed` finds the way again from the tokens, here or in another process.
    """

    def __init__(
        self,
        source: GrammarSource,
        vocab: TokenVocab,
        tables: LazyTables,
        *,
        max_mask_bytes: int,
        notes: tuple[SchemaNote, ...] = (),
    ) -> None:
        self.source = source
        self.notes = notes  # keywords of a JSON Schema that are not followed to the letter
        self.vocab = vocab
        self._tables = tables
        self._specials = {token_id: index for index, token_id in enumerate(tables.nfa.special_ids.tolist())}
        self._jump = JumpForward(vocab, tables)
        self._max_mask_bytes = max_mask_bytes
        self._masks: OrderedDict[int, _HeldMask] = OrderedDict()
        self._distinct: dict[int, _HeldMask] = {}
        self._mask_lock = threading.Lock()
        self._hits = 0
        self._misses = 0
        self._no_tokens = TokenMask(np.zeros(num_words(vocab.vocab_size), np.int32), 0)
        self.end_mask = TokenMask(vocab.eos_words, len(vocab.eos_ids))

    @property
    def start_state(self) -> int:
        """The state before any text."""
        return self._tables.start

    def describe(self) -> str:
        """A short stable text of the grammar for a prompt: of a JSON Schema its fields, types and bounds, else the source itself."""
        if self.source.kind == "json_schema":
            return describe_schema(self.source.text)
        return self.source.text

    @property
    def is_empty(self) -> bool:
        """Whether no text at all matches the grammar."""
        return self._tables.start == DEAD

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end in `state`."""
        return self._tables.is_accepting(state)

    def advance_token(self, state: int, token_id: int) -> int:
        """The state after a token; `DEAD` for tokens without bytes, special tokens not named here and ids beyond the vocabulary."""
        vocab = self.vocab
        if not 0 <= token_id < vocab.vocab_size:
            return DEAD
        if token_id in self._specials:
            return self._tables.after_special(state, self._specials[token_id])
        begin, end = int(vocab.offsets[token_id]), int(vocab.offsets[token_id + 1])
        return DEAD if begin == end else self._tables.advance(state, vocab.data, begin, end)

    def advance_bytes(self, state: int, data: bytes) -> int:
        """The state after `data`."""
        return self._tables.advance(state, np.frombuffer(data, np.uint8).copy(), 0, len(data))

    def accepts(self, text: str | bytes) -> bool:
        """Whether `text` as a whole (str in UTF-8) belongs to the language. A str with lone surrogates does not."""
        if isinstance(text, str):
            try:
                text = text.encode()
            except UnicodeEncodeError:
                return False
        with self._tables.pinned():
            return self.is_accepting(self.advance_bytes(self.start_state, text))

    def mask(self, state: int) -> TokenMask:
        """The tokens allowed in `state`: those whose bytes can be read, and the end tokens exactly if the text may end."""
        if state < 0:
            return self._no_tokens
        with self._mask_lock:
            held = self._masks.get(state)
            if held is not None:
                self._masks.move_to_end(state)
                self._hits += 1
                return held.mask
        found = self._compute_mask(state)
        with self._mask_lock:
            self._misses += 1
            return self._keep(state, found)

    def _keep(self, state: int, found: TokenMask) -> TokenMask:
        """Hold the mask of `state`; states with equal masks share one, and most of a grammar have few different ones."""
        key = hash(found.words.tobytes())
        held = self._distinct.get(key)
        if held is None:
            held = self._distinct[key] = _HeldMask(found, key, 0)
        elif not np.array_equal(held.mask.words, found.words):
            return found  # two masks with one hash: this one is not kept
        if state not in self._masks:
            held.uses += 1
        self._masks[state] = held
        while len(self._masks) > 1 and (self._mask_bytes() > self._max_mask_bytes or len(self._masks) > _MAX_MASKS):
            _, oldest = self._masks.popitem(last=False)
            oldest.uses -= 1
            if not oldest.uses:
                del self._distinct[oldest.key]
        return held.mask

    def _mask_bytes(self) -> int:
        return len(self._distinct) * self._no_tokens.words.nbytes

    def _compute_mask(self, state: int) -> TokenMask:
        words = np.empty_like(self._no_tokens.words)
        with self._tables.pinned():
            allowed = self._tables.fill_mask(state, self.vocab.slices, words)
            for token_id, index in self._specials.items():
                if self._tables.after_special(state, index) >= 0:
                    words[token_id >> 5] |= np.int32(1) << np.int32(token_id & 31)
                    allowed += 1
            if self.is_accepting(state):
                words |= self.vocab.eos_words
                allowed += len(self.vocab.eos_ids)
        words.flags.writeable = False
        return TokenMask(words, allowed)

    @contextmanager
    def replayed(self, token_ids: Sequence[int]) -> Iterator[list[int]]:
        """The states before, between and behind tokens that were accepted once; they stay valid inside."""
        with self._tables.pinned(needed=True):
            states = [self.start_state]
            for token_id in token_ids:
                states.append(self.advance_token(states[-1], token_id))
            yield states

    def forced(self, state: int) -> ForcedRun:
        """The bytes that must follow `state` (singular edges taken as one) and the state behind them."""
        return ForcedRun(b"", DEAD) if state < 0 else self._tables.forced(state)

    def forced_tokens(self, state: int, before: Sequence[int]) -> list[int]:
        """The tokens that must follow `state`, as the tokenizer spells them behind the tokens `before`; see `jump`."""
        return [] if state < 0 else self._jump.run(state, before)

    def compressed(self, *, max_states: int = 10_000) -> CompressedFsm:
        """The whole deterministic automaton with singular runs as single edges, for drawings and counts.

        Raises:
            GrammarTooLargeError: it has more than `max_states` states.
        """
        return compress(self._tables.fresh(), max_states=max_states)

    def statistics(self) -> GrammarStatistics:
        """Sizes and counters now."""
        with self._mask_lock:
            masks, hits, misses = len(self._masks), self._hits, self._misses
            mask_bytes = self._mask_bytes()
        return GrammarStatistics(
            nfa_states=self._tables.nfa.num_states,
            byte_classes=self._tables.nfa.num_classes,
            dfa_states=self._tables.num_states,
            stack_cells=self._tables.num_cells,
            table_bytes=self._tables.num_bytes,
            masks=masks,
            mask_bytes=mask_bytes,
            mask_hits=hits,
            mask_misses=misses,
        )
