"""The grammar engines that `grammar_engines` compares, behind one small interface; each is loaded in a process of its own.

An engine compiles an item (`schema`, `annotated` schema, or `regex`) and starts sessions, which fill a bitmask, accept a token and say
whether the text may end. Optional peers that are not installed raise ImportError when they are made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from sglang_lite import env
from sglang_lite.runtime.engine.build import _grammar_sources, _token_vocab
from sglang_lite.runtime.text.tokenizer import Tokenizer

COMPACT = (",", ":")


class RefusedError(Exception):
    """The engine does not take the item; the message is its own."""


class Session(Protocol):
    """One text on its way."""

    def fill(self, bitmask: Any) -> None:
        """Write the legal tokens into row 0."""
        ...

    def accept(self, token_id: int) -> bool:
        """Go on behind a token."""
        ...

    def forced(self) -> list[int]:
        """Tokens that must follow, as the engine spells them."""
        ...


class Engine(Protocol):
    """What is compared."""

    bitmask: Any

    def compile(self, kind: str, source: Any) -> Any:
        """The compiled item.

        Raises:
            RefusedError: the engine does not take it.
        """
        ...

    def session(self, compiled: Any) -> Session:
        """A new session at the start of the text."""
        ...

    def memory(self, compiled: Any) -> int | None:
        """Bytes that the engine says the item holds, masks included; None where it says nothing."""
        ...

    def misses(self, compiled: Any) -> int | None:
        """Masks computed so far; None where the engine says nothing."""
        ...


class Ours:
    """`sglang_lite.grammar`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        from sglang_lite.kernels.cpu.jit import prepare_cache

        prepare_cache(env.cache_dir(), _grammar_sources())
        from sglang_lite.grammar import GrammarCompiler, GrammarMatcher, allocate_token_bitmask, compile_all

        vocab = _token_vocab(tokenizer)
        compile_all()
        vocab.cache_dir = None  # each item is compiled anew
        assert vocab.slices is not None, "the slices are part of the start"
        self._compiler = GrammarCompiler(vocab, max_grammars=4)
        self.session: Callable[[Any], Any] = lambda compiled: _OurSession(GrammarMatcher(compiled))
        self.bitmask = allocate_token_bitmask(1, vocab.vocab_size)

    def compile(self, kind: str, source: Any) -> Any:
        """See `Engine`."""
        from sglang_lite.grammar import GrammarError

        try:
            if kind == "regex":
                return self._compiler.compile_regex(source)
            return self._compiler.compile_json_schema(
                source,
                formats="annotation" if kind == "annotated" else "assert",
                whitespace="spaced" if kind.endswith(" spaced") else "compact",
            )
        except GrammarError as error:
            if "no value is valid" in str(error):
                return None  # every text is rejected, and rightly so
            raise RefusedError(str(error)) from error

    def memory(self, compiled: Any) -> int | None:
        """See `Engine`."""
        statistics = compiled.statistics()
        return statistics.table_bytes + statistics.mask_bytes

    def misses(self, compiled: Any) -> int | None:
        """See `Engine`."""
        return compiled.statistics().mask_misses


class _OurSession:
    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self.fill = matcher.fill_bitmask
        self.accept = matcher.accept_token

    def forced(self) -> list[int]:
        """See `Session`."""
        return self._matcher.jump_forward()


class LlGuidance:
    """llguidance, one thread."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        import llguidance  # pyright: ignore[reportMissingImports] - an extra
        import llguidance.numpy as masks  # pyright: ignore[reportMissingImports] - an extra

        self._module = llguidance
        self._fill = masks.fill_next_token_bitmask
        self._tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Wrapped(tokenizer)))
        self.bitmask = masks.allocate_token_bitmask(1, self._tokenizer.vocab_size)

    def compile(self, kind: str, source: Any) -> Any:
        """See `Engine`."""
        matcher = self._module.LLMatcher
        try:
            if kind == "regex":
                grammar = matcher.grammar_from_regex(source)
            else:
                grammar = matcher.grammar_from_json_schema(source, overrides=_llguidance_layout(kind))
        except ValueError as error:
            raise RefusedError(str(error)) from error
        made = matcher(self._tokenizer, grammar, log_level=0)
        if made.get_error():
            raise RefusedError(made.get_error())
        return made

    def session(self, compiled: Any) -> Session:
        """See `Engine`."""
        return _LlSession(compiled.deep_copy(), self._fill)

    def memory(self, compiled: Any) -> int | None:
        """See `Engine`."""
        return None

    def misses(self, compiled: Any) -> int | None:
        """See `Engine`."""
        return None


def _llguidance_layout(kind: str) -> Any:
    separators = {"item_separator": ", ", "key_separator": ": "} if kind.endswith(" spaced") else {}
    return {"whitespace_flexible": False, **separators}


class _LlSession:
    def __init__(self, matcher: Any, fill: Callable[..., None]) -> None:
        self._matcher = matcher
        self._fill = fill
        self.accept = matcher.consume_token

    def fill(self, bitmask: Any) -> None:
        """See `Session`."""
        self._fill(self._matcher, bitmask, 0)

    def forced(self) -> list[int]:
        """See `Session`."""
        return self._matcher.compute_ff_tokens()


class _Wrapped:
    """What llguidance asks of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encode = tokenizer.encode
        self.bos_token_id = self.eos_token_id = min(tokenizer.eos_ids)
        self.tokens = [piece or b"" for piece in tokenizer.token_bytes]
        self.special_token_ids = list(tokenizer.special_ids)

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text if isinstance(text, str) else text.decode(errors="replace"), parse_special=False)


