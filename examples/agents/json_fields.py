r"""A JSON object, field by field: the program writes the form, the model fills in the values.

Shows literal text between gens, a regex for each value, `select` for words of a fixed list, a nested object, and
`var_scope`, which gives the object as one text. What the program writes costs no decoding step, the object is valid JSON
whatever the model says, and a value is known (and could be acted on) before the next one is begun.

Each regex goes on to the character behind the value (the closing quote, the comma): that is how the model can
say where the value ends. Without it, `[0-9]{1,5}` would go on as long as it may.

    python examples/agents/json_fields.py                      # on the embedded model
    python examples/agents/json_fields.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import sglang_lite as sgl

ADVERTS = (
    "For sale: a red bicycle with two baskets, used for three years. 120 euros. Call Clara in Lyon.",
    "I sell my piano. It is black and quite new. You can have it for 900 euros. Ask for Peter, Berlin.",
    "Wooden table, brown, made by my grandfather. 45 euros, to be fetched from Maria in Porto.",
)

EXAMPLE = """\
Adverts and what they say, as JSON.

Advert: Small green boat, two oars and an anchor. Only 300 euros! Write to Sven, Oslo.
{
  "item": "boat",
  "colour": "green",
  "price": 300,
  "seller": {"name": "Sven", "town": "Oslo"}
}

"""

TEXT = r'[A-Za-z][A-Za-z ]{0,20}"'
NUMBER = r"[0-9]{1,5},"
COLOURS = ("black", "brown", "green", "red", "white")


@sgl.function
def extract(s, advert: str):
    """Fill in the object for one advert."""
    s += EXAMPLE + "Advert: " + sgl.literal(advert) + "\n"
    with s.var_scope("object"):
        s += '{\n  "item": "' + sgl.gen("item", regex=TEXT, max_tokens=16, temperature=0)
        s += ',\n  "colour": "' + sgl.select("colour", COLOURS) + '"'
        s += ',\n  "price": ' + sgl.gen("price", regex=NUMBER, max_tokens=8, temperature=0)
        s += '\n  "seller": {'
        for key, comma in (("name", ", "), ("town", "")):
            s += f'"{key}": "' + sgl.gen(key, regex=TEXT, max_tokens=16, temperature=0) + comma
        s += "}\n}"


@dataclass(frozen=True)
class Advert:
    """What an advert says."""

    item: str
    colour: str
    price: int
    seller: str
    town: str


def run(backend=None, adverts=ADVERTS) -> list[Advert]:
    """Read all adverts at once.

    Raises:
        json.JSONDecodeError: never: the form of the object is the program's.
    """
    found = []
    for state in extract.run_batch([{"advert": advert} for advert in adverts], backend=backend):
        value = json.loads(state["object"])
        found.append(
            Advert(value["item"], value["colour"], value["price"], value["seller"]["name"], value["seller"]["town"])
        )
    return found


def script(call) -> str:
    """Replies for a run without a model: what stands in the advert."""
    advert = ADVERTS.index(call.prompt.rsplit("Advert: ", 1)[1].split("\n")[0])
    replies = {
        "item": ('bicycle"', 'piano"', 'table"'),
        "colour": ("red", "black", "brown"),
        "price": ("120,", "900,", "45,"),
        "name": ('Clara"', 'Peter"', 'Maria"'),
        "town": ('Lyon"', 'Berlin"', 'Porto"'),
    }
    return replies[call.name][advert]


def main(argv: list[str] | None = None) -> int:
    """Print what the adverts say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    for text, advert in zip(
        ADVERTS, run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend), strict=True
    ):
        print(f"{text}\n  {advert.colour} {advert.item}, {advert.price} euros, {advert.seller} in {advert.town}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
