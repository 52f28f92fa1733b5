"""Check, explain and draw a grammar: a JSON Schema, structural tags, a regular expression, GBNF or Lark. Needs no model.

FILE ends in .json (a schema, or structural tags), .gbnf or .ebnf, .lark, or anything else for a regular expression; --kind says it
otherwise. `check` compiles it and tells what is narrower or not checked; with --text it says whether the text belongs to
the grammar, and where it leaves it. `explain` tells what became of each keyword. `draw` prints the automaton with runs as single edges.
The exit code is 1 where the grammar is refused or the text does not belong to it.

Examples:
  sglang-lite grammar check person.json --text '{"name":"Ada"}'
  sglang-lite grammar explain person.json
  sglang-lite grammar draw date.regex --format svg > date.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_lite.errors import RequestError

if TYPE_CHECKING:
    from sglang_lite.grammar import CompiledGrammar, GrammarCompiler

NAME = "grammar"
SUMMARY = "check, explain or draw a grammar"
_KINDS = ("json_schema", "structural_tag", "regex", "ebnf", "lark")
_BY_SUFFIX = {".json": "json_schema", ".gbnf": "ebnf", ".ebnf": "ebnf", ".lark": "lark"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite grammar`."""
    parser.add_argument("action", choices=("check", "explain", "draw"))
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--kind", choices=_KINDS, help="what FILE is (default: by its name)")
    parser.add_argument("--text", help="check: a text to look for in the grammar")
    parser.add_argument("--text-file", type=Path, help="check: a file with such a text")
    parser.add_argument("--whitespace", choices=("compact", "spaced", "any"), default="compact", help="of JSON")
    parser.add_argument("--formats", choices=("assert", "annotation"), default="assert", help="what `format` means")
    parser.add_argument("--not-strict", action="store_true", help="leave out what cannot be enforced, and say so")
    parser.add_argument("--format", choices=("text", "dot", "svg"), default="text", help="draw: of the picture")
    parser.add_argument("--max-states", type=int, default=2000, help="draw: the largest automaton")


def main(args: argparse.Namespace) -> int:
    """Compile FILE and do what was asked."""
    try:
        source = args.file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"reading the grammar {args.file}: {error}") from error
    kind = args.kind or _kind_of(args.file, source)
    if args.action == "explain" and kind == "json_schema":
        return _explain_schema(source, args)
    compiled = _compiled(kind, source, args)
    if args.action == "draw":
        print(_picture(compiled, args), end="")
        return 0
    if args.action == "explain":
        print(compiled.describe())
    _summary(compiled)
    return 0 if args.action == "explain" else _check_text(compiled, args)


def _kind_of(path: Path, source: str) -> str:
    kind = _BY_SUFFIX.get(path.suffix, "regex")
    if kind == "json_schema":
        try:
            found = json.loads(source)
        except ValueError:
            return kind
        if isinstance(found, dict) and (found.get("type") == "structural_tag" or "triggers" in found):
            return "structural_tag"
    return kind


def _compiled(kind: str, source: str, args: argparse.Namespace) -> CompiledGrammar:
    compiler = _compiler()
    options: dict[str, Any] = {
        "strict": not args.not_strict,
        "whitespace": args.whitespace,
        "formats": args.formats,
    }
    try:
        match kind:
            case "json_schema":
                return compiler.compile_json_schema(source, **options)
            case "structural_tag":
                return compiler.compile_structural_tag(source, **options)
            case "ebnf":
                return compiler.compile_ebnf(source)
            case "lark":
                return compiler.compile_lark(source)
            case _:
                return compiler.compile_regex(source.removesuffix("\n"))
    except ValueError as error:  # every error of the grammar package is one; it names the place
        raise RequestError(str(error)) from error


def _compiler() -> GrammarCompiler:
    """A compiler over single bytes: what belongs to a grammar does not depend on the tokens."""
    from sglang_lite.runtime.engine.build import prepare_grammar_kernels
    from sglang_lite.runtime.engine.cache_folder import cache_folder

    prepare_grammar_kernels(cache_folder())
    from sglang_lite.grammar import GrammarCompiler, TokenVocab  # after the folder of compiled kernels is named

    return GrammarCompiler(TokenVocab([*(bytes([byte]) for byte in range(256)), None], eos_ids=[256]))


def _summary(compiled: CompiledGrammar) -> None:
    statistics = compiled.statistics()
    print(f"{compiled.source.kind}: {statistics.nfa_states} states, {statistics.byte_classes} classes of bytes")
    for note in compiled.notes:
        print(f"{note.effect}: {note.keyword} at #{note.pointer}: {note.detail}")


def _check_text(compiled: CompiledGrammar, args: argparse.Namespace) -> int:
    if args.text is None and args.text_file is None:
        return 0
    from sglang_lite.grammar.drawing import ranges_text
    from sglang_lite.grammar.explaining import first_failure

    data = args.text.encode(errors="surrogateescape") if args.text is not None else args.text_file.read_bytes()
    failure = first_failure(compiled, data)
    if failure is None:
        print("the text belongs to the grammar")
        return 0
    read = data[: failure.offset].decode(errors="backslashreplace")
    print(f"the text leaves the grammar at byte {failure.offset}, behind {read[-60:]!r}")
    rest = data[failure.offset : failure.offset + 20].decode(errors="backslashreplace")
    print(f"  found:    {rest!r}" if rest else "  found:    the end")
    could = [ranges_text(failure.expected)] if failure.expected else []
    print(f"  expected: {' or '.join([*could, *(['the end'] if failure.may_end else [])])}")
    return 1


def _explain_schema(source: str, args: argparse.Namespace) -> int:
    from sglang_lite.grammar.explaining import explain_schema
    from sglang_lite.grammar.json_schema import SchemaOptions, describe_schema

    options = SchemaOptions(strict=not args.not_strict, whitespace=args.whitespace, formats=args.formats)
    try:
        schema = json.loads(source)
        effects = explain_schema(schema, options)
        print(describe_schema(source))
    except ValueError as error:
        raise RequestError(f"explaining {args.file}: {error}") from error
    print()
    for one in effects:
        place = f"#{one.pointer}" if one.keyword else ""
        print(f"{one.effect:10} {place}{': ' + one.detail if one.detail else ''}")
    return 1 if any(one.effect == "refused" for one in effects) else 0


def _picture(compiled: CompiledGrammar, args: argparse.Namespace) -> str:
    from sglang_lite.grammar.drawing import as_dot, as_svg, as_text

    try:
        fsm = compiled.compressed(max_states=args.max_states)
    except ValueError as error:
        raise RequestError(f"{error} (--max-states; a grammar with recursion has no end of states)") from error
    return {"text": as_text, "dot": as_dot, "svg": as_svg}[args.format](fsm)
