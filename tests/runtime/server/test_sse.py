from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from sglang_lite.runtime.server.sse import event, newest


def test_an_event_is_one_line_of_json() -> None:
    assert event({"a": "x\ny é\u2028"}) == 'data: {"a":"x\\ny é\u2028"}\n\n'
    assert event([1], 7) == "id: 7\ndata: [1]\n\n"


async def replies(*items: dict[str, Any] | Exception) -> AsyncGenerator[dict[str, Any], None]:
    for item in items:
        if isinstance(item, Exception):
            raise item
        yield item


def test_a_slow_reader_gets_the_newest_of_each() -> None:
    async def run() -> list[dict[str, Any]]:
        items = [{"index": number % 2, "text": "x" * number} for number in range(10)]
        return [reply async for reply in newest(replies(*items))]

    assert asyncio.run(run()) == [{"index": 0, "text": "x" * 8}, {"index": 1, "text": "x" * 9}]


async def collect(source: AsyncGenerator[dict[str, Any], None], into: list[dict[str, Any]]) -> None:
    async for reply in source:
        into.append(reply)


def test_what_came_before_an_error_is_read_first() -> None:
    got: list[dict[str, Any]] = []
    with pytest.raises(KeyError):
        asyncio.run(collect(newest(replies({"text": "a"}, KeyError("why"))), got))
    assert got == [{"text": "a"}]


def test_leaving_early_closes_the_source() -> None:
    closed: list[bool] = []

    async def source() -> AsyncGenerator[dict[str, Any], None]:
        try:
            yield {"text": "a"}
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def run() -> None:
        reading = newest(source())
        assert await anext(reading) == {"text": "a"}
        await reading.aclose()

    asyncio.run(run())
    assert closed == [True]
