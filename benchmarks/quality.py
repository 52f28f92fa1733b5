"""x"""
from typing import Any
def measure(*a: Any) -> dict[str, Any]:
    return {"markdown": ""}
