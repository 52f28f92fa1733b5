"""Pure programs: the body runs once, the rows get its tree with their own arguments, and read as rows of any batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.lang.template import MAX_TEMPLATES
from sglang_lite.request_tree import ArgOp, EventSink, Program, RequestTree, TextOp, TreeRow


class RowsScripted(ScriptedBackend):
    """Takes trees with rows, and keeps what came."""

    def __init__(self, replies: Any = None) -> None:
        super().__init__(replies)
        self.trees: list[RequestTree] = []
        self.rows: list[list[TreeRow]] = []
        self.num_opened = 0

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow]) -> list[Program]:
        self.trees.append(tree)
        self.rows.append(list(rows))
        programs: list[Program] = []
        for row in rows:
            program = super().open_program(row.sink, seed=row.seed)
            program.append(tree.bound(row.arguments))
            program.close()
            programs.append(program)
        return programs

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> Any:
        self.num_opened += 1
        return super().open_program(sink, seed=seed)


num_bodies = 0


@sgl.function(pure=True)
def judge(s: sgl.ProgramState, essay: str, aspects: Sequence[str] = ("depth", "style")) -> Any:
    global num_bodies
    num_bodies += 1
    with s.user():
        s += "Essay: " + essay
    forks = s.fork(len(aspects))
    for fork, aspect in zip(forks, aspects, strict=True):
        fork += f" {aspect}: " + sgl.gen("verdict", max_tokens=4)
    forks.join()
    with s.var_scope("all"):
        for verdict in s["verdict"]:
            s += verdict + ","
    s += sgl.select("grade", ["A", "B"])
    s["copy"] = s["grade"]
    s["given"] = essay
    return {"grade": s["grade"], "essay": essay, "count": len(aspects)}


def reply(call: sgl.ScriptedCall) -> str:
    return "B" if call.kind == "select" else call.prompt.rsplit("Essay: ", 1)[1][:2]


ROWS = [{"essay": f"e{i}"} for i in range(4)]


def plain(states: Any) -> list[Any]:
    names = ("verdict", "all", "grade", "copy", "given")
    return [({name: state[name] for name in names}, state.text(), state.ret_value) for state in states]


def test_a_batch_is_one_tree_with_rows_and_reads_as_any_batch() -> None:
    """Values, lists, scopes, plain names, texts and what is returned: the same as row by row."""
    global num_bodies
    backend, num_bodies = RowsScripted(reply), 0
    states = list(judge.run_batch(ROWS, backend=backend))
    assert (num_bodies, backend.num_opened, len(backend.trees)) == (1, 0, 1)
    assert [op.name for op in backend.trees[0].ops.values() if isinstance(op, ArgOp)] == ["essay"]
    assert [row.arguments for row in backend.rows[0]] == ROWS
    row_by_row = list(sgl.function(judge.func).run_batch(ROWS, backend=ScriptedBackend(reply)))
    assert plain(states) == plain(row_by_row)
    assert states[2].ret_value == {"grade": "B", "essay": "e2", "count": 2}
    assert states[1].messages() == row_by_row[1].messages()


def test_a_backend_without_rows_gets_a_program_for_each() -> None:
    assert plain(judge.run_batch(ROWS, backend=ScriptedBackend(reply))) == plain(
        sgl.function(judge.func).run_batch(ROWS, backend=ScriptedBackend(reply))
    )


def test_rows_share_a_template_where_all_but_their_texts_is_equal() -> None:
    backend = RowsScripted(reply)
    rows = [{"essay": f"e{i}", "aspects": ["depth"] * (1 + i % 2)} for i in range(6)]
    states = list(judge.run_batch(rows, backend=backend))
    assert [len(rows) for rows in backend.rows] == [3, 3]
    assert [len(state["verdict"]) for state in states] == [1, 2] * 3
    many = [{"essay": "e", "aspects": ["x"] * i} for i in range(MAX_TEMPLATES + 1)]
    assert len(list(judge.run_batch(many, backend=backend))) == MAX_TEMPLATES + 1
    assert len(backend.trees) == 2


@sgl.function(pure=True)
def shouts(s: sgl.ProgramState, word: str) -> None:
    s += f"<{word}>"
    s += sgl.gen("x")


def test_a_body_that_asks_for_its_arguments_runs_row_by_row_and_the_trace_says_why() -> None:
    backend = RowsScripted()
    states = list(shouts.run_batch([{"word": "a"}, {"word": "b"}], backend=backend))
    assert [state.text() for state in states] == ["<a><x>", "<b><x>"]
    assert (len(backend.trees), backend.num_opened) == (0, 2)
    because = shouts.trace().open_because
    assert because is not None
    assert "test_template.py" in because
    assert "formatting the argument 'word'" in because


def test_texts_of_arguments_are_never_parsed() -> None:
    backend = RowsScripted(reply)
    list(judge.run_batch([{"essay": "<|im_end|>"}], backend=backend))
    bound_ops = backend.trees[0].bound({"essay": "<|im_end|>"})
    (bound,) = [op for op in bound_ops if isinstance(op, TextOp) and "im_end" in op.text]
    assert bound.literal


def test_a_failed_row_harms_no_other() -> None:
    def answer(call: sgl.ScriptedCall) -> str:
        if "e1" in call.prompt:
            raise ValueError("no")
        return reply(call)

    states = list(judge.run_batch(ROWS, backend=RowsScripted(answer)))
    assert [state.error() is None for state in states] == [True, False, True, True]
    with pytest.raises(ValueError, match="no"):
        states[1]["grade"]


def test_rows_seeds_follow_from_the_runs_seed() -> None:
    seeds: list[list[int | None]] = []
    for _ in range(2):
        backend = RowsScripted(reply)
        list(judge.run_batch(ROWS, backend=backend, options=sgl.RunOptions(seed=3)))
        seeds.append([row.seed for row in backend.rows[0]])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == len(ROWS)


def test_states_come_one_by_one_and_leaving_early_cancels() -> None:
    states = judge.run_batch(ROWS, backend=RowsScripted(reply), generator_style=True)
    first = next(iter(states))
    assert first["grade"] == "B"
    states.close()  # type: ignore[union-attr]


def test_bound_functions_and_those_with_options_stay_pure() -> None:
    backend = RowsScripted(reply)
    bound = judge.bind(aspects=["one"]).with_options(seed=1)
    (state,) = bound.run_batch([{"essay": "e0"}], backend=backend)
    assert state["verdict"] == ["e0"]
    assert len(backend.trees) == 1


def test_programs_that_answer_or_nest_run_row_by_row() -> None:
    class Own(type(sgl.token_length_normalized)):  # type: ignore[misc]
        def __call__(self, **given: Any) -> Any:
            return super().__call__(**given)

    @sgl.function(pure=True)
    def chooses(s: sgl.ProgramState, q: str) -> None:
        s += q + sgl.select("x", ["a", "b"], choices_method=Own())

    @sgl.function(pure=True)
    def nests(s: sgl.ProgramState, q: str) -> None:
        s += q + judge(essay=q, backend=backend)["grade"]

    backend = RowsScripted(reply)
    for function in (chooses, nests):
        assert len(list(function.run_batch([{"q": "Essay: q"}], backend=backend))) == 1
    assert backend.trees == []
