"""The table of all ingredients in docs/prior.md.

python -m tabiced.prior.catalogue
"""

from tabiced.prior import ingredients


def catalogue() -> str:
    """Return all ingredients as a Markdown table: slot, name, odds per preset, what it is."""
    lines = ["| slot | name | paper | full | what |", "|---|---|---|---|---|"]
    for slot, members in ingredients().items():
        for member in members:
            odds = [f"{100 * p:.3g} %" if p else "" for p in member.odds.values()]
            what = (member.__doc__ or "").strip().splitlines()[0]
            lines.append(f"| {slot} | `{member.name}` | {odds[0]} | {odds[1]} | {what} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(catalogue())
