"""The record of a run: its ops, what became of each, and what each cost; pure data with a JSON form.

The JSON form is version 1, described in `docs/records.md`. A `RunRecorder` makes it, `text_view` and `html_view` show
it, and `lang.backends.replay` runs it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from sglang_lite.errors import RequestError, SglangLiteError
from sglang_lite.op_json import error_from_json, event_from_json, event_to_json, op_from_json, op_to_json
from sglang_lite.records.html_view import record_frame, record_page
from sglang_lite.records.text_view import record_text
from sglang_lite.records.usage import OpUsage, RunUsage, usage_of
from sglang_lite.request_tree import Event, ForkOp, GenOp, Op, OpDone, OpFailed, OpHeld, OpScored, SelectOp

FORMAT = "sglang_lite-record"
VERSION = 1

OpState: TypeAlias = Literal["open", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Question:
    """What the backend asked the program about an op: the scores of a select, or a held result.

    `order`: its number among all events of the run. `at_s`: seconds since the run began.
    """

    order: int
    at_s: float
    event: OpScored | OpHeld


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One op and what became of it.

    Times are seconds since the run began. `order`: the number of its end among all events of the run. `result`: None while
    the op is open.
    """

    op: Op
    sent_s: float
    result: OpDone | OpFailed | None = None
    order: int | None = None
    ended_s: float | None = None
    questions: tuple[Question, ...] = ()

    @property
    def state(self) -> OpState:
        """Whether it is open, done or failed."""
        if self.result is None:
            return "open"
        return "done" if isinstance(self.result, OpDone) else "failed"

    @property
    def usage(self) -> OpUsage | None:
        """What a gen or select cost, its rejected attempts included; None for other ops and for open ones."""
        if not isinstance(self.op, GenOp | SelectOp):
            return None
        held = [question.event.meta for question in self.questions if isinstance(question.event, OpHeld)]
        metas = held or ([self.result.meta] if isinstance(self.result, OpDone) else [])
        return usage_of(self.op, metas, (self.ended_s or self.sent_s) - self.sent_s) if metas else None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run.

    `started_at`: UTC, ISO 8601. `seconds`: to the end of the last op, or until now. `error`: the run's first. `ops`: in the
    order in which the program appended them. `nested`: runs inside the body, in the order in which they began.
    """

    program: str
    backend: str
    model: str | None
    seed: int | None
    started_at: str
    seconds: float
    error: Exception | None
    ops: tuple[OpRecord, ...]
    nested: tuple[RunRecord, ...] = ()

    @property
    def usage(self) -> RunUsage:
        """What the run cost, by gen and select and in sum; nested runs have their own."""
        total = RunUsage(seconds=self.seconds)
        for op in self.ops:
            if (usage := op.usage) is not None:
                total.add_op(usage)
        return total

    def events(self) -> list[Event]:
        """Everything that the backend reported, in order, streamed pieces left out."""
        found: list[tuple[int, Event]] = [(q.order, q.event) for op in self.ops for q in op.questions]
        found += [(op.order, op.result) for op in self.ops if op.result is not None and op.order is not None]
        return [event for _, event in sorted(found, key=lambda pair: pair[0])]

    def places(self) -> dict[int, tuple[int, ...]]:
        """Where each branch is: which fork child of which, from the root on; equal in every run of one program."""
        places: dict[int, tuple[int, ...]] = {0: ()}
        born: dict[int, int] = {}
        for op in (record.op for record in self.ops):
            for child in op.children if isinstance(op, ForkOp) else ():
                number = born.get(op.branch, 0)
                places[child], born[op.branch] = (*places[op.branch], number), number + 1
        return places

    def with_nested(self) -> Iterator[RunRecord]:
        """Itself and all records inside it."""
        yield self
        for inner in self.nested:
            yield from inner.with_nested()

    # --- JSON ---

    def to_json(self) -> dict[str, Any]:
        """Plain data; see `docs/records.md`."""
        return {"format": FORMAT, "version": VERSION, **_run_to_json(self)}

    @staticmethod
    def from_json(data: object) -> RunRecord:
        """The record that `data` describes.

        Raises:
            RequestError: it describes none, or another version of this package wrote it.
        """
        values = _object(data, "a record")
        if values.get("format") != FORMAT:
            raise RequestError(f"reading a record: format {values.get('format')!r}, expected {FORMAT!r}")
        if values.get("version") != VERSION:
            raise RequestError(f"reading a record: version {values.get('version')!r}, expected {VERSION}")
        return _run_from_json(values)

    def save(self, path: str | Path) -> None:
        """Write it as a JSON file."""
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1)
        Path(path).write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> RunRecord:
        """Read a JSON file.

        Raises:
            RequestError: the file cannot be read, or holds no record.
        """
        try:
            data: object = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RequestError(f"reading the record {str(path)!r}: {error}; expected a JSON file") from error
        return RunRecord.from_json(data)

    def to_text(self) -> str:
        """The tree and its costs, for a terminal."""
        return record_text(self.to_json())

    def to_html(self) -> str:
        """One HTML page that needs nothing else."""
        return record_page(self.to_json())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return record_frame(self.to_json())

    def __repr__(self) -> str:
        return f"RunRecord({self.program!r}, {len(self.ops)} ops, {self.usage.requests} requests, {self.seconds:.3f} s)"


def _run_to_json(run: RunRecord) -> dict[str, Any]:
    places = run.places()
    return {
        "program": run.program,
        "backend": run.backend,
        "model": run.model,
        "seed": run.seed,
        "started_at": run.started_at,
        "seconds": run.seconds,
        "error": None if run.error is None else _error_to_json(run.error),
        "usage": run.usage.to_json(),
        "branches": [{"id": branch, "place": list(place)} for branch, place in places.items()],
        "ops": [_op_to_json(op) for op in run.ops],
        "nested": [_run_to_json(inner) for inner in run.nested],
    }


def _op_to_json(record: OpRecord) -> dict[str, Any]:
    data: dict[str, Any] = {"op": op_to_json(record.op), "state": record.state, "sent_s": record.sent_s}
    if record.result is not None:
        data |= {"ended_s": record.ended_s, "order": record.order}
    if isinstance(record.result, OpDone):
        data["result"] = _without(event_to_json(record.result), "event", "op")
    elif record.result is not None:
        data["error"] = _error_to_json(record.result.error)
    if record.questions:
        data["questions"] = [
            {"order": q.order, "at_s": q.at_s, **_without(event_to_json(q.event), "op")} for q in record.questions
        ]
    if (usage := record.usage) is not None:
        data["usage"] = usage.to_json()
    return data


def _run_from_json(values: Mapping[str, Any]) -> RunRecord:
    try:
        error = values.get("error")
        return RunRecord(
            program=str(values["program"]),
            backend=str(values["backend"]),
            model=values.get("model"),
            seed=values.get("seed"),
            started_at=str(values["started_at"]),
            seconds=float(values["seconds"]),
            error=None if error is None else error_from_json(error),
            ops=tuple(_op_from_json(op) for op in values["ops"]),
            nested=tuple(_run_from_json(_object(inner, "a nested record")) for inner in values.get("nested", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, SglangLiteError):
            raise
        raise RequestError(f"reading a record: {error!r}; expected the form of docs/records.md") from error


def _op_from_json(data: object) -> OpRecord:
    values = _object(data, "an op of a record")
    op = op_from_json(values["op"])
    result: OpDone | OpFailed | None = None
    if values["state"] == "done":
        done = event_from_json({**_object(values["result"], f"the result of op {op.id}"), "event": "done", "op": op.id})
        assert isinstance(done, OpDone), f"op {op.id}: a done event is read as one"
        result = done
    elif values["state"] == "failed":
        result = OpFailed(op.id, error_from_json(values["error"]))
    elif values["state"] != "open":
        raise RequestError(f"reading a record: op {op.id} is {values['state']!r}, expected open, done or failed")
    return OpRecord(
        op=op,
        sent_s=float(values["sent_s"]),
        result=result,
        order=None if result is None else int(values["order"]),
        ended_s=None if result is None else float(values["ended_s"]),
        questions=tuple(_question_from_json(op.id, question) for question in values.get("questions", ())),
    )


def _question_from_json(op: int, data: object) -> Question:
    values = _object(data, f"a question about op {op}")
    event = event_from_json({**_without(values, "order", "at_s"), "op": op})
    if not isinstance(event, OpScored | OpHeld):
        raise RequestError(
            f"reading a record: a question about op {op} is a {type(event).__name__}, expected scores or a held result"
        )
    return Question(int(values["order"]), float(values["at_s"]), event)


def _error_to_json(error: Exception) -> dict[str, str]:
    return {"type": type(error).__name__, "message": str(error)}


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _object(data: object, what: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise RequestError(f"reading {what}: got {data!r:.100}, expected an object")
    return dict(cast("Mapping[str, Any]", data))
