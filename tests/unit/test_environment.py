"""What a shipper inherits of the environment, and when two processes need two shippers."""

from __future__ import annotations

from ray_tracing_hooks._ship.environment import digest, of_delivery

ENVIRON = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317",
    "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=secret",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "  ",
    "OTEL_BSP_SCHEDULE_DELAY": "100",
    "OTEL_PROPAGATORS": "b3",
    "https_proxy": "http://proxy",
    "HOME": "/root",
}


def test_what_exporters_read_is_inherited_and_what_is_empty_is_not() -> None:
    assert of_delivery(ENVIRON) == {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=secret",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "https_proxy": "http://proxy",
    }


def test_processes_share_a_shipper_unless_it_would_deliver_differently() -> None:
    """The digest distinguishes them, and reveals no secret."""
    one = digest(ENVIRON, ("otlp",))
    assert one == digest({**ENVIRON, "HOME": "/home/me", "OTEL_SERVICE_NAME": "x"}, ("otlp",))
    assert one != digest({**ENVIRON, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://d:4317"}, ("otlp",))
    assert one != digest({**ENVIRON, "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=other"}, ("otlp",))
    assert "secret" not in one
    assert digest(ENVIRON, ("local",)) == digest({}, ("local",)) == ""
