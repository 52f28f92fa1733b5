"""From a grammar's text to a `CompiledGrammar`, once per text: cache, single flight, limits; runs in the caller's thread."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from sglang_lite.grammar.automata import DEFAULT_MAX_STATES, build_nfa
from sglang_lite.grammar.automaton_store import AutomatonStore, StoredAutomaton
from sglang_lite.grammar.compiled import CompiledGrammar, GrammarSource
from sglang_lite.grammar.ebnf import parse_ebnf
from sglang_lite.grammar.errors import InvalidGrammarError
from sglang_lite.grammar.json_schema import (
    Formats,
    SchemaNote,
    SchemaOptions,
    Whitespace,
    schema_text,
    schema_to_grammar,
)
from sglang_lite.grammar.lark import parse_lark
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.structural_tags import StructuralTag, structural_tag_grammar
from sglang_lite.grammar.syntax import Grammar, Node
from sglang_lite.grammar.syntax import choices as any_of
from sglang_lite.grammar.tables import LazyTables
from sglang_lite.grammar.tag_spec import parse_structural_tag
from sglang_lite.grammar.vocab import TokenVocab

DEFAULT_MAX_TABLE_BYTES = 64 << 20
DEFAULT_KEPT_BYTES = 2_700_000
DEFAULT_MAX_MASK_BYTES = 1_000_000
_LEAST_KEPT_BYTES = 256 << 10
_LEAST_MASKS = 16
DEFAULT_MAX_GRAMMARS = 256


class GrammarCompiler:
    """Compiles grammars for one vocabulary and keeps the `max_grammars` used last. Safe in several threads.

    Threads that ask for the same text at once share one compilation. An error reaches everyone who asked for that text, is not
    kept, and touches no other grammar.

    Args:
        vocab: the tokens that masks are made for.
        max_states: states of one automaton; more is a GrammarTooLargeError at compile time.
        max_table_bytes: deterministic tables of one grammar; more is a GrammarTooLargeError where they would grow.
        kept_bytes: automaton and tables of one grammar; where they outgrow it, the tables begin anew.
        max_mask_bytes: masks kept by one grammar; the least recently used go first. A grammar whose automaton leaves no room
            within `kept_bytes` keeps few.
        max_grammars: compiled grammars kept.
        cache_dir: folder of compiled automata, under source, options, vocabulary and version; None is that of the vocabulary, if any.
    """

    def __init__(
        self,
        vocab: TokenVocab,
        *,
        max_states: int = DEFAULT_MAX_STATES,
        max_table_bytes: int = DEFAULT_MAX_TABLE_BYTES,
        kept_bytes: int = DEFAULT_KEPT_BYTES,
        max_mask_bytes: int = DEFAULT_MAX_MASK_BYTES,
        max_grammars: int = DEFAULT_MAX_GRAMMARS,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.vocab = vocab
        self._max_states = max_states
        self._max_table_bytes = max_table_bytes
        self._kept_bytes = kept_bytes
        self._max_mask_bytes = max_mask_bytes
        self._max_grammars = max_grammars
        folder = vocab.cache_dir if cache_dir is None else cache_dir
        self._store = None if folder is None else AutomatonStore(folder, vocab.digest)
        self._lock = threading.Lock()
        self._grammars: OrderedDict[object, Future[CompiledGrammar]] = OrderedDict()

    def compile_regex(self, pattern: str) -> CompiledGrammar:
        """The grammar of the texts that `pattern` matches as a whole; `sglang_lite.grammar.regex` says which patterns.

        Raises:
            InvalidGrammarError, UnsupportedGrammarError, GrammarTooLargeError: naming the place in the pattern.
        """
        source = GrammarSource("regex", pattern)
        return self._stored(source, "", lambda: self._automaton(parse_regex(pattern)))

    def compile_choices(self, choices: Iterable[str | bytes]) -> CompiledGrammar:
        """The grammar of exactly the given texts, byte for byte; one may begin with another, and one may be empty.

        Raises:
            InvalidGrammarError: no choices, a single str in place of a list, or a choice that is no text.
        """
        if isinstance(choices, str | bytes):
            raise InvalidGrammarError(f"compiling choices: expected a list of texts, got one {type(choices).__name__}")
        texts = tuple(sorted({_choice_bytes(choice) for choice in choices}))
        if not texts:
            raise InvalidGrammarError("compiling choices: the list is empty; give at least one text")
        shown = " | ".join(repr(text.decode(errors="backslashreplace")) for text in texts)
        return self._once(("choices", texts), lambda: self._build(GrammarSource("choices", shown), any_of(texts)))

    def compile_json_schema(
        self,
        schema: Mapping[str, object] | bool | str,
        *,
        strict: bool = True,
        whitespace: Whitespace = "compact",
        formats: Formats = "assert",
        max_integer_digits: int = 32,
    ) -> CompiledGrammar:
        """The grammar of the JSON texts that are valid under `schema`; `schema_to_grammar` says which, and `notes` what it leaves out.

        Args:
            schema: an object, a boolean, or the JSON text of one; `{"type": "object"}` is any JSON object.
            strict: refuse keywords that cannot be enforced; otherwise they are left out and noted as `unchecked`.
            whitespace: `compact`, `spaced` or `any` (bounded).
            formats: `assert` enforces known formats; `annotation` ignores `format`.
            max_integer_digits: digits before the decimal point of a number.

        Raises:
            InvalidGrammarError: the schema is malformed, or no value is valid; names the JSON Pointer.
            UnsupportedGrammarError: a keyword cannot be enforced; names it and its JSON Pointer.
            GrammarTooLargeError: a limit was passed.
        """
        options = SchemaOptions(
            strict=strict, whitespace=whitespace, formats=formats, max_integer_digits=max_integer_digits
        )
        source = GrammarSource("json_schema", schema_text(schema))

        def build() -> StoredAutomaton:
            found = schema_to_grammar(source.text, options)
            return self._automaton(found.grammar, found.notes)

        return self._stored(source, repr(options), build)

    def compile_ebnf(self, text: str, *, root: str = "root") -> CompiledGrammar:
        """The grammar of `text`, EBNF as llama.cpp (GBNF) and xgrammar write it; `sglang_lite.grammar.ebnf` says what is read.

        Raises:
            InvalidGrammarError: malformed, with line and column, or no text at all can match.
            UnsupportedGrammarError: a construct that is not offered, or left recursion through several rules.
            GrammarTooLargeError: a limit was passed.
        """
        source = GrammarSource("ebnf", text)
        return self._stored(source, root, lambda: self._rules_automaton(source, parse_ebnf(text, root=root)))

    def compile_lark(self, text: str) -> CompiledGrammar:
        """The grammar of `text`, the Lark subset that `sglang_lite.grammar.lark` describes. Errors as of `compile_ebnf`."""
        source = GrammarSource("lark", text)
        return self._stored(source, "", lambda: self._rules_automaton(source, parse_lark(text)))

    def compile_structural_tag(
        self,
        spec: Mapping[str, object] | str,
        *,
        strict: bool = True,
        whitespace: Whitespace = "compact",
        formats: Formats = "assert",
    ) -> CompiledGrammar:
        """Structural tags as clients send them in JSON; `sglang_lite.grammar.tag_spec` says in which shapes.

        Args:
            spec: an object, or the JSON text of one.
            strict, whitespace, formats: for the schemas in it; see `compile_json_schema`.

        Raises:
            InvalidGrammarError: malformed; names the path.
            UnsupportedGrammarError: a part that is not offered; names it and its path.
            GrammarTooLargeError: a limit was passed.
        """
        options = SchemaOptions(strict=strict, whitespace=whitespace, formats=formats)
        source = GrammarSource("structural_tag", spec if isinstance(spec, str) else repr(spec))
        notes: list[SchemaNote] = []

        def read_schema(schema: Any) -> Grammar:
            found = schema_to_grammar(schema, options)
            notes.extend(found.notes)
            return found.grammar

        def build() -> StoredAutomaton:
            grammar = parse_structural_tag(spec, read_schema)
            return self._automaton(grammar, tuple(notes))

        return self._stored(source, repr(options), build)

    def compile_structural_tags(
        self,
        tags: Sequence[StructuralTag],
        triggers: Sequence[str | int] | None = None,
        *,
        at_least_one: bool = False,
        stop_after_first: bool = False,
    ) -> CompiledGrammar:
        """Free text with tagged parts; see `structural_tag_grammar`.

        Raises:
            InvalidGrammarError: no tags, or triggers and begins that do not fit; a special token that is none.
            UnsupportedGrammarError, GrammarTooLargeError: as of `compile_grammar`.
        """
        source = GrammarSource("structural_tag", repr((list(tags), triggers, at_least_one, stop_after_first)))

        def grammar() -> Grammar:
            return structural_tag_grammar(tags, triggers, at_least_one=at_least_one, stop_after_first=stop_after_first)

        return self._once(source, lambda: self._build(source, grammar()))

    def compile_grammar(self, grammar: Grammar, source: GrammarSource) -> CompiledGrammar:
        """The grammar that a front end made of `source`, which alone is the key: an equal source must mean an equal grammar.

        Raises:
            InvalidGrammarError: a reference names no rule, or a special token is no special token of the vocabulary.
            UnsupportedGrammarError: left recursion, or recursion where only regular languages can be; the rules are named.
            GrammarTooLargeError: a limit was passed.
        """
        return self._once(("grammar", source), lambda: self._build(source, grammar))

    def _stored(self, source: GrammarSource, options: str, build: Callable[[], StoredAutomaton]) -> CompiledGrammar:
        """The grammar of a text that alone, with `options`, says what it means: so it may be kept on disk."""

        def load_or_build() -> CompiledGrammar:
            if self._store is None:
                return self._compiled(source, build())
            key = "\0".join((source.kind, options, str(self._max_states), source.text))
            automaton = self._store.load(key)
            if automaton is None:
                automaton = build()
                self._store.store(key, automaton)
            return self._compiled(source, automaton)

        return self._once((source, options), load_or_build)

    def _rules_automaton(self, source: GrammarSource, grammar: Grammar) -> StoredAutomaton:
        automaton = self._automaton(grammar)
        if automaton.nfa.start < 0:
            raise InvalidGrammarError(
                f"compiling {source.kind}: no text matches; a rule of the start never comes to an end"
            )
        return automaton

    def _automaton(self, node: Node | Grammar, notes: tuple[SchemaNote, ...] = ()) -> StoredAutomaton:
        nfa = build_nfa(node, max_states=self._max_states)
        vocab = self.vocab
        wrong = [i for i in nfa.special_ids.tolist() if i not in vocab.special_ids or i in vocab.eos_ids]
        if wrong:
            raise InvalidGrammarError(
                f"compiling a grammar: tokens {wrong} are named as special tokens; named can be those that are special and end no text"
            )
        return StoredAutomaton(nfa, notes)

    def _build(self, source: GrammarSource, node: Node | Grammar) -> CompiledGrammar:
        return self._compiled(source, self._automaton(node))

    def _compiled(self, source: GrammarSource, automaton: StoredAutomaton) -> CompiledGrammar:
        kept, masks = self._kept_bytes - automaton.nfa.num_bytes, self._max_mask_bytes
        if kept < _LEAST_KEPT_BYTES:  # the automaton alone takes what there is
            kept, masks = _LEAST_KEPT_BYTES, min(masks, _LEAST_MASKS * self.vocab.eos_words.nbytes)
        tables = LazyTables(automaton.nfa, max_bytes=self._max_table_bytes, keep_bytes=kept)
        return CompiledGrammar(source, self.vocab, tables, max_mask_bytes=masks, notes=automaton.notes)

    def _once(self, key: object, build: Callable[[], CompiledGrammar]) -> CompiledGrammar:
        with self._lock:
            future = self._grammars.get(key)
            mine = future is None
            if future is None:
                future = self._grammars[key] = Future()
            self._grammars.move_to_end(key)
            if len(self._grammars) > self._max_grammars:
                self._grammars.popitem(last=False)
        if mine:
            try:
                future.set_result(build())
            except BaseException as error:
                with self._lock:
                    if self._grammars.get(key) is future:
                        del self._grammars[key]
                future.set_exception(error)
                raise
        return future.result()


def _choice_bytes(choice: object) -> bytes:
    if isinstance(choice, bytes):
        return choice
    if not isinstance(choice, str):
        raise InvalidGrammarError(f"compiling choices: a choice is a {type(choice).__name__}, expected str or bytes")
    try:
        return choice.encode()
    except UnicodeEncodeError as error:
        raise InvalidGrammarError(
            "compiling choices: a lone surrogate is not text", source=choice, position=error.start
        ) from None
