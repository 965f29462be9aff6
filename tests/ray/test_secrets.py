"""Each secret in the settings is sent only to its own server: one run with a secret in every setting."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from http_server import Answer, Request, http_server, port_of
from support import PROGRAMS, environment

HOOK = "ray_tracing_hooks:setup"


def canary(place: str) -> str:
    """A secret that tells where it was given."""
    return f"cnry{place}Qx7"


PLACES = (
    *("header", "tracesheader", "otlppassword", "otlpquery", "jaegerpassword", "jaegeruserinfo", "jaegerquery"),
    *("zipkin", "vendor", "clientkey", "pastedkey", "proxy", "unknown", "commandline", "yaml"),
)


class Server:
    """Refuses the first request to each path, with all that it was sent in its answer, as some servers do."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.port = 0

    def answer(self, request: Request) -> Answer:
        first = all(path != request.path for path, _, _ in self.received)
        self.received.append((request.path, request.headers, request.body))
        answer = f"you sent {request.path} {request.headers}".encode() if first else b""
        return Answer(503 if first else 202, answer, {"Content-Type": "text/plain"})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    with http_server(server.answer, keeps_alive=True) as url:
        server.port = port_of(url)
        yield server


class Looked(NamedTuple):
    """What there was to see of a run."""

    folder: Path
    variables: dict[str, str]
    output: str
    commands: dict[int, str]
    """The arguments of each process but the driver's."""
    listening: dict[str, int]
    """How many sockets listen, by the kind of process: the driver, the actor, and all shippers."""
    shippers: int
    files: dict[str, bytes]


def variables_with_secrets(folder: Path, port: int) -> dict[str, str]:
    key = folder / "client.key"
    key.write_text(f"-----BEGIN PRIVATE KEY-----\n{canary('clientkey')}\n-----END PRIVATE KEY-----\n")
    (folder / "settings.yaml").write_text(
        f"jaeger_endpoint: http://me:{canary('jaegeruserinfo')}@127.0.0.1:{port}/jaeger?key={canary('jaegerquery')}\n"
        f"jaeger_endpont: {canary('yaml')}\n"
    )
    return {
        "RAY_TRACING_EXPORTERS": "local,otlp,jaeger,zipkin",
        "RAY_TRACING_LOCAL_DIR": str(folder / "spans"),
        "RAY_TRACING_CONFIG": str(folder / "settings.yaml"),
        "RAY_TRACING_JAEGER_PROTOCOL": "thrift-http",
        "RAY_TRACING_TOKEN": canary("unknown"),
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://me:{canary('otlppassword')}@127.0.0.1:{port}?key={canary('otlpquery')}",
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={canary('header')},wrong {canary('header')}",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"x-key={canary('tracesheader')}",
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(key),
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": f"-----BEGIN PRIVATE KEY-----\n{canary('pastedkey')}",
        "OTEL_EXPORTER_JAEGER_USER": "somebody",
        "OTEL_EXPORTER_JAEGER_PASSWORD": canary("jaegerpassword"),
        "OTEL_EXPORTER_ZIPKIN_ENDPOINT": f"http://127.0.0.1:{port}/zipkin?key={canary('zipkin')}",
        "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "process",
        "DD_API_KEY": canary("vendor"),
        "HTTPS_PROXY": f"http://me:{canary('proxy')}@127.0.0.1:1",
        "NO_PROXY": "127.0.0.1",
        "XDG_STATE_HOME": str(folder / "state"),
    }


