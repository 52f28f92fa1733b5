"""Show the record of a run: what its ops were, what became of them, and what each cost.

A record is what `s.record().save("RECORD.json")` wrote after a run with `options=RunOptions(record=True)`. Without an
option its tree is printed here: a line for each op, fork children indented, with seconds, how long it waited for the
model, prompt tokens reused and computed, output tokens forced and sampled, cached pages evicted for it, and its value.
--html writes a page that needs nothing else: no server, no network.

Examples:
  sglang-lite inspect record.json
  sglang-lite inspect record.json --html record.html
  sglang-lite inspect record.json --text --html record.html
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sglang_lite.errors import RequestError
from sglang_lite.records.record import RunRecord

NAME = "inspect"
SUMMARY = "show the record of a run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite inspect`."""
    parser.add_argument("record", metavar="RECORD.json", help="what s.record().save(...) wrote")
    parser.add_argument("--html", metavar="OUT.html", help="write it as one HTML page")
    parser.add_argument("--text", action="store_true", help="print the tree (default where --html is not given)")


def main(args: argparse.Namespace) -> int:
    """Read it and show it."""
    record = RunRecord.load(args.record)
    if args.html is not None:
        try:
            Path(args.html).write_text(record.to_html(), encoding="utf-8")
        except OSError as error:
            raise RequestError(f"writing the page {args.html!r}: {error}") from error
        print(f"wrote {args.html}", file=sys.stderr)
    if args.text or args.html is None:
        print(record.to_text())
    return 0
