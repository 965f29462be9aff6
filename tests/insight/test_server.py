"""The local server: who gets an answer, and what is answered as spans arrive."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from made_spans import TRACE_ID, process, span

from ray_tracing_hooks._cli.serve import _or_refused
from ray_tracing_hooks._cli.serving import Asked, Maker, make
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.views import server
from ray_tracing_hooks._insight.views.exports.otlp import _attributes, _described


def lines(*spans: Span) -> str:
    described = [_described(each) for each in spans]
    resource = {"attributes": _attributes(process())}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": described}]}]}) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spans").mkdir()
    (tmp_path / "spans" / "a.jsonl").write_text(lines(span(1, 100, 900, name="outer"), span(2, 200, 300, 1, name="in")))
    return tmp_path / "spans"


def names_of(folder: Path, into: str, _tell: Callable[[str], None]) -> server.Made:
    """Stands in for the page: the names of all spans."""
    table = load(span_files([str(folder)]))
    text = " ".join(table.name_of(row) for row in range(len(table)))
    (Path(into) / server.PAGE).write_text(text)
    return server.Made(len(table))


def index_of(folder: Path, into: str, tell: Callable[[str], None]) -> server.Made:
    """What is made of a run that is too large for a page."""
    return make(Asked([str(folder)], None, everything=True, max_spans=1), into, tell)


@pytest.fixture
def serving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[server.Server]:
    """A server of the folder, as the command starts one."""
    with started(folder, partial(names_of, folder), monkeypatch) as found:
        yield found


@pytest.fixture
def asking(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[server.Server]:
    """The same, with an index that its page asks; it is there."""
    with started(folder, partial(index_of, folder), monkeypatch) as found:
        until(found, lambda found: bool(found["version"]))
        yield found


@contextmanager
def started(folder: Path, make: server.Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[server.Server]:
    (folder.parent / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder.parent / "temporary"))
    monkeypatch.setattr(server, "_LEAST_PAUSE", 0.05)
    find = partial(span_files, [str(folder)])
    reports = server.Reports(find, make)
    with server.Server(reports) as started:
        thread = threading.Thread(target=started.serve_forever, args=(0.02,))
        thread.start()
        reports.start()
        yield started
        reports.end()
        started.shutdown()
        thread.join()


def ask(
    serving: server.Server,
    path: str,
    method: str = "GET",
    host: str | None = "localhost",
    body: str | None = None,
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(server.ADDRESS, serving.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if host is not None:
        connection.putheader("Host", host)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body.encode() if body is not None else None)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def state(serving: server.Server) -> dict[str, Any]:
    status, _, content = ask(serving, f"/{serving.token}/state")
    assert status == 200
    found: dict[str, Any] = json.loads(content)
    return found


def until(serving: server.Server, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The state as soon as it is so."""
    deadline = time.monotonic() + 60
    while not reached(found := state(serving)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def test_a_browser_finds_the_report(serving: server.Server) -> None:
    """At the address: a page that asks for the report, and the report; nothing of it is stored or passed on."""
    assert serving.address == f"http://127.0.0.1:{serving.server_port}/{serving.token}/"
    found = until(serving, lambda found: bool(found["version"]))
    assert (found["version"], found["spans"], found["asks"], found["problem"]) == (1, 2, False, "")
    status, headers, shell = ask(serving, f"/{serving.token}/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'fetch("state")' in shell
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "default-src 'none'; script-src 'sha256-" in headers["Content-Security-Policy"]
    assert ask(serving, f"/{serving.token}/report")[2] == b"outer in"


def test_a_page_of_a_large_run_asks(asking: server.Server) -> None:
    """For spans, in columns. What is long comes packed to who can unpack it."""
    assert state(asking)["asks"]
    status, headers, report = ask(asking, f"/{asking.token}/report")
    assert (status, b"connect-src &#x27;self&#x27;" in report) == (200, True)
    rows = f"/{asking.token}/ask/rows?version=1&rows="
    status, headers, answer = ask(asking, rows + "0-1")
    assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
    assert (headers["Cache-Control"], "Content-Encoding" in headers) == ("no-store", False)
    assert b'["row", 2, 1]' in answer
    many = rows + "-".join("01" * 100)
    status, headers, packed = ask(asking, many, **{"Accept-Encoding": "gzip, br"})
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert gzip.decompress(packed) == ask(asking, many)[2]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("ask/rows?version=2&rows=0", 410), ("ask/rows?version=0&rows=0", 410), ("ask/rows?rows=0", 400),
        ("ask/rows?version=x&rows=0", 400), ("ask/rows?version=1&rows=0&rows=1", 400), ("ask/rows?version=1", 400),
        ("ask/rows?version=1&rows=../../etc/passwd", 400), ("ask/rows?version=1&rows=%00", 400),
        ("ask/rows?version=" + "1" * 5000 + "&rows=0", 400), ("ask/rows?" + "&".join("abcdefghijkl"), 400),
        ("ask/tile?version=1&level=9&index=99999999999999999&first=0&last=1", 400),
        ("ask/filter?version=1&q=" + "x" * 3000, 400), ("ask/list?version=1&from=0&to=1&by=__dict__", 400),
        ("ask/nothing?version=1", 404), ("ask/__init__?version=1", 404), ("ask/?version=1", 404), ("ask", 404),
        ("ask/rows/0?version=1&rows=0", 404), ("ask/../state", 404), ("ask/%2e%2e/state?version=1", 404),
    ],
)  # fmt: skip
def test_a_wrong_question_is_refused(
    asking: server.Server, path: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a message that says whose error it is. The server continues, and prints nothing."""
    assert ask(asking, f"/{asking.token}/{path}")[0] == status
    assert ask(asking, f"/{asking.token}/ask/rows?version=1&rows=0")[0] == 200
    assert ask(asking, f"/{asking.token}/ask/rows?version=1&rows=0", host="evil.example")[0] == 421
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("query", ["%FF%FE", "%22", "%22%22", "-", "--", "=", "x=", "=x", "on:", "is:", ">", "*" * 500])
def test_any_filter_is_answered(asking: server.Server, query: str) -> None:
    """Bytes that are no text, quotes that are not closed, signs alone."""
    assert ask(asking, f"/{asking.token}/ask/filter?version=1&q={query}")[0] == 200


def test_the_index_has_no_name_on_disk(asking: server.Server, folder: Path) -> None:
    """No other user can open it, and it disappears with the server, however that ends."""
    assert ask(asking, f"/{asking.token}/ask/rows?version=1&rows=0")[0] == 200
    assert list((folder.parent / "temporary").iterdir()) == []


def test_a_new_report_answers_anew(asking: server.Server, folder: Path) -> None:
    """A request for the previous version is answered that it is gone."""
    with (folder / "a.jsonl").open("a") as file:
        file.write(lines(span(3, 400, 500, 1, name="more")))
    until(asking, lambda found: found["version"] == 2)
    assert ask(asking, f"/{asking.token}/ask/rows?version=1&rows=2")[0] == 410
    assert b'["row", 1, 1]' in ask(asking, f"/{asking.token}/ask/rows?version=2&rows=2")[2]


def test_nothing_of_the_current_folder_is_imported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be one in which others can write."""
    monkeypatch.chdir(tmp_path)
    for name in ("pickle", "struct", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    made = Maker(Asked([str(folder)], None, everything=False, max_spans=1)).make(str(tmp_path), lambda _doing: None)
    assert made.spans == 2
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("most", [1, 1000])
def test_a_child_makes_the_report(folder: Path, tmp_path: Path, most: int) -> None:
    """With an index if there are more spans than a page holds; the progress is reported meanwhile."""
    told: list[str] = []
    made = Maker(Asked([str(folder)], None, everything=False, max_spans=most)).make(str(tmp_path), told.append)
    assert made.spans == 2
    assert told[0] == "reading, 100 %"
    assert (tmp_path / server.PAGE).stat().st_size > 10_000
    assert (tmp_path / server.INDEX).exists() == (most == 1)


def test_what_a_child_cannot_read_is_told(tmp_path: Path) -> None:
    """As if it had been read here; what is to be shown is checked there too."""
    with pytest.raises(ValueError, match="No such file"):
        Maker(Asked([str(tmp_path / "none")], None, everything=False, max_spans=1)).make(str(tmp_path), print)
    (tmp_path / "a.jsonl").write_text(lines())
    with pytest.raises(ValueError, match="no spans"):
        Maker(Asked([str(tmp_path)], None, everything=False, max_spans=1)).make(str(tmp_path), print)


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ("xyz", "'xyz' is not a trace id: expected up to 32 hex digits"),
        ("f", "none of 2 traces starts with 'f'"),
        ("0A", f"2 traces start with '0A': {TRACE_ID}, {TRACE_ID[:-1]}d; give more digits of the one that is meant"),
    ],
)
def test_the_command_ends_if_no_trace_is_the_one_that_is_asked_for(folder: Path, wanted: str, complaint: str) -> None:
    """With exit code 2, as the other commands: waiting for more spans would not help."""
    (folder / "b.jsonl").write_text(lines(span(3, 400, 500, trace_id=TRACE_ID[:-1] + "d")))
    command = [sys.executable, "-m", "ray_tracing_hooks", "serve", str(folder), "--trace", wanted]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert complaint in " ".join(done.stderr.split())