def run_and_look(folder: Path, ray_folder: Path, hook: str, variables: dict[str, str]) -> Looked:
    env = environment(RTH_HOOK=hook, RAY_TMPDIR=str(ray_folder), RAY_TRACING_FLUSH_TIMEOUT="20", **variables)
    program = [sys.executable, str(PROGRAMS / "held_up.py"), str(folder), f"--token={canary('commandline')}"]
    with open(folder / "output", "wb") as output:
        driver = subprocess.Popen(program, env=env, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
    try:
        deadline = time.monotonic() + 80
        while not (folder / "ready").exists():
            assert driver.poll() is None, (folder / "output").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        processes = {driver.pid: "driver", int((folder / "ready").read_text()): "actor"}
        commands = {}
        for process in psutil.process_iter(["cmdline"]):
            command = " ".join(process.info["cmdline"] or [])
            is_shipper = "ray_tracing_hooks._ship" in command and str(ray_folder) in command
            if is_shipper:
                processes[process.pid] = "shipper"
            # Ray changes the titles of its workers: `ray::Actor`.
            if process.pid != driver.pid and (is_shipper or command.startswith("ray::") or str(ray_folder) in command):
                commands[process.pid] = command
        listening = dict.fromkeys(("driver", "actor", "shipper"), 0)
        for pid, kind in processes.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                sockets = psutil.Process(pid).net_connections("all")
                listening[kind] += sum(each.status == psutil.CONN_LISTEN for each in sockets)
        snapshot = files_of(ray_folder)
        (folder / "go").touch()
        assert driver.wait(90) == 0, (folder / "output").read_text()
    finally:
        driver.kill()
        driver.wait()
    files = {**snapshot, **files_of(ray_folder), **files_of(folder)}
    shippers = list(processes.values()).count("shipper")
    return Looked(folder, variables, (folder / "output").read_text(), commands, listening, shippers, files)


def files_of(folder: Path) -> dict[str, bytes]:
    found = {}
    for where, _, files in os.walk(folder):  # it does not mind what goes meanwhile
        for path in (Path(where, name) for name in files):
            with contextlib.suppress(OSError):
                if path.is_file():
                    found[str(path)] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def traced(server: Server, tmp_path_factory: pytest.TempPathFactory, short_tmp: Any) -> Looked:
    folder = tmp_path_factory.mktemp("traced")
    return run_and_look(folder, short_tmp(), HOOK, variables_with_secrets(folder, server.port))


def leaks(text: str | bytes, *, but: tuple[str, ...] = ()) -> list[str]:
    """The places whose secrets are in this text, as they were given or in base64."""
    raw = text if isinstance(text, bytes) else text.encode()
    forms = {place: canary(place) for place in PLACES if place not in but}
    found = [place for place, secret in forms.items() if secret.encode() in raw]
    for user, place in (("me", "otlppassword"), ("somebody", "jaegerpassword"), ("me", "jaegeruserinfo")):
        if b64encode(f"{user}:{canary(place)}".encode()) in raw:
            found.append(place)
    return found


def test_every_server_got_its_secret_and_its_spans(traced: Looked, server: Server) -> None:
    """Otherwise there was nothing to keep."""
    by_path: dict[str, list[dict[str, str]]] = {}
    for path, headers, _ in server.received:
        by_path.setdefault(path, []).append(headers)
    otlp, jaeger, zipkin = (
        f"/v1/traces?key={canary('otlpquery')}",
        f"/jaeger?key={canary('jaegerquery')}",
        f"/zipkin?key={canary('zipkin')}",
    )
    assert {otlp, jaeger, zipkin} == set(by_path)
    assert all(len(requests) >= 2 for requests in by_path.values()), "the first was refused"
    basic = "Basic " + b64encode(f"me:{canary('otlppassword')}".encode()).decode()
    assert {(each["x-key"], each["authorization"]) for each in by_path[otlp]} == {(canary("tracesheader"), basic)}
    basic = "Basic " + b64encode(f"somebody:{canary('jaegerpassword')}".encode()).decode()
    assert {each["authorization"] for each in by_path[jaeger]} == {basic}


def test_no_secret_is_in_a_span(traced: Looked, server: Server) -> None:
    """Neither in what was sent nor in the files; also not what stood among the program's arguments."""
    bodies = [gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body for _, _, body in server.received]
    assert len(bodies) >= 6
    assert [place for body in bodies for place in leaks(body)] == []
    spans = [text for path, text in traced.files.items() if path.endswith(".jsonl")]
    assert spans
    for text in spans:
        assert leaks(text) == []
        keys = {
            attribute["key"]
            for line in text.splitlines()
            for each in json.loads(line)["resourceSpans"]
            for attribute in each["resource"]["attributes"]
        }
        assert "process.owner" in keys, "the detector of processes was asked"
        assert not keys & {"process.command_args", "process.command_line"}


def test_no_secret_is_in_an_output_or_a_log(traced: Looked) -> None:
    """Though every server has quoted its own."""
    assert (
        "you sent"
        in traced.output
        + b"".join(text for path, text in traced.files.items() if "ray_tracing_hooks-" in path).decode()
    )
    assert leaks(traced.output) == []
    assert "PEM" in traced.output, "a key in place of a path is told, and not shown"


def test_no_secret_is_in_a_file(traced: Looked) -> None:
    """Of ours or of Ray's, in the session, while the program runs and after it. Ray itself logs command lines."""
    given = {str(traced.folder / name) for name in ("client.key", "settings.yaml")}
    ours = [path for path in traced.files if "ray_tracing_hooks" in path]
    assert [path for path in ours if path.endswith("plan.json")]
    assert [path for path in ours if path.endswith(".log")]
    found = {
        path: places
        for path, text in traced.files.items()
        if path not in given
        and (places := leaks(text, but=() if "ray_tracing_hooks" in path or "/traced" in path else ("commandline",)))
    }
    assert found == {}


def test_no_secret_is_among_the_arguments_of_a_process(traced: Looked) -> None:
    """Everybody can see them. The driver's own were the user's choice."""
    assert (traced.shippers, traced.listening["shipper"]) == (1, 0)
    assert len(traced.commands) > 3
    assert {pid: places for pid, command in traced.commands.items() if (places := leaks(command))} == {}


@pytest.mark.slow  # all of it once more, untraced; the shipper, which alone could, is looked at in any case
def test_nothing_of_ours_listens(traced: Looked, tmp_path: Path, short_tmp: Any) -> None:
    """Ray's processes listen, with tracing as many as without; the shipper does not."""
    untraced = run_and_look(tmp_path, short_tmp(), "", {})
    print("listening sockets", {"traced": traced.listening, "untraced": untraced.listening})
    assert traced.listening == untraced.listening
    assert untraced.shippers == 0


def test_commands_show_no_secret(traced: Looked, server: Server) -> None:
    """``config`` and ``replay`` with the same settings, also to a server that quotes what it is sent."""
    env = environment(**traced.variables)
    server.received.clear()
    for arguments in (
        ["config"],
        ["config", "--json"],
        ["replay", "--exporter", "otlp", "--exporter", "jaeger", "--exporter", "zipkin", str(traced.folder / "spans")],
    ):
        command = [sys.executable, "-m", "ray_tracing_hooks", *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert leaks(done.stdout + done.stderr) == [], arguments
        assert ("you sent" in done.stderr) == (arguments[0] == "replay"), done.stderr
    assert {
        path: places
        for path, text in files_of(traced.folder).items()
        if ".replay" in path and (places := leaks(text))
    } == {}  # fmt: skip
