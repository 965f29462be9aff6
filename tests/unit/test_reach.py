"""The step at which a server cannot be reached."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

PROGRAM = """
import fcntl, sys, termios
fcntl.ioctl(int(sys.argv[3]), termios.TIOCSCTTY, 0)  # where OpenSSL would ask
from ray_tracing_hooks._ops import reach
from ray_tracing_hooks._ship.transport.contract import Tls
print(reach.steps([sys.argv[1]], Tls(None, sys.argv[2], sys.argv[2]))[-1])
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
