"""Grammars with recursion for the tests: JSON built from nodes, brackets, arithmetic."""

from __future__ import annotations

from functools import cache

from sglang_lite.grammar.compiled import CompiledGrammar, GrammarSource
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.syntax import Bytes, Grammar, Node, Ref, alternate, concat, repeat
from tests.grammar.toy import toy_compiler

STRING = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"


def list_of(item: Node, opening: bytes, closing: bytes, blank: Node) -> Node:
    more = repeat(concat([Bytes(b","), blank, item, blank]), 0, None)
    return concat([Bytes(opening), blank, repeat(concat([item, blank, more]), 0, 1), Bytes(closing)])


@cache
def json_grammar() -> Grammar:
    """Any JSON value; white space inside, not around it."""
    string, number, blank = parse_regex(STRING), parse_regex(NUMBER), parse_regex(r"[ \n\t\r]*")
    member = concat([string, blank, Bytes(b":"), blank, Ref("value")])
    value = alternate([Ref("object"), Ref("array"), string, number, parse_regex("true|false|null")])
    return Grammar(
        Ref("value"),
        {
            "value": value,
            "object": list_of(member, b"{", b"}", blank),
            "array": list_of(Ref("value"), b"[", b"]", blank),
        },
    )


def grammar(name: str, made: Grammar) -> CompiledGrammar:
    """`made` over the toy vocabulary; `name` is its key."""
    return toy_compiler().compile_grammar(made, GrammarSource("test", name))


def compiled_json() -> CompiledGrammar:
    return grammar("json", json_grammar())
