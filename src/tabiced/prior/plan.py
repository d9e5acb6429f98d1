"""Choose the structure of a group of tables and draw its clean process."""

from __future__ import annotations

from tabiced.prior.columns import CategoricalColumns, Encoding, SideColumns
from tabiced.prior.flows import Flow
from tabiced.prior.ingredient import Recipe
from tabiced.prior.marginals import Marginal
from tabiced.prior.mixture import Base
from tabiced.prior.process import Process
from tabiced.prior.randomness import Random
from tabiced.prior.transforms import Chain, MinMax, Transform


def draw_process(recipe: Recipe, random: Random, tables: int, columns: int) -> Process:
    """Draw a clean process that shows exactly `columns` columns.

    Side columns are planned first and leave the base at least two columns (one of two, if the table
    has no more).
    """
    base = recipe.one(Base, random)
    planned: list[tuple[type[SideColumns], list[Encoding]]] = []
    left = columns
    for kind in (*recipe.each(CategoricalColumns, random), *recipe.each(SideColumns, random)):
        if kind.needs_components and not base.has_components:
            continue
        encodings = kind.plan(random, left - (2 if columns > 2 else 1))
        if encodings:
            planned.append((kind, encodings))
            left -= sum(e.width for e in encodings)

    source = base.build(random, tables, left, recipe)
    sides = [kind.build(random, tables, source.components, enc) for kind, enc in planned]

    d = source.measured
    parts: list[Transform] = []
    for flow in recipe.at_most_one(Flow, random):
        tame = not (base.heavy and flow.light_tails_only)
        if d >= 2 and base.has_components and tame:
            parts += flow.build(random, tables, d)
    for marginal in recipe.each(Marginal, random):
        parts += marginal.build(random, tables, d, base.heavy)
    if recipe.preset == "paper" and not parts:
        parts = [MinMax()]
    return Process(source, sides, Chain(parts))
