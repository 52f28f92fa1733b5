from __future__ import annotations

import json
import re
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.errors import RequestError, ValidationError
from sglang_lite.grammar import GrammarCompiler, GrammarMatcher, TokenVocab
from sglang_lite.lang.typed.plain import as_plain
from sglang_lite.lang.typed.spec import Typed, typed
from tests.lang.typed.types_used import SOME, Colour, Model, Node, Pet, Positive, Toy


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    """A vocabulary of the bytes: a text is legal if each of its bytes is."""
    return GrammarCompiler(TokenVocab([bytes([i]) for i in range(256)] + [b""], eos_ids=[256]))


def allows(compiler: GrammarCompiler, wanted: Typed, text: str) -> bool:
    if wanted.choices is not None:
        return text in wanted.choices
    if wanted.regex is not None:
        return re.fullmatch(wanted.regex, text) is not None
    if wanted.json_schema is None:
        return True
    matcher = GrammarMatcher(compiler.compile_json_schema(wanted.json_schema))
    return all(matcher.accept_token(byte) for byte in text.encode()) and matcher.accept_token(256)


def name_of_case(case: Any) -> str:
    return str(case)[:40]


@pytest.mark.parametrize(("annotation", "text", "value"), SOME, ids=name_of_case)
def test_a_text_that_the_constraint_allows_is_the_value(
    compiler: GrammarCompiler, annotation: Any, text: str, value: Any
) -> None:
    wanted = typed(annotation)
    assert allows(compiler, wanted, text)
    read = wanted.parse(text)
    assert read == value
    assert type(read) is type(value)


TOYS = st.builds(Toy, st.text('abc é"\\', max_size=8), st.none() | st.sampled_from(Colour))
PETS = st.builds(
    Pet,
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.integers(),
    st.lists(TOYS, max_size=3),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
NODES = st.recursive(
    st.builds(Node, st.integers()), lambda inner: st.builds(Node, st.integers(), st.lists(inner, max_size=3))
)
VALUES = st.one_of(
    *(
        st.tuples(st.just(annotation), values)
        for annotation, values in [
            (Pet, PETS),
            (list[Pet], st.lists(PETS, max_size=2)),
            (Node, NODES),
            (
                dict[str, tuple[int, bool]],
                st.dictionaries(st.text(max_size=3), st.tuples(st.integers(), st.booleans())),
            ),
            (int | str | None, st.none() | st.integers() | st.text()),
        ]
    )
)


@given(VALUES)
def test_a_value_written_as_json_reads_as_itself(case: tuple[Any, Any]) -> None:
    annotation, value = case
    assert typed(annotation).parse(json.dumps(value, default=as_plain)) == value


@given(value=PETS)
def test_what_json_says_of_a_value_is_allowed_by_its_constraint(compiler: GrammarCompiler, value: Pet) -> None:
    """Very long numbers, those in exponent notation and unusual escapes are left out: a model is not made to write them."""
    value.weight = None if value.weight is None else float(round(value.weight % 1000, 2))
    value.age %= 10**9
    value.name = re.sub(r"[^a-z]", "", value.name)
    value.toys = [Toy(re.sub(r"[^a-z]", "", toy.name), toy.colour) for toy in value.toys]
    text = json.dumps(value, default=as_plain, separators=(",", ":"))
    assert allows(compiler, typed(Pet), text)


@given(st.integers(-(10**17), 10**17), st.floats(0, 10**6))
def test_bare_numbers_read_as_they_are_written(whole: int, real: float) -> None:
    assert typed(int).parse(str(whole)) == whole
    assert typed(float).parse(f"{real:.6f}") == float(f"{real:.6f}")


def failures_of(annotation: Any, text: str, **arguments: Any) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        typed(annotation, **arguments).parse(text)
    assert caught.value.text == text
    assert isinstance(caught.value, ValueError)
    return dict(caught.value.failures)


def test_everything_that_is_wrong_is_told_with_its_path() -> None:
    text = '{"name":1,"toys":[{"name":"ball"},{"name":"a long name","colour":"green","size":1}],"wing":2}'
    assert failures_of(Pet, text) == {
        "$.wing": "expected no such member; Pet has ['name', 'age', 'toys', 'weight']",
        "$.name": "got 1, expected a JSON string",
        "$.toys[1].size": "expected no such member; Toy has ['name', 'colour']",
        "$.toys[1].name": "got 'a long name', expected at most 8 characters",
        "$.toys[1].colour": "got 'green', expected one of ['red', 'blue']",
    }


def test_code_of_the_type_has_its_say_and_its_place() -> None:
    assert failures_of(list[Positive], '[{"number":1},{"number":-1}]') == {"$[1]": "number must be above 0"}
    assert failures_of(list[Model], '[{"number":13}]') == {"$[0].number": "Value error, unlucky"}
    assert "unlucky" in failures_of(Model, '{"number":13}')["$.number"]


@pytest.mark.parametrize("text", ["", "{", "[1,", "NaN", "nul"])
def test_a_text_that_is_no_json_is_no_value(text: str) -> None:
    assert "no JSON" in failures_of(list[int], text)["$"]


@pytest.mark.parametrize(
    ("annotation", "text"), [(int, "x"), (int, "1.5"), (bool, "1"), (Colour, "green"), (float, "")]
)
def test_a_bare_text_of_another_kind_is_no_value(annotation: Any, text: str) -> None:
    assert failures_of(annotation, text)


def test_a_check_of_the_program_refuses_by_raising() -> None:
    def is_even(value: int) -> None:
        if value % 2:
            raise ValueError("it must be even")

    assert typed(int, check=is_even).parse("4") == 4
    assert failures_of(int, "5", check=is_even) == {"$": "it must be even"}


def test_who_may_refuse_beyond_the_constraint_is_known() -> None:
    assert [typed(t).may_refuse for t in (int, Pet, Node, list[int])] == [False] * 4
    assert [typed(t).may_refuse for t in (Positive, list[Positive], Model, dict[str, Model])] == [True] * 4
    assert typed(int, check=print).may_refuse


def test_a_regex_of_the_gen_stands_in_for_that_of_a_bare_scalar() -> None:
    assert typed(int, regex="[0-9]{2}").regex == "[0-9]{2}"
    assert typed(str, regex="[a-z]+").regex == "[a-z]+"
    with pytest.raises(RequestError, match="own constraint"):
        typed(Pet, regex="x")


def test_values_that_are_written_alike_are_refused() -> None:
    with pytest.raises(RequestError, match="differ"):
        typed(Literal["1", 1])
    with pytest.raises(RequestError, match="differ"):
        typed(Literal["", "a"])
