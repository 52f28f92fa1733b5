"""What compiles constraints and follows them: the protocol, and the backend of the grammar package; knows no request."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sglang_lite.errors import RequestError
from sglang_lite.runtime.execution.lenient_cursor import LenientMatcher, Note
from sglang_lite.runtime.scheduler.messages import GrammarCursor
from sglang_lite.sampling_params import CONSTRAINTS, JsonWhitespace, SamplingParams

if TYPE_CHECKING:
    from sglang_lite.grammar import TokenVocab

_GBNF_RULE = re.compile(r"^[ \t]*[\w.-]+[ \t]*::=", re.MULTILINE)


class Constraint(NamedTuple):
    """A constraint and the options that change its meaning; equal ones are compiled once.

    `kind`: one of `CONSTRAINTS`. `whitespace`, `strict`: of JSON Schemas.
    """

    kind: str
    source: str | tuple[str, ...]
    whitespace: JsonWhitespace = "compact"
    strict: bool = True


class GrammarBackend(Protocol):
    """A grammar engine. `compile` runs on a thread of the pool, several at a time; cursors are the engine thread's."""

    def compile(self, constraint: Constraint) -> Any:
        """What cursors are made of.

        Raises:
            ValueError: the source is wrong, or asks for something that this backend does not offer; it names what.

        """
        ...

    def make_cursor(self, compiled: Any) -> GrammarCursor:
        """A new cursor at the start."""
        ...


class Compiler(Protocol):
    """What turns sources into compiled grammars (`sglang_lite.grammar.GrammarCompiler` fits)."""

    def compile_regex(self, pattern: str) -> Any:
        """The grammar of all strings that `pattern` matches as a whole."""
        ...

    def compile_choices(self, choices: Sequence[str]) -> Any:
        """The grammar of exactly these strings."""
        ...

    def compile_json_schema(self, schema: str, *, strict: bool, whitespace: JsonWhitespace) -> Any:
        """The grammar of the JSON texts that are valid under a schema, given as JSON text."""
        ...

    def compile_ebnf(self, text: str) -> Any:
        """The grammar of a GBNF text."""
        ...

    def compile_lark(self, text: str) -> Any:
        """The grammar of a Lark text."""
        ...

    def compile_structural_tag(self, spec: str, *, strict: bool, whitespace: JsonWhitespace) -> Any:
        """The grammar of structural tags, given as JSON text."""
        ...


class _Lenient(NamedTuple):
    grammar: Any
    unchecked: Sequence[Note]
    schema: str | None


class NativeBackend:
    """The engine of `sglang_lite.grammar`: every kind of constraint."""

    def __init__(self, compiler: Compiler, make_matcher: Callable[[Any], GrammarCursor]) -> None:
        self._compiler = compiler
        self._make_matcher = make_matcher

    @classmethod
    def of_vocab(cls, vocab: TokenVocab | Callable[[], TokenVocab]) -> NativeBackend:
        """The backend of a vocabulary, or of what makes it; loads Numba and compiles its kernels if they are not on disk."""
        from sglang_lite.grammar import (  # numba: only when a grammar is used
            GrammarCompiler,
            GrammarMatcher,
            compile_all,
        )

        token_vocab = vocab() if callable(vocab) else vocab  # first: it may tell the user that compiling takes long
        compile_all()  # here, so that no mask makes the engine's loop wait for a kernel
        return cls(GrammarCompiler(token_vocab), GrammarMatcher)

    def compile(self, constraint: Constraint) -> Any:
        """See `GrammarBackend`. An `ebnf` without a `::=` rule is read as Lark."""
        compiler = self._compiler
        options: dict[str, Any] = {"strict": constraint.strict, "whitespace": constraint.whitespace}
        match constraint:
            case Constraint("choices", tuple(choices)):
                return compiler.compile_choices(choices)
            case Constraint("json_schema", str(schema)):
                found = compiler.compile_json_schema(schema, **options)
                return _with_notes(found, schema)
            case Constraint("structural_tag", str(spec)):
                return _with_notes(compiler.compile_structural_tag(spec, **options), None)
            case Constraint("ebnf", str(text)):
                return compiler.compile_ebnf(text) if _GBNF_RULE.search(text) else compiler.compile_lark(text)
            case Constraint("regex", str(pattern)):
                return compiler.compile_regex(pattern)
            case _:
                raise AssertionError(f"a constraint has a kind and a source, got {constraint!r}")

    def make_cursor(self, compiled: Any) -> GrammarCursor:
        """See `GrammarBackend`."""
        if isinstance(compiled, _Lenient):
            return LenientMatcher(self._make_matcher(compiled.grammar), compiled.unchecked, compiled.schema)
        return self._make_matcher(compiled)


def _with_notes(compiled: Any, schema: str | None) -> Any:
    """`compiled`, with the keywords that it does not enforce if there are any."""
    unchecked = [note for note in compiled.notes if note.effect == "unchecked"]
    return _Lenient(compiled, unchecked, schema) if unchecked else compiled


def constraint_of(params: SamplingParams) -> Constraint:
    """The constraint of `params`.

    Raises:
        RequestError: there is none.

    """
    kind = params.constraint
    if kind is None:
        raise RequestError(f"compiling a grammar: the request has no constraint; set one of {', '.join(CONSTRAINTS)}")
    source = getattr(params, kind)
    if kind not in ("json_schema", "structural_tag"):
        return Constraint(kind, source)
    return Constraint(kind, source, params.json_whitespace or "compact", params.json_strict)
