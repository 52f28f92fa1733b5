"""What the HTTP process and the scheduler process say to each other; typed, versioned, msgpack on the wire.

Both ends are of one installation, so an other version on the other side is a fault and ends the start.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from sglang_lite.runtime.engine.requests import GenerateRequest

VERSION = 2


class Message(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages; the tag on the wire is the class's name."""


class Start(Message, frozen=True):
    """First message to the scheduler: what to load. `settings` are `Engine`'s."""

    version: int
    model_path: str | None
    settings: dict[str, Any]


class Generate(Message, frozen=True):
    """Run a group of requests; each has its id. `stream`: a `Piece` for each step, else one at its end."""

    group: int
    requests: list[GenerateRequest]
    stream: bool


class Abort(Message, frozen=True):
    """End requests; `is_silent`: nobody reads their replies any more."""

    rids: list[str]
    is_silent: bool


class Call(Message, frozen=True):
    """Call a named function of the engine; an `Answer` of that number follows."""

    number: int
    name: str
    arguments: dict[str, Any]


class OpenProgram(Message, frozen=True):
    """Start a program."""

    program: int
    seed: int | None
    cache_salt: str = ""


class OpenRows(Message, frozen=True):
    """Start a program for each row of arguments of one tree, closed from the beginning; see `RowsBackend`.

    `programs`, `arguments` and `seeds` have an entry for each row; `tree` is in its JSON form.
    """

    programs: list[int]
    tree: dict[str, Any]
    arguments: list[dict[str, str]]
    seeds: list[int | None]
    cache_salt: str = ""


class AppendOps(Message, frozen=True):
    """Ops of a program, in the form of `op_json`."""

    program: int
    ops: list[dict[str, Any]]


class CancelProgram(Message, frozen=True):
    """Stop branches of a program; None: all."""

    program: int
    branches: list[int] | None


class CloseProgram(Message, frozen=True):
    """No further ops come."""

    program: int


class ForgetProgram(Message, frozen=True):
    """A program is over: nothing about it comes any more."""

    program: int


class Stop(Message, frozen=True):
    """End: open requests fail, then the process exits."""


ToScheduler: TypeAlias = (
    Start
    | Generate
    | Abort
    | Call
    | OpenProgram
    | OpenRows
    | AppendOps
    | CancelProgram
    | CloseProgram
    | ForgetProgram
    | Stop
)


class Progress(Message, frozen=True):
    """A line for the screen while the model loads."""

    line: str


class Ready(Message, frozen=True):
    """The engine runs. `info`: what `get_server_info` says; the three numbers are `Limits`."""

    version: int
    info: dict[str, Any]
    vocab_size: int
    context_length: int
    pool_tokens: int


class Failed(Message, frozen=True):
    """The engine could not be started."""

    error: dict[str, Any]


class Piece(Message, frozen=True):
    """What a request of a group said since its last piece; `meta` is whole but for the lists that only grow.

    `grown`: by name in `meta`, the entries since the last piece. `error`: in the form of `op_json`.
    """

    group: int
    index: int
    text: str
    ids: list[int]
    meta: dict[str, Any]
    grown: dict[str, list[Any]]
    error: dict[str, Any] | None
    last: bool


class Answer(Message, frozen=True):
    """The result of a `Call`, or its error."""

    number: int
    value: Any
    error: dict[str, Any] | None


class ProgramEvents(Message, frozen=True):
    """Events of a program, in the form of `op_json`."""

    program: int
    events: list[dict[str, Any]]


class Beat(Message, frozen=True):
    """Several a second: steps done so far, whether there is work, and `Engine.snapshot`."""

    steps: int
    has_work: bool
    snapshot: dict[str, Any] = {}


FromScheduler: TypeAlias = Progress | Ready | Failed | Piece | Answer | ProgramEvents | Beat
