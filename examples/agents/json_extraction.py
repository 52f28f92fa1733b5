"""Typed extraction: a notice in plain words becomes an object of a Python class.

Shows `gen(type=...)`: the class gives the constraint (the text is a JSON object of it, whatever the model says) and the value
(an object of the class, not a text). What no schema can say is said in Python: `check` looks whether the hour stands in the
notice. Where it does not, `retries` makes the model try again, and `retry_text` tells it what was wrong (without it the
answer would be taken back, and another seed tried). `describe_type` tells the model what is asked for. A notice without a good
answer harms no other: its error says what the last answer was and what is wrong with it.

    python examples/agents/json_extraction.py                      # on the embedded model
    python examples/agents/json_extraction.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Annotated, Literal

import sglang_lite as sgl

NOTICES = (
    "The choir sings on Friday at 19 o'clock in the old church. Tickets are 5 euros.",
    "On Monday the library reads tales to children, at 15 o'clock. It is free.",
    "Flea market! Sunday from 8 o'clock on, behind the station. A table costs 12 euros.",
)

# What the answer looks like is told by the class, what it means by an example.
EXAMPLE = """\
Notice: Come and dance! On Saturday at 20 o'clock in the town hall. It costs 7 euros.
{"what":"a dance","day":"Saturday","hour":20,"price":7}
"""

Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


@dataclass(frozen=True)
class Notice:
    """Something that takes place."""

    what: Annotated[str, "what takes place", sgl.Limits(min_length=3, max_length=24)]
    day: Day
    hour: Annotated[int, "when it begins", sgl.Limits(ge=0, le=23)]
    price: Annotated[int, "in euros, 0 if it is free", sgl.Limits(ge=0, le=99)] = 0


@sgl.function
def extract(s, notice: str):
    """Read one notice."""

    def stands_there(found: Notice) -> None:
        if f" {found.hour} o'clock" not in notice:
            raise ValueError(f"the notice does not say {found.hour} o'clock")

    s += "What do the notices say?\n" + sgl.describe_type(Notice) + EXAMPLE + "Notice: " + sgl.literal(notice) + "\n"
    s += sgl.gen("notice", type=Notice, check=stands_there, retries=3, retry_text=True, temperature=0)


@dataclass(frozen=True)
class Reading:
    """What became of one notice: what it says, or why none of the tries was good."""

    text: str
    notice: Notice | None
    num_tries: int | None
    problem: str | None


def run(backend=None, notices=NOTICES) -> list[Reading]:
    """Read all notices at once; they share the description of the class."""
    rows = [{"notice": text} for text in notices]
    states = extract.run_batch(rows, backend=backend)
    readings = []
    for text, state in zip(notices, states, strict=True):
        try:
            notice = state["notice"]
        except sgl.errors.ValidationError as error:
            readings.append(Reading(text, None, None, error.failures[0][1]))
        else:
            readings.append(Reading(text, notice, state.get_meta_info("notice")["attempts"], None))
    return readings


def script(call) -> str:
    """Replies for a run without a model: the second notice is read wrong at first, the third one always."""
    text, _, tries = call.prompt.rsplit("Notice: ", 1)[1].partition("\n")
    return (
        '{"what": "the choir sings", "day": "Friday", "hour": 19, "price": 5}',
        f'{{"what": "tales for children", "day": "Monday", "hour": {15 if "not valid" in tries else 3}}}',
        '{"what": "flea market", "day": "Sunday", "hour": 9, "price": 12}',
    )[NOTICES.index(text)]


def main(argv: list[str] | None = None) -> int:
    """Print what the notices say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    for reading in run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend):
        print(f"{reading.text}\n  {reading.notice or reading.problem} (tries: {reading.num_tries})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
