"""`ScriptedBackend`: canned replies in place of a model, so that programs can be tested without one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang_lite.chat_formats.recognise import ChatFormat
from sglang_lite.chat_formats.thinking import ThinkingFormat
from sglang_lite.errors import EngineStoppedError, RequestError
from sglang_lite.lang.backends.replay import ReplayBackend, replay_of
from sglang_lite.lang.backends.script import Replies, Reply, Script, ScriptedCall, read_script
from sglang_lite.lang.backends.script_check import check_script
from sglang_lite.lang.backends.scripted_program import ScriptedProgram, Template
from sglang_lite.records.record import RunRecord
from sglang_lite.request_tree import EventSink, Finding, GenOp, RequestTree, SamplingParams, SelectOp


class ScriptedBackend:
    """Answers every gen and select with a canned reply, on one thread, in the order in which ops arrive.

    Args:
        replies: a list (in order of arrival), a dict by name (`"*"`: any other), or a function of the `ScriptedCall`;
            None: placeholders. An exception among them makes its op fail. A reply to a select is one of the choices.
        chat_template: how roles look: `plain` (`USER:...`) or `chatml`.
        chat_format: how the made-up model writes tool calls and thinking; None: calls in Hermes' form, `<think>`.
        latency_s: seconds that every gen and select takes; those of different branches take them side by side.

    Stop strings, `max_tokens` (counted in words) and constraints are respected; a reply that a constraint does not
    allow is an error. `calls` records every gen and select. With rows or threads side by side the order of arrival is
    not fixed: give replies by name or by function there.
    """

    def __init__(
        self,
        replies: Replies | None = None,
        *,
        chat_template: Template = "plain",
        chat_format: ChatFormat | None = None,
        latency_s: float = 0.0,
    ) -> None:
        if chat_template not in ("plain", "chatml"):
            raise RequestError(f"making a ScriptedBackend: chat_template={chat_template!r}, expected plain or chatml")
        if not latency_s >= 0:
            raise RequestError(f"making a ScriptedBackend: latency_s={latency_s!r}, expected seconds >= 0")
        self.latency_s = latency_s
        self.calls: list[ScriptedCall] = []
        self.chat_template: Template = chat_template
        self.script = Script(replies)
        self._chat_format = chat_format or ChatFormat(thinking=ThinkingFormat())
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._programs: dict[ScriptedProgram, None] = {}
        self._is_stopped = False

    @staticmethod
    def from_file(path: str | Path, *, chat_template: Template = "plain") -> ScriptedBackend:
        """Replies from a JSON file: a list of them in order, or an object of them by name.

        Raises:
            RequestError: the file is missing or holds something else.
        """
        return ScriptedBackend(read_script(path), chat_template=chat_template)

    @staticmethod
    def from_record(*records: str | Path | RunRecord) -> ReplayBackend:
        """A backend that replays recorded runs, given as files or as `s.record()`: the same values in the same order.

        Raises:
            RequestError: a file cannot be read or holds no record.
        """
        return replay_of(*records)

    def chat_format(self) -> ChatFormat:
        """How the made-up model writes tool calls and thinking."""
        return self._chat_format

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> ScriptedProgram:
        """Start a program; `seed` has no effect.

        Raises:
            EngineStoppedError: after `shutdown`.
        """
        program = ScriptedProgram(self, sink)
        with self._lock:
            self._check_running()
            self._programs[program] = None
        return program

    def do(self, job: Callable[[], None], *, is_needed: bool = True) -> None:
        """Run `job` on the backend's thread, after those given before.

        Args:
            is_needed: False: after `shutdown` it is left out.

        Raises:
            EngineStoppedError: after `shutdown`.
        """
        with self._lock:
            if self._is_stopped and not is_needed:
                return
            self._check_running()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="sglang_lite-scripted", daemon=True)
                self._thread.start()
            self._jobs.put(job)

    def forget(self, program: ScriptedProgram) -> None:
        """A program has nothing open any more."""
        with self._lock:
            self._programs.pop(program, None)

    def _check_running(self) -> None:
        if self._is_stopped:
            raise EngineStoppedError("using a ScriptedBackend: it was shut down; make a new one")

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def flush_cache(self) -> bool:
        """False: there are no prefixes to forget."""
        return False

    def check(self, tree: RequestTree) -> list[Finding]:
        """What can be said of a tree without a model (see `request_tree.TreeChecker`)."""
        return check_script(tree)

    def get_server_info(self) -> dict[str, Any]:
        """The kind of backend, its template and the number of calls so far."""
        return {"backend": "scripted", "chat_template": self.chat_template, "num_calls": len(self.calls)}

    def shutdown(self) -> None:
        """End the backend once what runs is done; what waits fails with `EngineStoppedError`. Idempotent."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            programs = list(self._programs)
            thread = self._thread

        def stop() -> None:
            for program in programs:
                program.fail_all(EngineStoppedError("running on a ScriptedBackend: it was shut down"))

        if thread is None:
            stop()
        else:
            self._jobs.put(stop)
            self._jobs.put(None)

    def answer(self, op: GenOp | SelectOp, prompt: str, params: SamplingParams | None) -> Reply:
        """Record the call and take its reply from the script. `params`: of a gen, those of this attempt.

        Raises:
            Exception: the script has none, is an exception here, or its function raised.
        """
        choices = op.choices if isinstance(op, SelectOp) else None if params is None else params.choices
        kind = "select" if isinstance(op, SelectOp) else "gen"
        call = ScriptedCall(len(self.calls), kind, op.name, prompt, params, choices)
        self.calls.append(call)
        if params is not None and params.max_new_tokens == 0:  # the prompt is all that is wanted
            call.reply = [""] * params.n if params.n > 1 else ""
            return call.reply
        call.reply = reply = self.script.next(call)
        if isinstance(reply, Exception):
            raise reply
        return reply
