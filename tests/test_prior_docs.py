"""The documents tell what the code does."""

from pathlib import Path

import pytest
import torch

from tabiced.prior import Prior
from tabiced.prior.catalogue import catalogue
from tabiced.prior.gallery import draw_gallery
from tabiced.prior.ingredient import _MEMBERS

PAGE = Path(__file__).parent.parent / "docs" / "prior.md"


def test_the_page_lists_every_ingredient_with_its_odds():
    assert catalogue() in PAGE.read_text(), "run python -m tabiced.prior.catalogue"


def test_the_example_ingredient_of_the_page_works():
    """The code block under "Adding an ingredient" is executed as it is printed."""
    _, _, section = PAGE.read_text().partition("## Adding an ingredient")
    code = section.partition("```python\n")[2].partition("```")[0]
    before = {slot: list(members) for slot, members in _MEMBERS.items()}
    try:
        exec(compile(code, str(PAGE), "exec"), {})
        added = [m for slot in before for m in _MEMBERS[slot] if m not in before[slot]]
        assert len(added) == 1
        added[0].odds = {"paper": 0.0, "full": 1.0}
        tables = Prior("full").draw(8, 32, 8, 3, "cpu", torch.Generator().manual_seed(0))
        assert tables.log_density.isfinite().all()
        Prior("full", without=(added[0].name,))
    finally:
        for slot, members in before.items():
            _MEMBERS[slot][:] = members


def test_gallery(tmp_path):
    pytest.importorskip("matplotlib")
    path = draw_gallery(3, tmp_path / "page.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert 20_000 < path.stat().st_size < 500_000
