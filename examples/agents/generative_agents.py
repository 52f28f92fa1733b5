"""Generative agents: two villagers live through a day, and talk when they meet.

Shows the shape of such simulations: many short questions behind a long description, which is read once and then reused, and
answers of a few tokens, held by `select` (whose choices may depend on what was chosen before) and regexes. Each villager is
a state that grows by what happens; a question about it is asked on a fork and leaves no trace there.

    python examples/agents/generative_agents.py                      # on the embedded model
    python examples/agents/generative_agents.py --backend scripted   # without a model
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import sglang_lite as sgl

VILLAGERS = json.loads((Path(__file__).parent / "data" / "villagers.json").read_text(encoding="utf-8"))
TIMES = ("morning", "afternoon", "evening")
PLACES = (" bakery", " harbour", " market", " inn")  # with their space: so the tokenizer knows words inside a line

VILLAGE = """\
The village lies between a hill and the sea. It has a bakery, which opens early and smells of bread; a harbour with nine
small boats; a market, where farmers sell vegetables and cheese; and an inn, where people sit and sing in the evening.
Everybody works in the day, eats at noon, and rests when it is dark.

"""

PERSON = """\
Name: {name}
Age: {age}
Work: {job}
Character: {traits}
Home: {home}
Lately: {lately}
Memories:
{memories}

The day of {name}:
At dawn {name} wakes up at home and has breakfast.
"""

ACTIVITY = r" [a-z]+( [a-z']{1,12}){1,10}\.\n"
REMARK = r"[A-Z][a-z']*(,? [A-Za-z']{1,12}){2,12}[.!?]\"\n"
MOODS = (" quiet", " funny", " hard", " wonderful")


@dataclass(frozen=True)
class Episode:
    """Where a villager is, and what he or she does there; `mood`: how it felt."""

    name: str
    place: str
    activity: str
    mood: str


@dataclass(frozen=True)
class PartOfDay:
    """What happened to everybody, and what was said where all met."""

    time: str
    episodes: tuple[Episode, ...]
    talk: tuple[str, ...]


def live(person, name: str, time: str) -> None:
    """Let a villager go somewhere else and do something there; waits for the last place only."""
    person += f"In the {time} {name} goes to the"
    person += sgl.select("place", [place for place in PLACES if place != person["place"]])
    person += f", and there {name}" + sgl.gen("activity", regex=ACTIVITY, max_tokens=20, temperature=0.9, top_p=0.9)


def ask_mood(person, name: str, time: str):
    """Ask how it was, on a fork: the question is no part of the day. Does not wait for the answer."""
    asked = person.fork(1)[0]
    asked += f"For {name} the {time} was"
    # Some words are likely everywhere; this method asks how much likelier each one became by what happened.
    asked += sgl.select("mood", MOODS, choices_method=sgl.unconditional_likelihood_normalized)
    return asked


def talk(people, names: list[str]) -> tuple[str, ...]:
    """One remark of each; everybody remembers all of them."""
    lines = []
    for speaker, name in zip(people, names, strict=True):
        opening = f'{name} says: "'
        speaker += opening + sgl.gen("remark", regex=REMARK, max_tokens=24, temperature=0.7)
        lines.append(opening + speaker["remark"])
        for listener in people:
            if listener is not speaker:
                listener += sgl.literal(lines[-1])
    return tuple(line.strip() for line in lines)


@sgl.function
def village_day(s, villagers, times):
    """One day: at each time all villagers act side by side; where they meet, they talk."""
    s += VILLAGE
    names = [villager["name"] for villager in villagers]
    people = s.fork(len(villagers))
    for person, villager in zip(people, villagers, strict=True):
        memories = "\n".join(f"- {memory}" for memory in villager["memories"])
        person += PERSON.format(**{**villager, "memories": memories})
        person["place"] = " home"  # a name may be set by hand, too
    day: list[PartOfDay] = []
    for time in times:
        for person, name in zip(people, names, strict=True):
            live(person, name, time)
        asked = [ask_mood(person, name, time) for person, name in zip(people, names, strict=True)]
        episodes = tuple(
            Episode(name, person["place"].strip(), person["activity"].strip(), answer["mood"].strip())
            for person, name, answer in zip(people, names, asked, strict=True)
        )
        have_met = len({episode.place for episode in episodes}) == 1
        day.append(PartOfDay(time, episodes, talk(people, names) if have_met else ()))
    return tuple(day)


def run(backend=None, villagers=VILLAGERS, times=TIMES, seed: int = 4) -> tuple[PartOfDay, ...]:
    """Let a day pass; the same seed gives the same day."""
    options = sgl.RunOptions(seed=seed)
    return village_day.run(villagers=villagers, times=times, backend=backend, options=options).ret_value


def script(call) -> str:
    """Replies for a run without a model: everybody works, and goes to the inn in the evening."""
    is_baker = "Work: baker" in call.prompt
    is_evening = "In the evening" in call.prompt
    if call.name == "place":
        own = (" bakery", " market") if is_baker else (" harbour", " bakery")
        return " inn" if is_evening else next(place for place in own if place in call.choices)
    if call.name == "activity":
        return " sings a song.\n" if is_evening else " works hard.\n"
    if call.name == "mood":
        return " funny" if is_evening else " hard"
    return 'What a day!"\n' if is_baker else 'It was long."\n'


def main(argv: list[str] | None = None) -> int:
    """Print the day."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="local, local:PATH or scripted (default: local)")
    args = parser.parse_args(argv)
    for part in run(sgl.ScriptedBackend(script) if args.backend == "scripted" else args.backend):
        for episode in part.episodes:
            print(f"{part.time:9}  {episode.place:7}  {episode.name} {episode.activity} ({episode.mood})")
        print("".join(f"{'':20}{line}\n" for line in part.talk), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
