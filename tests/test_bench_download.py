"""The downloader: whole and verified files or none, resumed, against a server of our own."""

import hashlib
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shared_data import shared
from tabiced.bench import command
from tabiced.bench import download as module
from tabiced.bench.adbench import find_tables, is_stand_in
from tabiced.bench.command import main

FILES = {"1_a.npz": b"first" * 1000, "2_b.npz": b"second" * 1000, "3_c.npz": b"third" * 1000}


class Handler(BaseHTTPRequestHandler):
    """Serve FILES; `faults` says how a file is spoilt, `asked` collects the requests."""

    def __init__(self, faults, asked, *arguments):
        self.faults, self.asked = faults, asked
        super().__init__(*arguments)

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        self.asked.append(name)
        fault, body = self.faults.get(name), FILES[name]
        if fault == "absent":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(
            {"corrupted": b"x" + body[1:], "interrupted": body[:1234]}.get(fault, body)
        )

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    known = {name: hashlib.sha256(body).hexdigest() for name, body in FILES.items()}
    monkeypatch.setattr(module, "checksums", lambda: known)
    faults, asked = {}, []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, faults, asked)) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        made.address, made.faults, made.asked = (
            f"http://127.0.0.1:{made.server_port}/x",
            faults,
            asked,
        )
        yield made
        made.shutdown()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_files_are_fetched_once(server, tmp_path):
    told = []
    assert module.download(tmp_path / "new", server.address, report=told.append) == 3
    assert contents(tmp_path / "new") == FILES and told[0] == "fetched 1_a.npz"
    assert module.download(tmp_path / "new", server.address + "/") == 0
    assert server.asked == list(FILES)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("corrupted", "2_b.npz is not the file that was asked for"),
        ("interrupted", "2_b.npz broke off after 1234 of 6000 bytes"),
        ("absent", "2_b.npz cannot be had: 404"),
    ],
)
def test_a_spoilt_file_leaves_nothing_and_is_fetched_by_the_next_run(
    server, tmp_path, fault, message
):
    server.faults["2_b.npz"] = fault
    with pytest.raises(module.DownloadError, match=message) as caught:
        module.download(tmp_path, server.address)
    assert "\n" not in str(caught.value)
    assert contents(tmp_path) == {"1_a.npz": FILES["1_a.npz"]}
    server.faults.clear()
    assert module.download(tmp_path, server.address) == 2
    assert contents(tmp_path) == FILES


def test_a_file_that_changed_on_disk_is_fetched_again(server, tmp_path):
    module.download(tmp_path, server.address)
    (tmp_path / "3_c.npz").write_bytes(b"something else")
    assert module.download(tmp_path, server.address) == 1
    assert contents(tmp_path) == FILES


def test_offline_is_one_line(server, tmp_path):
    address = server.address
    server.shutdown()
    server.server_close()
    with pytest.raises(SystemExit, match=r"^error: cannot reach http://127[^\n]*$") as caught:
        main(["download", "--to", str(tmp_path), "--source", address])
    assert "1_a.npz" in str(caught.value) and not contents(tmp_path)


def test_the_command_tells_what_it_has_and_what_it_cannot_have(
    server, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(command, "checksums", module.checksums)
    main(["download", "--to", str(tmp_path), "--source", server.address])
    printed = capsys.readouterr().out
    assert "3 tables" in printed and "3_backdoor, 9_census" in printed
    names = ("3_c.npz",)
    monkeypatch.setitem(command.QUICK, "download", {"names": names})
    main(["download", "--to", str(tmp_path / "few"), "--source", server.address, "--quick"])
    assert set(contents(tmp_path / "few")) == set(names)


def test_the_checksums_are_those_of_the_tables_that_were_measured():
    known = module.checksums()
    assert len(known) == 43 and set(module.QUICK) <= set(known)
    assert all(len(digest) == 64 for digest in known.values())
    files = find_tables(shared("data/adbench")).values()
    here = {path.name: path for path in files if not is_stand_in(path)}
    assert set(here) - set(known) == {"3_backdoor.npz"}
    for name, digest in known.items():
        assert hashlib.sha256(here[name].read_bytes()).hexdigest() == digest
