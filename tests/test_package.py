"""The package as a newcomer finds it: imports, extras, version, bundled files, documents."""

import builtins
import csv
import importlib.metadata
import importlib.resources
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import tabiced
from tabiced._extras import MissingExtraError, extra

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("src/**/*.md"),
    *ROOT.glob("pretraining/*.md"),
]
OPTIONAL = [
    "matplotlib",
    "pandas",
    "polars",
    "pyarrow",
    "pyod",
    "ray",
    "rich",
    "tabicl",
    "typer",
    "zuko",
]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_core_works_without_any_optional_package():
    run(
        "import sys\n"  # a module that is None counts as not installed
        f"sys.modules.update(dict.fromkeys({OPTIONAL}))\n"
        "from tabiced import ICED\n"
        "from tabiced.model import Network, NetworkConfig\n"
        "table = [[0.1 * i, i % 3, None if i % 5 else 'a'] for i in range(20)]\n"
        "model = ICED(weights=Network(NetworkConfig.tiny())).fit(table)\n"
        "assert model.predict(table).shape == (20,)"
    )


def test_importing_tabiced_is_quick():
    loaded = run("import sys, tabiced; print(*{name.partition('.')[0] for name in sys.modules})")
    assert not {"torch", "sklearn", *OPTIONAL} & set(loaded.split())


@pytest.mark.parametrize(
    ("module", "package", "name"),
    [
        ("tabiced.cli", "typer", "cli"),
        ("tabiced.files", "polars", "cli"),
        ("tabiced.plot", "matplotlib", "plot"),
        ("tabiced.pyod", "pyod", "pyod"),
        ("tabiced.tabicl_encoder", "tabicl", "tabicl"),
    ],
)
def test_a_missing_extra_is_named(module: str, package: str, name: str):
    message = run(
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        f"try:\n    import {module}\n"
        "except ImportError as error:\n    print(error)"
    )
    assert f"'{package}'" in message
    assert f"pip install 'tabiced[{name}]'" in message


def test_the_command_without_its_extra_ends_in_one_line():
    code = "import sys; sys.modules['typer'] = None; from tabiced.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "tabiced[cli]" in done.stderr


def test_a_missing_module_of_ours_is_not_blamed_on_an_extra():
    with pytest.raises(ModuleNotFoundError) as caught, extra("plot"):
        import tabiced.no_such_module  # noqa: F401
    assert not isinstance(caught.value, MissingExtraError)


def test_an_error_inside_an_installed_package_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    plain = builtins.__import__

    def broken(name: str, *rest: object) -> types.ModuleType:
        if name == "fractions":
            raise ImportError("broken build")
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(ImportError, match="broken build") as caught, extra("plot"):
        import fractions  # noqa: F401
    assert not isinstance(caught.value, MissingExtraError)


def test_version_is_that_of_the_distribution_and_of_the_changelog():
    assert tabiced.__version__ == importlib.metadata.version("tabiced")
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == tabiced.__version__


def test_package_data_are_present():
    package = importlib.resources.files("tabiced")
    assert (package / "py.typed").is_file()
    assert (package / "data" / "README.md").is_file()
    weights = [entry.name for entry in (package / "weights").iterdir()]
    assert any(name.endswith(".safetensors") for name in weights)
    assert any(name.endswith(".json") for name in weights)


def test_the_bundled_table_has_categories_numbers_and_missing_cells():
    text = (importlib.resources.files("tabiced") / "data" / "penguins.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 344
    assert {row["species"] for row in rows} == {"Adelie", "Chinstrap", "Gentoo"}
    assert sum(row["sex"] == "NA" for row in rows) == 11
    assert sum(row["body_mass_g"] == "NA" for row in rows) == 2
    assert all(row["body_mass_g"] == "NA" or float(row["body_mass_g"]) > 2000 for row in rows)


def anchors(document: Path) -> set[str]:
    """Return the link targets that a Markdown file's headings make on code hosts."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve(document: Path):
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    broken = []
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_architecture_page_names_every_module_and_no_other():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"\b(\w+\.py)\b", page)) | set(re.findall(r"\b(\w+/)[`:<]", page))
    source = ROOT / "src" / "tabiced"
    modules = {path.name for path in source.glob("*.py")} - {"__init__.py", "__main__.py"}
    folders = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")} | {
        "data/",
        "weights/",
    }
    assert named == modules | folders


def test_the_example_of_the_readme_runs():
    readme = (ROOT / "README.md").read_text()
    example = re.search(r"```python\n(.+?)```", readme, re.DOTALL)
    assert example is not None
    assert example[1].count("\n") <= 12
    assert run(example[1]).strip() != ""
