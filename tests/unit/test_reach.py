"""The step at which a server cannot be reached."""

from __future__ import annotations

import os
import pty
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from ray_tracing_hooks._ops import reach
from ray_tracing_hooks._ship.sink import Tls

PROGRAM = """
import fcntl, sys, termios
fcntl.ioctl(int(sys.argv[3]), termios.TIOCSCTTY, 0)  # where OpenSSL would ask
from ray_tracing_hooks._ops import reach
from ray_tracing_hooks._ship.sink import Tls
print(reach.failed_step(sys.argv[1], Tls(None, sys.argv[2], sys.argv[2])))
"""


def test_the_pass_phrase_of_a_key_is_not_asked_for(tmp_path: Path) -> None:
    """Nobody may be there to answer."""
    certificate = trustme.CA().issue_cert("client")
    plain = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    encrypted = plain.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"secret"),
    )
    file = tmp_path / "client.pem"
    file.write_bytes(encrypted + certificate.cert_chain_pems[0].bytes())
    controller, terminal = pty.openpty()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, address, str(file), str(terminal)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
            pass_fds=(terminal,),
            timeout=60,
            check=False,
        )
    os.close(terminal)
    os.close(controller)
    assert "the certificates of this side cannot be used" in done.stdout, done.stderr


def test_tls_where_none_is_expected_and_none_where_it_is() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(1)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert reach.failed_step(address, None) == reach.Step("TLS", reach.SPEAKS_TLS)
        thread.join()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def hang_up() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        assert reach.failed_step(f"http://127.0.0.1:{port}", None) is None
        failed = reach.failed_step(f"https://127.0.0.1:{port}", Tls())
        assert failed is not None
        assert failed.step == "TLS"
        assert "no TLS there" in failed.error
        thread.join()


def test_a_server_behind_a_proxy_is_not_looked_for_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy resolves its name, and connects."""
    address = "https://collector.invalid:4318"
    monkeypatch.setenv("no_proxy", "")
    assert _step(address) == "name"
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    assert _step(address) is None
    monkeypatch.setenv("no_proxy", "collector.invalid")
    assert _step(address) == "name"


def _step(address: str) -> str | None:
    failed = reach.failed_step(address, None)
    return failed.step if failed is not None else None
