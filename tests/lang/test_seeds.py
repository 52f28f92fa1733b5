"""A run has one seed: given, or drawn by the backend and told; rows and runs inside derive theirs from it."""

from __future__ import annotations

from sglang_lite.lang import ProgramState, RunOptions, function, gen
from sglang_lite.lang.seeds import nested_seed, row_seed, seed_of
from tests.lang.support import HandBackend


@function
def empty(s: ProgramState) -> None:
    s += ""


def seeds_of(backend: HandBackend) -> list[int | None]:
    return [program.seed for program in backend.programs]


def test_places_have_seeds_of_their_own() -> None:
    seeds = [row_seed(5, 0), row_seed(5, 1), nested_seed(5, 0), nested_seed(5, 1), row_seed(6, 0), nested_seed(6, 0)]
    assert len(set(seeds)) == len(seeds)
    assert nested_seed(None, 1) is row_seed(None, 1) is None


def test_runs_inside_a_run_derive_their_seeds_in_order() -> None:
    @function
    def outer(s: ProgramState) -> None:
        empty.run()
        empty.run()
        empty.run(options=RunOptions(seed=9))

    backend = HandBackend()
    outer.run(backend=backend, options=RunOptions(seed=5))
    assert seeds_of(backend) == [5, nested_seed(5, 0), nested_seed(5, 1), 9]


def test_a_batch_inside_a_run_derives_its_rows_whatever_their_order() -> None:
    @function
    def outer(s: ProgramState) -> None:
        empty.run_batch([(), (), ()])

    backend = HandBackend()
    outer.run(backend=backend, options=RunOptions(seed=5))
    outer_seed, *rows = seeds_of(backend)
    assert outer_seed == 5
    assert set(rows) == {row_seed(nested_seed(5, 0), row) for row in range(3)}


def test_a_drawn_seed_is_the_one_that_the_backend_tells() -> None:
    program = HandBackend().open_program(lambda event: None, seed=77)
    assert seed_of(program, None) == 77
    assert seed_of(program, 3) == 3

    @function
    def f(s: ProgramState) -> None:
        s += gen("x")

    assert empty.run(backend=HandBackend(), options=RunOptions(record=True)).record().seed is None
