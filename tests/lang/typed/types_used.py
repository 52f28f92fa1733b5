"""Types that the tests of this folder read; at the top of a module, where annotations can be resolved."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, TypedDict

import pydantic

from sglang_lite import Limits


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Toy:
    name: Annotated[str, "how it is called", Limits(max_length=8)]
    colour: Colour | None = None


@dataclass
class Pet:
    """A pet."""

    name: str
    age: int = 0
    toys: list[Toy] = field(default_factory=list)
    weight: float | None = None


@dataclass
class Node:
    value: int
    children: list[Node] = field(default_factory=list)


@dataclass
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number <= 0:
            raise ValueError("number must be above 0")


class Film(TypedDict):
    title: str
    year: NotRequired[int]


class Loose(TypedDict, total=False):
    title: Required[str]
    year: int


class Point(NamedTuple):
    x: int
    y: float = 1.5


class Inner(pydantic.BaseModel):
    """Something inside."""

    kind: Literal["a", "b"]


class Model(pydantic.BaseModel):
    number: int = pydantic.Field(ge=0)
    inner: list[Inner] = []
    called: str = pydantic.Field(default="", alias="calledAs")

    @pydantic.field_validator("number")
    @classmethod
    def not_thirteen(cls, value: int) -> int:
        if value == 13:
            raise ValueError("unlucky")
        return value


class OtherInner(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(title="Inner")

    text: str


class Tree(pydantic.BaseModel):
    value: int
    children: list[Tree] = []


SOME: list[tuple[Any, str, Any]] = [
    (int, "-12", -12),
    (int, "7 ", 7),
    (float, "2.5", 2.5),
    (float, "3", 3.0),
    (bool, "True", True),
    (bool, "false", False),
    (str, " any text ", " any text "),
    (Colour, "blue", Colour.BLUE),
    (Level, "2", Level.HIGH),
    (Literal["a", 1, None, True], "1", 1),
    (Literal["a", 1, None, True], "null", None),
    (Literal["a", 1, None, True], "true", True),
    (int | None, "null", None),
    (list[int], "[1,2]", [1, 2]),
    (set[str], '["a"]', {"a"}),
    (tuple[int, ...], "[1,2,3]", (1, 2, 3)),
    (tuple[int, str], '[1,"a"]', (1, "a")),
    (dict[str, float], '{"a":1}', {"a": 1.0}),
    (list[Level], "[1,2]", [Level.LOW, Level.HIGH]),
    (Pet, '{"name":"Rex"}', Pet("Rex")),
    (
        Pet,
        '{"name":"Rex","age":3,"toys":[{"name":"ball","colour":"red"}],"weight":2}',
        Pet("Rex", 3, [Toy("ball", Colour.RED)], 2.0),
    ),
    (Node, '{"value":1,"children":[{"value":2}]}', Node(1, [Node(2)])),
    (Film, '{"title":"M"}', {"title": "M"}),
    (Loose, '{"title":"M","year":1931}', {"title": "M", "year": 1931}),
    (Point, '{"x":1}', Point(1)),
    (Model, '{"number":1,"inner":[{"kind":"a"}]}', Model(number=1, inner=[Inner(kind="a")])),
    (list[Model], '[{"number":1}]', [Model(number=1)]),
    (Tree, '{"value":1,"children":[{"value":2}]}', Tree(value=1, children=[Tree(value=2)])),
    (list[Tree], '[{"value":1}]', [Tree(value=1)]),
    (Any, '{"a":[1,null]}', {"a": [1, None]}),
    (Pet | Film, '{"title":"M"}', {"title": "M"}),
    (Annotated[int, Limits(ge=3)], "4", 4),
]
"""Types, a text of each, and what it means."""
