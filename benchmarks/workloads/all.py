"""All workloads by their codes."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads.agents import Chat, Judge, ReAct, SelfConsistency, Townsfolk
from benchmarks.workloads.decode_batch import DecodeBatch
from benchmarks.workloads.decode_one import DecodeOne
from benchmarks.workloads.few_shot_select import FewShotSelect
from benchmarks.workloads.json_documents import JsonDocuments
from benchmarks.workloads.prefill import Prefill
from benchmarks.workloads.shared_prefix import SharedPrefix
from benchmarks.workloads.tree_of_thought import TreeOfThought

_SEVEN = (DecodeOne, DecodeBatch, Prefill, SharedPrefix, FewShotSelect, TreeOfThought, JsonDocuments)
_AGENTS = (ReAct, Chat, Judge, SelfConsistency, Townsfolk)

WORKLOADS: dict[str, type[Workload]] = {kind.code: kind for kind in (*_SEVEN, *_AGENTS)}

GROUPS: dict[str, tuple[str, ...]] = {
    "all": tuple(kind.code for kind in _SEVEN),
    "agents": tuple(kind.code for kind in _AGENTS),
}
"""Names that stand for several workloads."""
