"""The HTML report: complete, harmless, and alive in a real browser."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from tabiced.cli import app
from tabiced.files import TableFile, save_table
from tabiced.ranking import Ranking
from tabiced.report import render_report, write_report
from tabiced.weights import save_network
from tests_support import random_network

EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>'
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    save_network(random_network(), path / "tiny.json")
    g = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "id": [f"row-{i}" for i in range(40)],
            "size": g.normal(size=40).round(3),
            EVIL: g.choice([EVIL, "</title>", "&amp;", None], 40).tolist(),
            "` = x": g.integers(0, 9, 40),
            "always": np.ones(40, int),
            "day": pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 2, 9), eager=True),
        }
    )
    save_table(frame, path / "table.parquet")
    return path


@pytest.fixture(scope="module")
def ranking(folder: Path) -> Ranking:
    return Ranking(TableFile(folder / "table.parquet"), ignore=["id"], weights=folder / "tiny.json")


@pytest.fixture(scope="module")
def page(folder: Path, ranking: Ranking) -> Path:
    path = folder / "report.html"
    write_report(ranking, ranking.rows(ranking.top(25)), path)
    return path


class Elements(HTMLParser):
    """Collect start tags, and text outside scripts and styles."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.quiet = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.quiet = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.quiet = False

    def handle_data(self, data: str) -> None:
        if not self.quiet:
            self.words.append(data)


def test_the_users_words_are_shown_and_never_become_markup(page: Path):
    found = Elements(page.read_text())
    assert sum(tag == "script" for tag, _ in found.tags) == 1
    assert not any(tag == "img" or "onerror" in attrs for tag, attrs in found.tags)
    text = "".join(found.words)
    assert EVIL in text
    assert "</title>" in text
    assert "&amp;" in text
    assert "` = x" in text


def test_nothing_is_loaded_from_elsewhere(page: Path):
    text = page.read_text()
    links = [
        v for _, attrs in Elements(text).tags for k, v in attrs.items() if k in ("src", "href")
    ]
    assert links == ["data:,"]
    assert "url(" not in text
    assert "@import" not in text


def test_the_numbers_are_those_of_the_ranking(page: Path, ranking: Ranking):
    text = page.read_text()
    rows = re.findall(r'data-name="row">(\d+)<', text)
    assert [int(row) for row in rows] == list(ranking.top(25))
    counts = [int(n) for n in re.findall(r"<title>(\d+) rows with an energy", text)]
    assert sum(counts) == 40
    assert f"<b>{(ranking.p_value <= 0.05).sum()}</b> rows with p ≤ 0.05" in text


def test_columns_are_summarised(page: Path):
    text = "".join(Elements(page.read_text()).words)
    assert "ignored: always 1" in text
    assert "left out" in text  # id
    assert "2024-01-01 to 2024-02-09" in text
    missing = TableFile(page.parent / "table.parquet").collect()[EVIL].null_count()
    assert f"{missing} ({missing / 40:.1%})" in text


def test_rows_of_one_energy_can_be_drawn(tmp_path: Path, folder: Path):
    save_table(pl.DataFrame({"a": [1, 1, 1, 1], "b": ["x"] * 4}), tmp_path / "same.csv")
    ranking = Ranking(TableFile(tmp_path / "same.csv"), weights=folder / "tiny.json")
    text = re.sub(
        r"<script>.*</script>", "", render_report(ranking, ranking.rows([0, 1])), flags=re.S
    )
    assert "nan" not in text


def test_the_command_writes_the_report(folder: Path, tmp_path: Path):
    out = tmp_path / "out.html"
    arguments = ["score", str(folder / "table.parquet"), "--weights", str(folder / "tiny.json")]
    result = CliRunner().invoke(app, [*arguments, "--report", str(out), "--top", "7"])
    assert result.exit_code == 0, result.output
    assert f"Wrote {out}" in result.stdout.replace("\n", "")
    assert out.read_text().count('data-name="rank"') == 7
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]


def test_a_report_of_another_kind_is_refused(folder: Path, tmp_path: Path):
    arguments = ["score", str(folder / "table.parquet"), "--report", str(tmp_path / "out.pdf")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert ".html" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if BROWSER is None:
        pytest.skip("no browser: install chromium to see the report tested in one")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tab(browser: Any, page: Path) -> Iterator[Any]:
    tab = browser.new_page()
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("dialog", lambda dialog: (complaints.append("a cell ran as a script"), dialog.dismiss()))
    tab.on(
        "request",
        lambda request: (
            request.url.startswith(("file:", "data:"))
            or complaints.append(f"asked for {request.url}")
        ),
    )
    tab.goto(page.as_uri())
    yield tab
    assert complaints == []
    tab.close()


def shown(tab: Any, name: str) -> list[str]:
    return tab.locator(f'#ranked > tbody > tr:visible > td[data-name="{name}"]').all_inner_texts()


def test_a_browser_sorts_by_any_column(tab: Any):
    first = shown(tab, "energy")
    assert first == sorted(first, key=float)
    for name in ("energy", "row", "p-value", "rank"):
        button = tab.locator(f'#ranked thead button:text-is("{name}")')
        button.click()
        assert shown(tab, name) == sorted(shown(tab, name), key=float)
        button.click()
        assert shown(tab, name) == sorted(shown(tab, name), key=float, reverse=True)
    assert len(shown(tab, "rank")) == 25


def test_a_browser_searches(tab: Any):
    everything = tab.locator("#ranked > tbody > tr").all_inner_texts()
    assert len(everything) == 25
    tab.fill("#search", "ROW-1")
    # Folded details are searched as well.
    texts = tab.locator("#ranked > tbody > tr").evaluate_all("r => r.map(x => x.textContent)")
    expected = [t for t in texts if "row-1" in t.lower()]
    assert 0 < len(expected) < 25
    assert len(shown(tab, "rank")) == len(expected)
    assert tab.inner_text("#shown") == f"{len(expected)} of 25 rows"
    tab.fill("#search", "")
    assert len(shown(tab, "rank")) == 25


def test_a_browser_unfolds_the_cells(tab: Any):
    details = tab.locator("#ranked details").first
    assert not details.locator("table").is_visible()
    details.locator("summary").click()
    assert details.locator("table").is_visible()
    assert details.locator("tr").count() == 6
    assert EVIL in details.inner_text()


def test_a_phone_needs_no_sideways_scrolling(tab: Any):
    tab.set_viewport_size({"width": 360, "height": 740})
    tab.locator("#ranked details summary").first.click()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_dark_and_light_have_readable_contrast(tab: Any):
    def luminance(colour: str) -> float:
        parts = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    papers = set()
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        for selector in ("body", "footer", ".tiles li"):
            style = (
                "e => [getComputedStyle(e).color, getComputedStyle(document.body).backgroundColor]"
            )
            ink, paper = tab.locator(selector).first.evaluate(style)
            dark, light = sorted([luminance(ink), luminance(paper)])
            assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG AA
            papers.add(paper)
    assert len(papers) == 2
