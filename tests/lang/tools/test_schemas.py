"""Tools out of functions, OpenAI's dicts and pydantic models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
import pytest

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang.tools.schemas import read_tools


def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C", tags: list[str] | None = None) -> str:
    """The weather of a city.

    In words.

    Args:
        city: its name,
            in English.
        days: how many.

    Returns:
        A sentence.
    """
    return f"{city} {days} {unit} {tags}"


class Trip(pydantic.BaseModel):
    """A trip to book."""

    town: str
    nights: Annotated[int, pydantic.Field(ge=1)] = 1


def test_a_function_is_described_by_its_signature_and_docstring() -> None:
    (tool,) = read_tools([weather])
    function = tool.spec["function"]
    assert (function["name"], function["description"]) == ("weather", "The weather of a city.\n\nIn words.")
    schema = function["parameters"]
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["city"] == {"type": "string", "description": "its name, in English."}
    assert schema["properties"]["days"]["type"] == "integer"
    assert schema["properties"]["unit"]["enum"] == ["C", "F"]


def test_arguments_are_checked_and_become_what_the_function_wants() -> None:
    (tool,) = read_tools([weather])
    assert tool.run is not None
    assert tool.run(**tool.read({"city": "Oslo", "tags": ["x"]})) == "Oslo 1 C ['x']"
    for wrong, words in (({}, "city: is missing"), ({"city": 1}, "city"), ({"city": "a", "x": 1}, "no such member")):
        with pytest.raises(RequestError, match="calling the tool 'weather'") as caught:
            tool.read(wrong)
        assert words in str(caught.value)


def test_a_pydantic_model_and_openais_dict_are_tools() -> None:
    given: dict[str, Any] = {"type": "function", "function": {"name": "now", "description": "The time."}}
    model, plain = read_tools([Trip, given])
    assert model.spec["function"]["name"] == "Trip"
    assert model.spec["function"]["description"] == "A trip to book."
    assert model.read({"town": "Rome"}) == Trip(town="Rome", nights=1)
    with pytest.raises(RequestError, match="nights"):
        model.read({"town": "Rome", "nights": 0})
    assert plain.spec["function"]["parameters"] == {"type": "object", "properties": {}}
    assert given["function"] == {"name": "now", "description": "The time."}
    assert plain.read({"any": 1}) == {"any": 1}
    assert read_tools([model])[0] is model


def anonymous(*args: int) -> None: ...


def unknown(x: memoryview) -> None: ...


@pytest.mark.parametrize("tools", [[], "weather", weather, [7], [weather, weather], [lambda: 1], [anonymous]])
def test_what_is_no_list_of_tools_is_refused(tools: Any) -> None:
    with pytest.raises(RequestError, match=r"^reading (a tool|tools|the tool)"):
        read_tools(tools)


def test_a_parameter_of_a_type_without_a_form_is_named() -> None:
    with pytest.raises(UnsupportedError, match="reading the tool 'unknown', parameter 'x'"):
        read_tools([unknown])