def test_a_trace_that_is_no_longer_clear_is_told_in_the_page(folder: Path, tmp_path: Path) -> None:
    """What is served already stays: others may have begun since."""
    refused: list[str] = []
    make = _or_refused(Maker(Asked([str(folder)], "0a", everything=False, max_spans=9)).make, refused.append)
    assert make(str(tmp_path), lambda _doing: None).spans == 2
    (folder / "b.jsonl").write_text(lines(span(3, 400, 500, trace_id=TRACE_ID[:-1] + "d")))
    with pytest.raises(ValueError, match="2 traces start with '0a'"):
        make(str(tmp_path), lambda _doing: None)
    assert refused == []


def test_a_child_ends_with_the_server(folder: Path, tmp_path: Path) -> None:
    """Whatever it is doing: here it waits for a file that no process writes."""
    os.mkfifo(folder / "b.jsonl")
    paths = [str(folder / "a.jsonl"), str(folder / "b.jsonl")]
    maker = Maker(Asked(paths, None, everything=False, max_spans=1))
    failures: list[Exception] = []
    begun = threading.Event()

    def make_it() -> None:
        try:
            maker.make(str(tmp_path), lambda _doing: begun.set())
        except (RuntimeError, ValueError) as error:
            failures.append(error)

    thread = threading.Thread(target=make_it)
    thread.start()
    assert begun.wait(60)
    maker.end()
    thread.join(60)
    assert [type(error) for error in failures] == [RuntimeError]
    with pytest.raises(ValueError, match="ended"):
        maker.make(str(tmp_path), print)


