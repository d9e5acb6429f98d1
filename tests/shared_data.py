"""Find the benchmark data beside the checkout, or skip the test that wants them."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "shared"


def shared(relative: str) -> Path:
    """Return a file or folder of the benchmark data; skip the calling test where it is absent."""
    path = FOLDER / relative
    if not path.exists():
        pytest.skip(f"benchmark data not present: {relative}")
    return path
