"""Structural tags as JSON, the way clients of SGLang, vLLM and xgrammar send them, to a grammar.

Two shapes are read, as an object or as its JSON text:

```
{"type": "structural_tag", "triggers": ["<fn"], "structures": [{"begin": "<fn=f>", "schema": {...}, "end": "</fn>"}]}
{"type": "structural_tag", "format": FORMAT}
```
A FORMAT has a `type`: `const_string` (`value`), `json_schema` (`json_schema`), `regex` (`pattern`), `grammar` (`grammar`, EBNF), `any_text`,
`sequence` and `or` (`elements`), `tag` (`begin`, `content`, `end`), `triggered_tags` (`triggers`, `tags`, `at_least_one`,
`stop_after_first`) or `tags_with_separator` (`tags`, `separator`): one or more of the tags and nothing else. `any_text` as the content of a tag is text up to the first `end`. Other types and unknown fields are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sglang_lite.grammar.charset import ANY
from sglang_lite.grammar.ebnf import parse_ebnf
from sglang_lite.grammar.errors import InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.structural_tags import StructuralTag, imported, structural_tag_grammar
from sglang_lite.grammar.syntax import Bytes, Chars, Grammar, Node, Repeat, alternate, concat, without

SchemaReader = Callable[[Any], Grammar]
_TEXT = Repeat(Chars(ANY), 0, None)
_FIELDS = {
    "const_string": {"value"},
    "json_schema": {"json_schema"},
    "regex": {"pattern"},
    "grammar": {"grammar"},
    "any_text": set[str](),
    "sequence": {"elements"},
    "or": {"elements"},
    "tag": {"begin", "content", "end"},
    "tags_with_separator": {"tags", "separator"},
    "triggered_tags": {"triggers", "tags", "at_least_one", "stop_after_first"},
}
_OPTIONAL = {"at_least_one", "stop_after_first"}


def parse_structural_tag(spec: Mapping[str, Any] | str, read_schema: SchemaReader) -> Grammar:
    """The grammar of `spec`; `read_schema` makes the grammar of a JSON Schema.

    Raises:
        InvalidGrammarError: a part is missing or of the wrong type; the path is named.
        UnsupportedGrammarError: a type or field that is not offered; the path is named.
    """
    if isinstance(spec, str):
        try:
            spec = json.loads(spec)
        except ValueError as error:
            raise InvalidGrammarError(f"compiling a structural tag: the text is not JSON ({error})") from None
    reader = _Reader(read_schema)
    spec = reader.mapping(spec, "")
    if spec.get("type") != "structural_tag":
        raise InvalidGrammarError(
            f'compiling a structural tag: "type" is {spec.get("type")!r}, expected "structural_tag"'
        )
    if "format" in spec:
        reader.check_fields(spec, "", {"type", "format"}, set())
        return reader.format(spec["format"], "/format")
    reader.check_fields(spec, "", {"type", "structures", "triggers"}, set())
    tags = [reader.structure(item, f"/structures/{i}") for i, item in enumerate(reader.items(spec, "", "structures"))]
    return structural_tag_grammar(tags, reader.texts(spec, "", "triggers"))


class _Reader:
    """Reads one specification; every method gets the path of what it reads."""

    def __init__(self, read_schema: SchemaReader) -> None:
        self._read_schema = read_schema

    def format(self, value: Any, path: str) -> Grammar:
        """The grammar of a FORMAT."""
        value = self.mapping(value, path)
        kind = value.get("type")
        if kind not in _FIELDS:
            raise UnsupportedGrammarError(
                f"compiling a structural tag: the type {kind!r} at {path or '/'} is not supported; supported are {', '.join(_FIELDS)}"
            )
        self.check_fields(value, path, {"type"} | (_FIELDS[kind] - _OPTIONAL), _FIELDS[kind] & _OPTIONAL)
        match kind:
            case "const_string":
                return Grammar(Bytes(self.text(value, path, "value").encode()))
            case "json_schema":
                return self._read_schema(value["json_schema"])
            case "regex":
                return Grammar(parse_regex(self.text(value, path, "pattern")))
            case "grammar":
                return parse_ebnf(self.text(value, path, "grammar"))
            case "any_text":
                return Grammar(_TEXT)
            case "tag":
                tag = self.tag(value, path)
                return _joined(
                    [Grammar(_literal(tag.begin)), _as_grammar(tag.content), Grammar(_literal(tag.end))], concat
                )
            case "triggered_tags":
                return self._triggered(value, path)
            case "tags_with_separator":
                return self._separated(value, path)
            case _:
                parts = [
                    self.format(item, f"{path}/elements/{i}")
                    for i, item in enumerate(self.items(value, path, "elements"))
                ]
                if not parts:
                    raise InvalidGrammarError(f"compiling a structural tag: {path}/elements is empty")
                return _joined(parts, concat if kind == "sequence" else alternate)

    def tag(self, value: Any, path: str) -> StructuralTag:
        """A tag, whose end is part of its content where that is any text."""
        value = self.mapping(value, path)
        begin, end = self.text(value, path, "begin"), self.text(value, path, "end")
        content = self.mapping(value.get("content"), f"{path}/content")
        if content.get("type") == "any_text" and end:
            self.check_fields(content, f"{path}/content", {"type"}, set())
            ended = Bytes(end.encode())
            return StructuralTag(begin, without(concat([_TEXT, ended]), concat([_TEXT, ended, Chars(ANY), _TEXT])))
        return StructuralTag(begin, self.format(content, f"{path}/content"), end)

    def structure(self, value: Any, path: str) -> StructuralTag:
        """A tag of the older shape, with a schema for its content."""
        value = self.mapping(value, path)
        self.check_fields(value, path, {"begin", "schema", "end"}, set())
        return StructuralTag(
            self.text(value, path, "begin"), self._read_schema(value["schema"]), self.text(value, path, "end")
        )

    def _triggered(self, value: Mapping[str, Any], path: str) -> Grammar:
        tags: list[StructuralTag] = []
        for i, item in enumerate(self.items(value, path, "tags")):
            at = f"{path}/tags/{i}"
            self.check_fields(self.mapping(item, at), at, {"begin", "content", "end"}, {"type"})
            tags.append(self.tag(item, at))
        flags = {name: value.get(name, False) for name in ("at_least_one", "stop_after_first")}
        for name, flag in flags.items():
            if not isinstance(flag, bool):
                raise InvalidGrammarError(f"compiling a structural tag: {path}/{name} is {flag!r}, expected a boolean")
        return structural_tag_grammar(tags, self.texts(value, path, "triggers"), **flags)

    def _separated(self, value: Mapping[str, Any], path: str) -> Grammar:
        tags = [
            self.format({"type": "tag", **self.mapping(item, f"{path}/tags/{i}")}, f"{path}/tags/{i}")
            for i, item in enumerate(self.items(value, path, "tags"))
        ]
        if not tags:
            raise InvalidGrammarError(f"compiling a structural tag: {path}/tags is empty")
        one = _joined(tags, alternate)
        further = concat([Bytes(self.text(value, path, "separator").encode()), one.start])
        return Grammar(concat([one.start, Repeat(further, 0, None)]), one.rules)

    def check_fields(self, value: Mapping[str, Any], path: str, needed: set[str], optional: set[str]) -> None:
        """Raise for a field that is missing or unknown."""
        for name in sorted(needed - set(value)):
            raise InvalidGrammarError(f"compiling a structural tag: {path}/{name} is missing")
        for name in sorted(set(value) - needed - optional):
            raise UnsupportedGrammarError(f"compiling a structural tag: the field {path}/{name} is not supported")

    def mapping(self, value: Any, path: str) -> Mapping[str, Any]:
        """`value` as an object."""
        if not isinstance(value, Mapping):
            raise InvalidGrammarError(f"compiling a structural tag: {path or '/'} is {value!r}, expected an object")
        return value

    def text(self, value: Mapping[str, Any], path: str, name: str) -> str:
        """The text in the field `name`."""
        found = value.get(name)
        if not isinstance(found, str):
            raise InvalidGrammarError(f"compiling a structural tag: {path}/{name} is {found!r}, expected a text")
        return found

    def items(self, value: Mapping[str, Any], path: str, name: str) -> Sequence[Any]:
        """The list in the field `name`."""
        found = value.get(name)
        if not isinstance(found, list | tuple):
            raise InvalidGrammarError(f"compiling a structural tag: {path}/{name} is {found!r}, expected a list")
        return found

    def texts(self, value: Mapping[str, Any], path: str, name: str) -> list[str | int]:
        """The list of texts in the field `name`."""
        found = self.items(value, path, name)
        return [self.text({str(i): item}, f"{path}/{name}", str(i)) for i, item in enumerate(found)]


def _joined(parts: list[Grammar], join: Callable[[list[Node]], Node]) -> Grammar:
    """`parts` in one grammar, each with its rules to itself."""
    rules: dict[str, Node] = {}
    nodes = [imported(part, f"part {index}: ", rules) for index, part in enumerate(parts)]
    return Grammar(join(nodes), rules)


def _as_grammar(content: Node | Grammar) -> Grammar:
    return content if isinstance(content, Grammar) else Grammar(content)


def _literal(text: str | int) -> Node:
    assert isinstance(text, str), "tags in JSON have texts for begin and end"
    return Bytes(text.encode())
