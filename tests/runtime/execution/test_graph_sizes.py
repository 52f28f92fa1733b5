from __future__ import annotations

from itertools import pairwise

import pytest

from sglang_lite.runtime.execution.graph_sizes import bucket_of, graph_sizes


def test_buckets_are_dense_where_a_step_is_short() -> None:
    sizes = graph_sizes(1000, 600)
    assert sizes[:8] == (1, 2, 4, 8, 12, 16, 24, 32)
    assert [b - a for a, b in pairwise(sizes) if 256 <= a < 512] == [16] * 16
    assert sizes[-4:] == (512, 544, 576, 600)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((1,), (1,)),
        ((5,), (1, 2, 4, 5)),
        ((64, 10), (1, 2, 4, 8, 10)),
        ((3, 100), (1, 2, 3)),
        ((64, None, [8, 2, 32]), (2, 8, 32)),
        ((20, None, [8, 2, 32]), (2, 8, 20)),
        ((64, 16, [8, 2, 32, 64]), (2, 8, 16)),
        ((64, 16, [4, 8]), (4, 8)),
    ],
)
def test_the_bound_is_a_bucket_and_nothing_lies_beyond_it(arguments: tuple, expected: tuple[int, ...]) -> None:
    assert graph_sizes(*arguments) == expected


def test_the_default_bound_holds_for_many_rows() -> None:
    assert graph_sizes(4096)[-1] == 256
    assert graph_sizes(100)[-1] == 100


def test_a_batch_goes_to_the_smallest_bucket_that_holds_it() -> None:
    sizes = (1, 2, 4, 8)
    assert [bucket_of(rows, sizes) for rows in range(1, 10)] == [1, 2, 4, 4, 8, 8, 8, 8, None]
