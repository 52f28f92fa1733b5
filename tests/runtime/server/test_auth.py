from __future__ import annotations

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.auth import KeyRing


def test_exactly_one_bearer_with_a_whole_key() -> None:
    ring = KeyRing(lambda: frozenset({b"one", b"two"}))
    assert ring.accepts([b"Bearer one"])
    assert ring.accepts([b"bearer two"])
    for wrong in (
        [],
        [b"Bearer one", b"Bearer one"],
        [b"Bearer  one"],
        [b"one"],
        [b"Bearer on"],
        [b"Bearer \xff"],
        [b"Bearer "],
    ):
        assert not ring.accepts(wrong)


def test_without_keys_it_is_open() -> None:
    assert KeyRing(frozenset).is_open


def test_keys_are_read_again_and_a_failure_keeps_the_old_ones() -> None:
    answers: list[frozenset[bytes] | Exception] = [frozenset({b"a"}), frozenset({b"b"}), RequestError("no file")]

    def read() -> frozenset[bytes]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    ring = KeyRing(read)
    ring.reload()
    assert ring.accepts([b"Bearer b"])
    assert not ring.accepts([b"Bearer a"])
    with pytest.raises(RequestError):
        ring.reload()
    assert ring.accepts([b"Bearer b"])


def test_the_ring_keeps_no_key() -> None:
    assert "secret-key" not in repr(vars(KeyRing(lambda: frozenset({b"secret-key"}))))
