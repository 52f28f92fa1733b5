"""The scheduler process: an engine that does what the HTTP process says. Run as a module with the folder of the sockets."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from sglang_lite.errors import EngineStoppedError, ExecutionError, SglangLiteError
from sglang_lite.op_json import error_to_json, event_to_json, op_from_json
from sglang_lite.request_tree import Event, EventSink, Program, RequestTree, TreeRow
from sglang_lite.runtime.engine.notices import told
from sglang_lite.runtime.engine.reply import Mailbox, Reply
from sglang_lite.runtime.engine.requests import GenerateRequest, Limits
from sglang_lite.runtime.server.ipc import messages as ipc
from sglang_lite.runtime.server.ipc.channel import Channel

_BEAT_S = 0.2


class HostedEngine(Protocol):
    """What the process needs of its engine."""

    @property
    def limits(self) -> Limits:
        """What every request must fit."""
        ...

    def submit(self, requests: list[GenerateRequest], mailbox: Mailbox, *, stream: bool) -> list[str]:
        """Queue requests."""
        ...

    def abort(self, rid: str) -> None:
        """End a request; its reply is what it had so far."""
        ...

    def abort_all(self, rids: list[str]) -> None:
        """End requests that nobody waits for."""
        ...

    def open_program(self, sink: EventSink, *, seed: int | None = None, cache_salt: str = "") -> Program:
        """Start a program."""
        ...

    def open_rows(self, tree: RequestTree, rows: list[TreeRow], *, cache_salt: str = "") -> list[Program]:
        """Start a program for each row of arguments."""
        ...

    def get_server_info(self) -> dict[str, Any]:
        """Configuration and counters."""
        ...

    def calls(self) -> dict[str, Callable[..., Any]]:
        """Functions that may be called by name; arguments and results are plain data."""
        ...

    def progress(self) -> tuple[int, bool]:
        """Steps so far, and whether there is work; waits for nothing."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Counters of a moment ago; waits for nothing."""
        ...

    def shutdown(self) -> None:
        """Stop."""
        ...


class PieceSender:
    """Sends what a request said since it was last asked; called on the engine's thread."""

    def __init__(self, send: Callable[[ipc.Message], None], group: int, index: int) -> None:
        self._send = send
        self._group = group
        self._index = index
        self._num_chars = 0
        self._num_ids = 0
        self._sizes: dict[str, int] = {}

    def __call__(self, reply: Reply, error: SglangLiteError | None, last: bool) -> None:
        """Take a reply, whose text, ids and output lists only grow."""
        meta: dict[str, Any] = dict(reply["meta_info"])
        grown: dict[str, list[Any]] = {}
        for name in [name for name, value in meta.items() if name.startswith("output_") and isinstance(value, list)]:
            entries: list[Any] = meta.pop(name)
            grown[name] = entries[self._sizes.get(name, 0) :]
            self._sizes[name] = len(entries)
        text, ids = reply["text"], reply["output_ids"]
        piece = ipc.Piece(
            self._group,
            self._index,
            text[self._num_chars :],
            ids[self._num_ids :],
            meta,
            grown,
            None if error is None else error_to_json(error),
            last,
        )
        self._num_chars, self._num_ids = len(text), len(ids)
        self._send(piece)


class PieceMailbox(Mailbox):
    """A mailbox whose replies go to the other process."""

    def __init__(self, send: Callable[[ipc.Message], None], group: int) -> None:
        super().__init__()
        self._send = send
        self._group = group

    def deliverer(self, index: int) -> PieceSender:
        """What the request number `index` calls."""
        return PieceSender(self._send, self._group, index)


