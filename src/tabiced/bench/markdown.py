"""Tables of the page as Markdown, and the forms of numbers in them."""

from collections.abc import Callable

import numpy as np


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table, first column to the left, the others to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cells(parts: dict[str, float], columns: list[str], form: Callable[[float], str]) -> list[str]:
    return [form(parts[c]) if c in parts and parts[c] == parts[c] else "-" for c in columns]


def four(value: float) -> str:
    return f"{value:.4f}"


def two(value: float) -> str:
    return f"{value:.2f}"


def italic(text: str) -> str:
    return text if text == "-" else f"*{text}*"


def with_mean(parts: dict[str, float], columns: list[str]) -> dict[str, float]:
    """Add the mean over the columns where all of them are there."""
    if any(column not in parts for column in columns):
        return parts
    return {**parts, "mean": float(np.mean([parts[column] for column in columns]))}


def ours_first(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: ("tabiced" not in name, len(name) if "=" in name else 0))