def test_what_arrives_makes_a_new_report_when_somebody_looks(serving: server.Server, folder: Path) -> None:
    """Also what is in a new file."""
    until(serving, lambda found: bool(found["version"]))
    with (folder / "a.jsonl").open("a") as file:
        file.write(lines(span(3, 400, 500, 1, name="more")))
    assert until(serving, lambda found: found["version"] == 2)["spans"] == 3
    (folder / "b.jsonl").write_text(lines(span(4, 500, 600, 1, name="new")))
    assert until(serving, lambda found: found["version"] == 3)["spans"] == 4
    assert ask(serving, f"/{serving.token}/report")[2] == b"outer in more new"


def test_files_that_cannot_be_read_are_told_and_tried_again(serving: server.Server, folder: Path) -> None:
    """What was there before is still shown."""
    until(serving, lambda found: bool(found["version"]))
    folder.rename(folder.parent / "away")
    found = until(serving, lambda found: bool(found["problem"]))
    assert "No such file or directory" in found["problem"]
    assert ask(serving, f"/{serving.token}/report")[2] == b"outer in"
    (folder.parent / "away").rename(folder)
    until(serving, lambda found: not found["problem"])


@pytest.mark.parametrize("path", ["", "state", "report", "ask/rows?version=1&rows=0"])
def test_without_the_token_there_is_nothing(serving: server.Server, path: str) -> None:
    """Not even that there would be something."""
    until(serving, lambda found: bool(found["version"]))
    token = serving.token
    for wrong in ("", "x", token[:-1], token + "x", token.swapcase(), "%00", f"x/{token}", "%FC%FC"):
        status, _, content = ask(serving, f"/{wrong}/{path}")
        assert status == 404
        assert token.encode() not in content


