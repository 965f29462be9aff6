"""What a shipper inherits of the environment, and when two processes need two shippers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ray_tracing_hooks._control.control import Control
from ray_tracing_hooks._settings import table
from ray_tracing_hooks._ship.log import Secrets
from ray_tracing_hooks._ship.plan import digest, of_delivery
from ray_tracing_hooks._ship.start import environment

ENVIRON = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317",
    "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=secret",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "  ",
    "OTEL_BSP_SCHEDULE_DELAY": "100",
    "OTEL_PROPAGATORS": "b3",
    "https_proxy": "http://proxy",
    "HOME": "/root",
}


class Changing(Mapping[str, str]):
    """As ``os.environ`` while another thread removes a variable: its name was there, its value is not any more."""

    def __iter__(self) -> Iterator[str]:
        return iter(("GONE", *ENVIRON))

    def __len__(self) -> int:
        return len(ENVIRON) + 1

    def __getitem__(self, name: str) -> str:
        return ENVIRON[name]


def test_a_thread_of_the_program_may_remove_a_variable_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    for environ in (Changing(), ENVIRON):
        monkeypatch.setattr(os, "environ", environ)
        assert environment(environ)["HOME"] == "/root"
        assert Control(1, None, {"A": "1"}).over(environ) == ENVIRON
        assert of_delivery(environ) == of_delivery(ENVIRON)
        assert Secrets(environ).mask("the key is secret") == "the key is ********"
        assert table.load(environ, pytest.fail) == table.Settings()


def test_what_exporters_read_is_inherited_and_what_is_empty_is_not() -> None:
    assert of_delivery(ENVIRON) == {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=secret",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "https_proxy": "http://proxy",
    }


@pytest.mark.parametrize("name", ["OTLP_CERTIFICATE", "OTLP_LOGS_CLIENT_CERTIFICATE", "OTLP_CLIENT_KEY"])
def test_a_relative_path_becomes_absolute(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipper runs in another folder."""
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "file.pem").touch()
    monkeypatch.chdir(tmp_path)
    variable = f"OTEL_EXPORTER_{name}"
    assert of_delivery({variable: " keys/file.pem "}) == {variable: str(tmp_path / "keys" / "file.pem")}
    assert of_delivery({variable: "file.pem"}, lambda: f"{tmp_path}/keys")[variable] == f"{tmp_path}/keys/file.pem"
    for other in ("file.pem", "~/file.pem", "/no/such.pem", "-----BEGIN PRIVATE KEY-----\nab//cd", "a\0b"):
        assert of_delivery({variable: other}) == {variable: other}, "it is reported, and masked, as it was written"


def test_in_a_folder_that_has_been_removed_paths_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    environ = {"OTEL_EXPORTER_OTLP_CERTIFICATE": "file.pem", "REQUESTS_CA_BUNDLE": "/no/such.pem"}
    assert of_delivery(environ) == environ


def test_processes_share_a_shipper_unless_it_would_deliver_differently() -> None:
    """The digest distinguishes them, and reveals no secret."""
    one = digest(ENVIRON, ("otlp",))
    assert one == digest({**ENVIRON, "HOME": "/home/me", "OTEL_SERVICE_NAME": "x"}, ("otlp",))
    assert one != digest({**ENVIRON, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://d:4317"}, ("otlp",))
    assert one != digest({**ENVIRON, "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=other"}, ("otlp",))
    assert "secret" not in one
    assert digest(ENVIRON, ("local",)) == digest({}, ("local",)) == ""