class Worker:
    """Reads messages on one thread and passes them to the engine; every message is answered, or its request fails."""

    def __init__(self, engine: HostedEngine, channel: Channel[ipc.ToScheduler], *, ends_engine: bool = True) -> None:
        self._engine = engine
        self._ends_engine = ends_engine
        self._channel = channel
        self._programs: dict[int, Program] = {}
        self._calls = engine.calls()
        self._ended = threading.Event()

    def run(self) -> None:
        """Serve until `Stop`; then the engine is shut down, if `ends_engine`."""
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        while (message := self._channel.receive()) is not None and not isinstance(message, ipc.Stop):
            try:
                self._take(message)
            except EngineStoppedError:
                break  # the engine died; what it owed was answered, and the process ends
        self._ended.set()
        if self._ends_engine:
            self._engine.shutdown()

    def _take(self, message: ipc.ToScheduler) -> None:
        match message:
            case ipc.Generate():
                self._generate(message)
            case ipc.Abort(rids=rids, is_silent=True):
                self._engine.abort_all(rids)
            case ipc.Abort(rids=rids):
                for rid in rids:
                    self._engine.abort(rid)
            case ipc.Call():
                threading.Thread(target=self._call, args=(message,), daemon=True).start()
            case _:
                self._take_for_program(message)

    def _take_for_program(self, message: ipc.ToScheduler) -> None:
        match message:
            case ipc.OpenProgram(program=number, seed=seed, cache_salt=salt):
                self._programs[number] = self._engine.open_program(self._sink(number), seed=seed, cache_salt=salt)
            case ipc.OpenRows():
                self._open_rows(message)
            case ipc.AppendOps(program=number, ops=ops):
                self._programs[number].append([op_from_json(op) for op in ops])
            case ipc.CancelProgram(program=number, branches=branches):
                if (program := self._programs.get(number)) is not None:  # else it ended meanwhile
                    program.cancel(branches)
            case ipc.CloseProgram(program=number):
                if (program := self._programs.get(number)) is not None:
                    program.close()
            case ipc.ForgetProgram(program=number):
                self._programs.pop(number, None)
            case _:
                raise AssertionError(f"{type(message).__name__} is not a message for a running scheduler")

    def _open_rows(self, message: ipc.OpenRows) -> None:
        rows = [
            TreeRow(arguments, self._sink(number), seed)
            for number, arguments, seed in zip(message.programs, message.arguments, message.seeds, strict=True)
        ]
        opened = self._engine.open_rows(RequestTree.from_json(message.tree), rows, cache_salt=message.cache_salt)
        self._programs.update(zip(message.programs, opened, strict=True))

    def _generate(self, message: ipc.Generate) -> None:
        try:
            self._engine.submit(
                message.requests, PieceMailbox(self._channel.send, message.group), stream=message.stream
            )
        except EngineStoppedError:
            raise
        except SglangLiteError as error:
            for index in range(len(message.requests)):
                self._channel.send(ipc.Piece(message.group, index, "", [], {}, {}, error_to_json(error), True))

    def _call(self, message: ipc.Call) -> None:
        """On a thread of its own: it may wait for the step that runs."""
        value, error = None, None
        try:
            value = self._calls[message.name](**message.arguments)
        except Exception as failure:  # noqa: BLE001 - whoever called gets it
            known = isinstance(failure, SglangLiteError)
            error = error_to_json(failure if known else ExecutionError(f"calling {message.name}: {failure!r}"))
        self._channel.send(ipc.Answer(message.number, value, error))

    def _sink(self, number: int) -> EventSink:
        def sink(event: Event) -> None:
            self._channel.send(ipc.ProgramEvents(number, [event_to_json(event)]))

        return sink

    def _beat(self) -> None:
        while not self._ended.wait(_BEAT_S):
            steps, has_work = self._engine.progress()
            self._channel.send(ipc.Beat(steps, has_work, self._engine.snapshot()))


def host(channel: Channel[ipc.ToScheduler], make_engine: Callable[[str | None, dict[str, Any]], HostedEngine]) -> int:
    """Take `Start`, make the engine, serve. Returns the exit code."""
    start = channel.receive()
    if not isinstance(start, ipc.Start) or start.version != ipc.VERSION:
        error = ExecutionError(f"starting the scheduler: got {start!r:.200}, expected Start of version {ipc.VERSION}")
        channel.send(ipc.Failed(error_to_json(error)))
        return 1
    try:
        with told(lambda line: channel.send(ipc.Progress(line))):
            engine = make_engine(start.model_path, start.settings)
    except SglangLiteError as error:
        channel.send(ipc.Failed(error_to_json(error)))
        return 1
    limits = asdict(engine.limits)
    channel.send(ipc.Ready(ipc.VERSION, engine.get_server_info(), **limits))
    Worker(engine, channel).run()
    return 0


def end_with_parent() -> None:
    """End this process when the one that started it goes: its end of our standard input closes with it."""

    def watch() -> None:
        while os.read(0, 1):
            continue
        os._exit(1)  # whatever hangs here, nobody will see it

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main(folder: str) -> int:
    """The scheduler process, until told to stop."""
    from sglang_lite.runtime.engine.engine import Engine  # torch: after the channel's own faults
    from sglang_lite.runtime.engine.warm import warmed

    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the HTTP process decides
    end_with_parent()
    channel: Channel[ipc.ToScheduler] = Channel(Path(folder), "scheduler", ipc.ToScheduler)
    try:
        return host(channel, lambda path, settings: warmed(Engine(path, **settings)))
    finally:
        channel.release()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
