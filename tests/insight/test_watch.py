"""``view --watch``: who gets an answer, and that the report follows what is recorded."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_spans import lines, span

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._cli.watch import ADDRESS, Server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spans").mkdir()
    (tmp_path / "spans" / "a.jsonl").write_text(lines(span(1, 100, 900, name="outer"), span(2, 200, 300, 1, name="in")))
    return tmp_path / "spans"


@contextmanager
def watching(folder: Path, page: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, run as a user runs it, once it serves, and its address. Ctrl-C ends it without a word."""
    command = [sys.executable, "-m", "ray_tracing_hooks", "view", str(folder), "--output", str(page), "--watch"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [*command, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as running:
        assert running.stdout is not None
        try:
            first, second = running.stdout.readline(), running.stdout.readline()
            assert first.startswith(f"{page}: 2 spans, "), first
            found = re.fullmatch(r"Serving it at (http://127\.0\.0\.1:\d+/[\w-]{32}/) until Ctrl-C\n", second)
            assert found, second
            yield running, found[1]
        finally:
            running.send_signal(signal.SIGINT)
            rest, _ = running.communicate(timeout=60)
        assert (running.returncode, rest) == (0, "")


def test_the_report_is_written_again_when_spans_arrive(folder: Path, tmp_path: Path) -> None:
    """Also for a new file. What cannot be read is said, and tried again, and the last report stays."""
    page = tmp_path / "report.html"
    with watching(folder, page) as (running, _):
        assert running.stdout is not None
        assert running.stderr is not None
        assert "contains attributes" in running.stderr.readline()
        with (folder / "a.jsonl").open("a") as file:
            file.write(lines(span(3, 400, 500, 1, name="more")))
        assert running.stdout.readline().startswith(f"{page}: 3 spans, ")
        folder.rename(tmp_path / "away")
        while "does not exist" not in (said := running.stderr.readline()):
            assert said
        assert page.stat().st_size > 10_000
        (tmp_path / "away" / "b.jsonl").write_text(lines(span(4, 500, 600, 1, name="new")))
        (tmp_path / "away").rename(folder)
        assert running.stdout.readline().startswith(f"{page}: 4 spans, ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "spans"]


def test_a_first_report_that_cannot_be_written_ends_the_command(folder: Path, tmp_path: Path) -> None:
    """As without --watch; and so do a port that is not free and an output that is no file."""

    def run(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["view", str(folder), "-o", str(tmp_path / "x.html"), "--watch", *options])
        return done.exit_code, " ".join(done.stderr.split())

    code, said = run("--trace", "f")
    assert (code, "none of 1 trace starts with 'f'" in said) == (1, True)
    code, said = run("--output", "/dev/null")
    assert (code, "is a folder, a FIFO, a device or standard output" in said) == (1, True)
    with socket.create_server((ADDRESS, 0)) as taken:
        code, said = run("--port", str(taken.getsockname()[1]))
    assert (code, "cannot listen on 127.0.0.1:" in said) == (1, True)


# --- The server ---------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of a file, with another file beside it."""
    (tmp_path / "report.html").write_text("the report")
    (tmp_path / "report.html").chmod(0o600)
    (tmp_path / "other.html").write_text("another file")
    with Server(str(tmp_path / "report.html")) as started:
        thread = threading.Thread(target=started.serve_forever, args=(0.02,))
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def ask(
    server: Server, path: str, method: str = "GET", host: str | None = "localhost", body: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(ADDRESS, server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    if host is not None:
        connection.putheader("Host", host)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body.encode() if body is not None else None)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def test_a_browser_finds_the_report(server: Server, tmp_path: Path) -> None:
    """At the address, a page that loads the report when its version changes. Nothing is stored or passed on."""
    assert server.address == f"http://127.0.0.1:{server.server_port}/{server.token}/"
    status, headers, shell = ask(server, f"/{server.token}/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'fetch("version")' in shell
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    assert "default-src 'none'; script-src 'sha256-" in headers["Content-Security-Policy"]
    assert ask(server, f"/{server.token}/report?1")[2] == b"the report"
    before = ask(server, f"/{server.token}/version")[2]
    assert ask(server, f"/{server.token}/version")[2] == before
    os.utime(tmp_path / "report.html", ns=(1, 1))
    assert ask(server, f"/{server.token}/version")[2] == b"1"
    (tmp_path / "report.html").unlink()
    assert [ask(server, f"/{server.token}/{path}")[0] for path in ("version", "report")] == [404, 404]


@pytest.mark.parametrize("path", ["", "version", "report"])
def test_without_the_token_there_is_nothing(server: Server, path: str) -> None:
    """Not even that there would be something."""
    token = server.token
    for wrong in ("", "x", token[:-1], token + "x", token.swapcase(), "%00", f"x/{token}", "%FC%FC"):
        status, _, content = ask(server, f"/{wrong}/{path}")
        assert status == 404
        assert token.encode() not in content


def test_a_token_of_other_characters_is_wrong_too(server: Server) -> None:
    """No byte of a request makes it fail otherwise."""
    with socket.create_connection((ADDRESS, server.server_port), timeout=20) as connection:
        connection.sendall(b"GET /\xfc\x80\xff/report HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.0 404")


@pytest.mark.parametrize("host", [None, "", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example"])
def test_a_request_under_another_name_is_refused(server: Server, host: str | None) -> None:
    """A site that makes its own name lead here (DNS rebinding) sends that name."""
    assert ask(server, f"/{server.token}/report", host=host)[0] == 421


@pytest.mark.parametrize("host", ["LOCALHOST:9", "127.0.0.1:1234", "[::1]:80"])
def test_the_names_of_this_machine_are_taken_with_any_port(server: Server, host: str) -> None:
    """A tunnel has another one."""
    assert ask(server, f"/{server.token}/report", host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "NONSENSE"])
def test_only_get_is_answered(server: Server, method: str) -> None:
    """Nothing can be changed, and no site is allowed to send requests."""
    status, headers, _ = ask(server, f"/{server.token}/report", method=method, body="x")
    assert status == 501
    assert not any(name.lower().startswith("access-control") for name in headers)


@pytest.mark.parametrize(
    "path",
    [
        "report.html", "other.html", "../other.html", "../../../../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd", "version/", "report/../version", "..", "report%00", "./report", "report/../../../etc/passwd",
    ],
)  # fmt: skip
def test_no_path_is_opened(server: Server, path: str) -> None:
    """Those that are known are no files."""
    status, _, content = ask(server, f"/{server.token}/{path}")
    assert status == 404
    assert b"root:" not in content
    assert b"another" not in content


def test_it_listens_on_this_machine_only(server: Server) -> None:
    """On the address that no other machine reaches."""
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_a_token_has_192_bits(server: Server) -> None:
    with Server("x") as other:
        assert len({server.token, other.token}) == 2
    assert len(server.token) == 32


def test_nothing_is_printed_for_a_request(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """The address has the token in it. Who asks is not told what answers."""
    _, headers, _ = ask(server, f"/{server.token}/version")
    ask(server, "/nonsense")
    assert ask(server, "http://[x/")[0] == 404
    assert capfd.readouterr() == ("", "")
    assert headers["Server"] == "ray-tracing-hooks"
