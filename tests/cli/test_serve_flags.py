"""The table of flags: whole, with a help for each honoured one, and the same in the documentation."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from sglang_lite.cli import serve_flags
from sglang_lite.cli.serve_flags import FLAGS, add_flags, flag_name, flags_table

DOCS = Path(__file__).resolve().parents[2] / "docs" / "flags.md"

# Flags that scripts for SGLang use; one that is forgotten here would end them with "unrecognized arguments".
COMMON = re.findall(
    r"\S+",
    """
model-path tokenizer-path tokenizer-mode skip-tokenizer-init load-format trust-remote-code context-length is-embedding enable-multimodal revision host
port skip-server-warmup warmups nccl-port dtype quantization kv-cache-dtype mem-fraction-static max-running-requests max-queued-requests
max-total-tokens chunked-prefill-size max-prefill-tokens schedule-policy enable-priority-scheduling schedule-low-priority-values-first
schedule-conservativeness page-size radix-eviction-policy device tp-size tp pp-size dp-size dp stream-interval random-seed
constrained-json-whitespace-pattern watchdog-timeout dist-timeout download-dir base-gpu-id gpu-id-step sleep-on-idle log-level log-level-http log-requests
log-requests-level crash-dump-folder show-time-cost enable-metrics decode-log-interval enable-request-time-stats-logging api-key admin-api-key
served-model-name chat-template completion-template file-storage-path enable-cache-report reasoning-parser tool-call-parser tool-server nnodes
json-model-override-args preferred-sampling-params enable-lora lora-paths attention-backend sampling-backend grammar-backend speculative-algorithm
enable-hierarchical-cache cpu-offload-gb disable-radix-cache cuda-graph-max-bs cuda-graph-bs disable-cuda-graph disable-cuda-graph-padding enable-nccl-nvls
disable-custom-all-reduce disable-overlap-schedule enable-mixed-chunk enable-torch-compile torch-compile-max-bs torchao-config enable-p2p-check
triton-attention-reduce-in-fp32 num-continuous-decode-steps delete-ckpt-after-loading enable-memory-saver allow-auto-truncate
enable-custom-logit-processor enable-return-hidden-states enable-deterministic-inference disaggregation-mode kv-events-config
""",
)


@pytest.mark.parametrize("name", COMMON)
def test_a_flag_of_sglang_has_its_class(name: str) -> None:
    assert f"--{name}" in FLAGS


def test_the_documentation_has_this_table() -> None:
    """Where it differs: `python -m tests.cli.test_serve_flags`."""
    assert DOCS.read_text(encoding="utf-8").endswith(flags_table())


def test_names_are_those_of_the_settings() -> None:
    assert flag_name("max_total_tokens") == "--max-total-tokens"
    assert flag_name("cors_origins") == "--cors-origin"


def test_a_switch_can_be_taken_back() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, ("engine",))
    assert vars(parser.parse_args([]))["engine:disable_overlap_schedule"] is None
    assert vars(parser.parse_args(["--no-disable-overlap-schedule"]))["engine:disable_overlap_schedule"] is False


def test_a_list_of_numbers_is_given_at_once_as_sglang_takes_it() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, ("engine",))
    given = vars(parser.parse_args(["--cuda-graph-bs", "1", "4", "--device", "cuda"]))
    assert given["engine:cuda_graph_bs"] == [1, 4]
    assert given["engine:device"] == "cuda"


def test_each_class_is_there() -> None:
    assert {flag.kind for flag in serve_flags.FLAGS.values()} == {"engine", "server", "without effect", "refused"}


if __name__ == "__main__":  # python -m tests.cli.test_serve_flags: write the table into the page anew
    page = DOCS.read_text(encoding="utf-8")
    DOCS.write_text(page[: page.index("## Honoured")] + flags_table(), encoding="utf-8")
