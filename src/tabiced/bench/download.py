"""Fetch the ADBench tables: the only thing here that downloads, and only when asked.

    python -m tabiced.bench download --to FOLDER

The files are those of ADBench's repository at one commit. Each must have the SHA-256 written in
`adbench.sha256` beside this module; one that is already in the folder and has it is not fetched
again, so an interrupted run is resumed by the same command. The tables come under the licences of
their sources, which ADBench lists.
"""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path

COMMIT = "f7fed68dea6901fe9a81ed51b251b1d2456790cd"
SOURCE = f"https://raw.githubusercontent.com/Minqi824/ADBench/{COMMIT}/adbench/datasets/Classical"
QUICK = ("14_glass.npz", "42_WBC.npz", "45_wine.npz")
UNKNOWN = ("3_backdoor", "9_census", "13_fraud", "36_speech")
"""Tables of ADBench that are not fetched: nobody has written down their checksums here"""

TIMEOUT, BLOCK = 60, 1 << 18  # seconds without an answer; bytes


class DownloadError(Exception):
    """A file that could not be had; the text is one line and says what to do."""


def checksums() -> dict[str, str]:
    """Return {file name: SHA-256}, read from a list as `sha256sum` writes it."""
    lines = Path(__file__).with_name("adbench.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def download(
    folder: str | os.PathLike[str],
    source: str = SOURCE,
    names: Sequence[str] | None = None,
    report: Callable[[str], None] | None = None,
) -> int:
    """Fetch what the folder lacks; return how many files that were."""
    known, fetched = checksums(), 0
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name in known if names is None else names:
        if _is_verified(target / name, known[name]):
            continue
        fetch(f"{source.rstrip('/')}/{name}", target / name, known[name])
        fetched += 1
        if report:
            report(f"fetched {name}")
    return fetched


def _is_verified(path: Path, digest: str) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def fetch(address: str, path: Path, digest: str) -> None:
    """Fetch one file; it appears under its name only when it is whole and verified."""
    draft = path.with_name(f"{path.name}.part")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            sha, size = _copy(answer, draft)
            promised = answer.headers.get("Content-Length")
        if promised is not None and size != int(promised):
            raise DownloadError(
                f"{path.name} broke off after {size} of {promised} bytes; run the command again"
            )
        if sha != digest:
            raise DownloadError(
                f"{path.name} is not the file that was asked for: SHA-256 {sha[:12]}..., expected "
                f"{digest[:12]}...; try again later or another --source"
            )
        draft.replace(path)
    except urllib.error.HTTPError as error:
        raise DownloadError(f"{address} cannot be had: {error.code} {error.reason}") from error
    except (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise DownloadError(
            f"cannot reach {address} ({reason}); connect and run the command again"
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _copy(answer: object, draft: Path) -> tuple[str, int]:
    """Write what is read to a file; return its SHA-256 and size."""
    sha, size = hashlib.sha256(), 0
    with draft.open("wb") as file:
        while block := answer.read(BLOCK):  # type: ignore[attr-defined]
            sha.update(block)
            size += file.write(block)
    return sha.hexdigest(), size
