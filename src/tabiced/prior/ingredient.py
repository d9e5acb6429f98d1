"""What every ingredient of the prior has: a slot it belongs to, a name and its odds per preset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeVar, cast

from tabiced.prior.randomness import Random

PRESETS = ("paper", "full")

SLOTS = {
    "base": "exactly one",
    "covariance": "each independently, for the mixtures of `full`",
    "flows": "at most one, for mixtures",
    "marginals": "each independently",
    "categorical": "each independently",
    "columns": "each independently",
    "perturbation": "at most one",
    "repeats": "each independently",
    "contamination": "at most one",
    "sampling": "each independently",
}
"""The decisions a table takes, and how many ingredients each may draw."""

_MEMBERS: dict[str, list[type[Ingredient]]] = {slot: [] for slot in SLOTS}


class Ingredient:
    """Something a table may be made of. A subclass that is given a name joins its slot:

        class Copies(Event, name="copies", full=0.10): ...

    slot: Which decision it takes part in; see `SLOTS` for how each is decided.
    name: What `Prior(without=...)` calls it; a slot's name stands for all its ingredients.
    odds: Per preset, the probability of a table having it (in the slot `base`: a weight).
    """

    slot: ClassVar[str]
    name: ClassVar[str]
    odds: ClassVar[Mapping[str, float]]

    def __init_subclass__(cls, name: str | None = None, paper: float = 0.0, full: float = 0.0):
        super().__init_subclass__()
        if name is not None:
            cls.name, cls.odds = name, {"paper": paper, "full": full}
            _MEMBERS[cls.slot].append(cls)


Kind = TypeVar("Kind", bound=Ingredient)


def ingredients() -> dict[str, list[type[Ingredient]]]:
    """Return every known ingredient by slot."""
    return {slot: list(members) for slot, members in _MEMBERS.items()}


class Recipe:
    """Decide which ingredients a group of tables has, under a preset with some switched off."""

    def __init__(self, preset: str, without: tuple[str, ...] = ()):
        if preset not in PRESETS:
            raise ValueError(f"unknown preset {preset!r}; choose one of {', '.join(PRESETS)}")
        known = set(SLOTS) | {member.name for members in _MEMBERS.values() for member in members}
        unknown = sorted(set(without) - known)
        if unknown:
            raise ValueError(
                f"no ingredient called {', '.join(map(repr, unknown))}; known: "
                + ", ".join(sorted(known))
            )
        self.preset = preset
        self.without = frozenset(without)
        if not self._odds("base"):
            raise ValueError("every base distribution is switched off; leave at least one")

    def allows(self, name: str) -> bool:
        """Return whether an ingredient or a slot is switched on."""
        return name not in self.without

    def _odds(self, slot: str) -> list[tuple[type[Ingredient], float]]:
        if slot in self.without:
            return []
        pairs = ((member, member.odds[self.preset]) for member in _MEMBERS[slot])
        return [(m, odds) for m, odds in pairs if odds > 0 and m.name not in self.without]

    def _candidates(self, kind: type[Kind]) -> list[tuple[type[Kind], float]]:
        return cast("list[tuple[type[Kind], float]]", self._odds(kind.slot))

    def one(self, kind: type[Kind], random: Random) -> type[Kind]:
        """Draw exactly one ingredient of a kind's slot, in proportion to the odds."""
        members, odds = zip(*self._candidates(kind), strict=True)
        return random.structure.choices(members, odds)[0]

    def at_most_one(self, kind: type[Kind], random: Random) -> list[type[Kind]]:
        """Draw one ingredient of a kind's slot with its odds as probability, or none."""
        level = random.structure.random()
        for member, odds in self._candidates(kind):
            level -= odds
            if level < 0:
                return [member]
        return []

    def each(self, kind: type[Kind], random: Random) -> list[type[Kind]]:
        """Draw each ingredient of a kind's slot independently."""
        return [m for m, odds in self._candidates(kind) if random.structure.random() < odds]
