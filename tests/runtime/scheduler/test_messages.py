from __future__ import annotations

from sglang_lite.errors import CancelledError
from sglang_lite.runtime.scheduler.messages import FinishReason


def test_finish_reasons_have_the_known_json_form() -> None:
    assert FinishReason("stop", 7).to_json() == {"type": "stop", "matched": 7}
    assert FinishReason("stop").to_json() == {"type": "stop", "matched": None}
    assert FinishReason("length").to_json() == {"type": "length"}
    gone = FinishReason("abort", error=CancelledError("gone")).to_json()
    assert gone == {"type": "abort", "message": "gone", "err_type": "CancelledError"}
    assert FinishReason("abort").to_json() == {"type": "abort", "message": "aborted"}
