"""From terms to grammar rules: one rule for each set of values, so that recursion and repetition cost nothing; knows no keyword."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from sglang_lite.grammar.errors import GrammarTooLargeError, UnsupportedGrammarError
from sglang_lite.grammar.json_schema.emit_arrays import ArrayWriter
from sglang_lite.grammar.json_schema.emit_objects import ObjectWriter
from sglang_lite.grammar.json_schema.forms import Form
from sglang_lite.grammar.json_schema.languages import ANY_TEXT, any_node
from sglang_lite.grammar.json_schema.layout import Layout
from sglang_lite.grammar.json_schema.normalise import Normaliser
from sglang_lite.grammar.json_schema.number_text import NumberTexts
from sglang_lite.grammar.json_schema.numeric import ALL_NUMBERS, NumberSet
from sglang_lite.grammar.json_schema.options import Effect
from sglang_lite.grammar.json_schema.spelling import STRING_RULE, base_rules, quoted, quoted_others, quoted_texts
from sglang_lite.grammar.json_schema.terms import TRUE, Located, Term
from sglang_lite.grammar.json_schema.texts import ALL_TEXTS, TextSet
from sglang_lite.grammar.syntax import NEVER, Bytes, Node, Ref

MAX_RULES = 20_000
VALUE_RULE, NUMBER_RULE, INTEGER_RULE = "value", "number", "integer"
_INTEGERS = NumberSet(integral=True)


class Emitter:
    """Writes rules for terms, each term once. `rules` grows while nodes are asked for.

    Raises (all methods):
        UnsupportedGrammarError, GrammarTooLargeError, InvalidGrammarError: naming keyword and place where they are known.
    """

    def __init__(self, normaliser: Normaliser) -> None:
        options = normaliser.options
        self.normaliser = normaliser
        self.layout = Layout(options.whitespace, options.max_whitespace)
        self.rules: dict[str, Node] = dict(_base_rules(options.max_integer_digits, options.max_fraction_digits))
        self._numbers = NumberTexts(options.max_integer_digits, options.max_fraction_digits)
        self._arrays = ArrayWriter(self)
        self._objects = ObjectWriter(self)
        self._by_term: dict[Term, Node] = {}
        self._by_form: dict[Form, Node] = {}

    def value(self, term: Term) -> Node:
        """The JSON texts of `term`: a reference to its rule, or the node itself where that is a word or two."""
        known = self._by_term.get(term)
        if known is not None:
            return known
        form = self.form(term)
        known = self._by_form.get(form)
        if known is not None:
            self._by_term[term] = known
            return known
        if not form.arrays and not form.objects:
            node = self._form_node(form, _where(term))
            if not _is_small(node):
                node = self.add_rule(_where(term) or "part", node)
            self._by_term[term] = self._by_form[form] = node
            return node
        name = VALUE_RULE if term == TRUE else self._free_name(_where(term) or "part")
        self._by_term[term] = self._by_form[form] = Ref(name)
        self.rules[name] = NEVER
        self.rules[name] = self._form_node(form, _where(term))
        return Ref(name)

    def add_rule(self, stem: str, node: Node) -> Ref:
        """A new rule with a name that begins with `stem`."""
        name = self._free_name(stem)
        self.rules[name] = node
        return Ref(name)

    def is_void(self, term: Term) -> bool:
        """Whether `term` is proven to have no value."""
        return self.normaliser.emptiness.is_void(term)

    def unchecked(self, pointer: str, keyword: str, error: UnsupportedGrammarError) -> None:
        """Leave a keyword out with a note, or, in strict mode, raise `error`."""
        if self.normaliser.options.strict:
            raise error
        self.normaliser.note(pointer, keyword, "unchecked", str(error))

    def form(self, term: Term) -> Form:
        """The form of `term`, without alternatives that have no value."""
        return self.normaliser.emptiness.without_void(self.normaliser.form(term))

    def note(self, pointer: str, keyword: str, effect: Effect, detail: str) -> None:
        """Remember that a keyword is not followed to the letter."""
        self.normaliser.note(pointer, keyword, effect, detail)

    def _free_name(self, stem: str) -> str:
        if len(self.rules) >= MAX_RULES:
            raise GrammarTooLargeError(f"writing the grammar of a JSON Schema: it needs more than {MAX_RULES} rules")
        return stem if stem not in self.rules else f"{stem}~{len(self.rules)}"

    def _form_node(self, form: Form, where: str) -> Node:
        words = [word for word, is_in in ((b"null", form.null), (b"true", form.true), (b"false", form.false)) if is_in]
        options: list[Node] = [Bytes(word) for word in words]
        options.extend(self._number(part, where) for part in form.numbers)
        options.extend(self._text(part, where) for part in form.texts)
        options.extend(self._arrays.node(part, where) for part in form.arrays)
        options.extend(self._objects.node(part, where) for part in form.objects)
        return any_node(options)

    def _number(self, part: NumberSet, where: str) -> Node:
        if part in (ALL_NUMBERS, _INTEGERS):
            return Ref(NUMBER_RULE if part == ALL_NUMBERS else INTEGER_RULE)
        try:
            return self._numbers.node(part)
        except UnsupportedGrammarError as error:
            self.unchecked(where, "multipleOf", UnsupportedGrammarError(f"{error}, at #{where}"))
        none = frozenset[object]()
        return self._number(replace(part, multiples=none, other_multiples=none), where)

    def _text(self, part: TextSet, where: str) -> Node:
        if part == ALL_TEXTS:
            return Ref(STRING_RULE)
        listed = part.listed()
        if listed is not None:
            return quoted_texts(listed)
        if part == TextSet(excluded=part.excluded):
            return quoted_others(part.excluded)
        if part.is_thinned:
            self.note(where, "maxLength", "narrower", "the repeats of the pattern are bounded, so that their sum is")
        language = part.written()
        return Ref(STRING_RULE) if language == ANY_TEXT else quoted(language)


@lru_cache(maxsize=8)
def _base_rules(whole: int, fraction: int) -> Mapping[str, Node]:
    """The rules that every schema may refer to; the same nodes each time, so that what is known of them stays known."""
    numbers = NumberTexts(whole, fraction)
    return {**base_rules(), NUMBER_RULE: numbers.any_number, INTEGER_RULE: numbers.node(_INTEGERS)}


def _where(term: Term) -> str:
    return term.pointer if isinstance(term, Located) else ""


def _is_small(node: Node) -> bool:
    return isinstance(node, Bytes | Ref)