class XGrammar:
    """xgrammar, one thread, no cache, the compliant mode."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        import xgrammar  # pyright: ignore[reportMissingImports] - an extra

        self._module = xgrammar
        info = xgrammar.TokenizerInfo(
            [piece or b"" for piece in tokenizer.token_bytes],
            vocab_type=xgrammar.VocabType.RAW,
            vocab_size=tokenizer.vocab_size,
            stop_token_ids=sorted(tokenizer.eos_ids),
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bitmask = np.zeros((1, -(-tokenizer.vocab_size // 32)), np.int32)

    def compile(self, kind: str, source: Any) -> Any:
        """See `Engine`."""
        try:
            if kind == "regex":
                return self._compiler.compile_regex(source)
            return self._compiler.compile_json_schema(
                json.dumps(source), any_whitespace=False, separators=COMPACT, strict_mode=False
            )
        except (RuntimeError, ValueError) as error:
            raise RefusedError(str(error)) from error

    def session(self, compiled: Any) -> Session:
        """See `Engine`."""
        return _XSession(self._module.GrammarMatcher(compiled))

    def memory(self, compiled: Any) -> int | None:
        """See `Engine`."""
        return compiled.memory_size_bytes

    def misses(self, compiled: Any) -> int | None:
        """See `Engine`."""
        return None


class _XSession:
    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self.accept = matcher.accept_token

    def fill(self, bitmask: Any) -> None:
        """See `Session`."""
        if not self._matcher.fill_next_token_bitmask(bitmask, 0):
            bitmask[:] = -1

    def forced(self) -> list[int]:
        """See `Session`; xgrammar forces characters, not tokens."""
        return []


class OutlinesCore:
    """outlines-core, its own way from schema to pattern."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        import outlines_core
        from outlines_core.json_schema import build_regex_from_schema  # pyright: ignore[reportMissingImports]

        self._module, self._pattern = outlines_core, build_regex_from_schema
        by_bytes: dict[bytes, list[int]] = {}
        for token, piece in enumerate(tokenizer.token_bytes):
            if piece and token not in tokenizer.special_ids:
                by_bytes.setdefault(piece, []).append(token)
        self._eos = min(tokenizer.eos_ids)
        self._vocabulary = outlines_core.Vocabulary(self._eos, by_bytes)
        self.bitmask = np.zeros((1, -(-tokenizer.vocab_size // 32)), np.int32)

    def compile(self, kind: str, source: Any) -> Any:
        """See `Engine`."""
        try:
            pattern = source if kind == "regex" else self._pattern(json.dumps(source), r"")
            return self._module.Index(pattern, self._vocabulary)
        except (RuntimeError, ValueError, TypeError) as error:
            raise RefusedError(str(error)) from error

    def session(self, compiled: Any) -> Session:
        """See `Engine`."""
        return _OutlinesSession(self._module.Guide(compiled))

    def memory(self, compiled: Any) -> int | None:
        """See `Engine`."""
        return None

    def misses(self, compiled: Any) -> int | None:
        """See `Engine`."""
        return None


class _OutlinesSession:
    def __init__(self, guide: Any) -> None:
        self._guide = guide

    def fill(self, bitmask: Any) -> None:
        """See `Session`."""
        self._guide.write_mask_into(bitmask.ctypes.data, bitmask.size, bitmask.itemsize)

    def accept(self, token_id: int) -> bool:
        """See `Session`."""
        try:
            self._guide.advance(token_id)
        except ValueError:
            return False
        return True

    def forced(self) -> list[int]:
        """See `Session`; the index has no forced tokens."""
        return []


ENGINES: dict[str, Callable[[Tokenizer], Any]] = {
    "ours": Ours,
    "llguidance": LlGuidance,
    "xgrammar": XGrammar,
    "outlines-core": OutlinesCore,
}


def embedded_tokenizer() -> Tokenizer:
    """The tokenizer of the embedded model (SmolLM2)."""
    from sglang_lite.runtime.model.gguf_file import GgufFile
    from sglang_lite.runtime.model.hub import HuggingFaceHub
    from sglang_lite.runtime.model.source import resolve_model
    from sglang_lite.runtime.text.tokenizer_cache import load_tokenizer

    path = resolve_model(None, HuggingFaceHub()).path
    return load_tokenizer(path, env.cache_dir(), lambda _: GgufFile(path).metadata)
