"""The documentation site: examples run, pages link to each other, the build is strict."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tabiced import contexts, weights
from tests_support import random_network

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [DOCS / "quickstart.md", *sorted(DOCS.glob("tutorials/*.md"))]


@pytest.fixture(scope="module")
def examples() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_examples", DOCS / "run_examples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tiny_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a small random network stand for the shipped one: that examples run is the point."""
    weights.save_network(random_network(), tmp_path / "tiny.json")
    monkeypatch.setattr(weights, "SHIPPED", tmp_path / "tiny.json")
    contexts._loaded.cache_clear()
    yield
    contexts._loaded.cache_clear()


@pytest.mark.usefixtures("tiny_weights")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(page: Path, examples: ModuleType):
    text = page.read_text()
    shown = examples.run_examples(text, page.name)
    blocks = len(examples.BLOCK.findall(text))
    assert shown.count("```text\n") == blocks  # every example shows something


def test_examples_show_what_they_print_and_share_names(examples: ModuleType):
    page = "```python\nx = 2\nprint(x)\n```\nand\n\n```python\nprint(x + 1)\n```\n"
    shown = examples.run_examples(page, "page.md")
    assert re.findall(r"```text\n(.*?)\n```", shown) == ["2", "3"]


def test_an_example_that_fails_names_its_line(examples: ModuleType):
    with pytest.raises(ZeroDivisionError) as caught:
        examples.run_examples("# A\n\n```python\nx = 1\nx / 0\n```\n", "page.md")
    place = caught.traceback[-1]
    assert place.lineno + 1 == 5


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in pages if page not in navigation} == set()


def test_the_site_builds_strictly(tmp_path: Path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    # The examples run in the tests above, with a small network.
    config = (ROOT / "mkdocs.yml").read_text().replace("hooks: [docs/run_examples.py]", "")
    config = config.replace("docs_dir: docs", f"docs_dir: {DOCS}")
    config = config.replace("paths: [src]", f"paths: [{ROOT / 'src'}]")
    (tmp_path / "mkdocs.yml").write_text(config)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["--config-file", tmp_path / "mkdocs.yml", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site" / "api" / "index.html").read_text()
    for name in ("score_samples", "explain_in_words", "energy_landscape", "write_report"):
        assert f"{name}</span>" in reference or f".{name}" in reference