def test_a_token_of_other_characters_is_wrong_too(serving: server.Server) -> None:
    """No byte of a request makes it fail otherwise."""
    with socket.create_connection((server.ADDRESS, serving.server_port), timeout=20) as connection:
        connection.sendall(b"GET /\xfc\x80\xff/state HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.0 404")


def test_tokens_are_random(serving: server.Server) -> None:
    """192 bits of them."""
    others = []
    for _ in range(2):
        with server.Server(serving.reports) as other:
            others.append(other.token)
    assert len({serving.token, *others}) == 3
    assert len(serving.token) == 32


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example", "10.0.0.1"],
)
def test_a_request_under_another_name_is_refused(serving: server.Server, host: str | None) -> None:
    """A site that makes its own name lead here (DNS rebinding) sends that name."""
    assert ask(serving, f"/{serving.token}/state", host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:1234", "[::1]:80"])
def test_the_names_of_this_machine_are_taken_with_any_port(serving: server.Server, host: str) -> None:
    """A tunnel has another one."""
    assert ask(serving, f"/{serving.token}/state", host=host)[0] == 200


def test_two_names_are_refused(serving: server.Server) -> None:
    """Of two host names, another party might use the second."""
    request = f"GET /{serving.token}/state HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    with socket.create_connection((server.ADDRESS, serving.server_port), timeout=20) as connection:
        connection.sendall(request.encode())
        assert connection.recv(100).startswith(b"HTTP/1.0 421")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "NONSENSE"])
def test_only_get_is_answered(serving: server.Server, method: str) -> None:
    """Nothing can be changed, and no site is allowed to send requests."""
    status, headers, _ = ask(serving, f"/{serving.token}/state", method=method, body="x")
    assert status == 405
    assert not any(name.lower().startswith("access-control") for name in headers)


def test_head_is_get_without_content(serving: server.Server) -> None:
    """By the specification of HTTP."""
    status, headers, content = ask(serving, f"/{serving.token}/", method="HEAD")
    assert (status, content) == (200, b"")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    "path",
    [
        "a.jsonl", "../a.jsonl", "../../../../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "state/",
        "report/../state", "..", "report%00", "shell.html", "./state", "state/../../../etc/passwd",
    ],
)  # fmt: skip
def test_no_path_is_opened(serving: server.Server, path: str) -> None:
    """Those that are known are no files."""
    status, _, content = ask(serving, f"/{serving.token}/{path}")
    assert status == 404
    assert b"root:" not in content
    assert b"outer" not in content


def test_it_listens_on_this_machine_only(serving: server.Server) -> None:
    """On the address that no other machine reaches."""
    assert serving.socket.getsockname()[0] == "127.0.0.1"


def test_nothing_is_printed_for_a_request(serving: server.Server, capfd: pytest.CaptureFixture[str]) -> None:
    """The address has the token in it. Who asks is not told what answers."""
    _, headers, _ = ask(serving, f"/{serving.token}/state")
    ask(serving, "/nonsense")
    assert ask(serving, "http://[x/")[0] == 400
    assert capfd.readouterr() == ("", "")
    assert headers["Server"] == "ray-tracing-hooks"
