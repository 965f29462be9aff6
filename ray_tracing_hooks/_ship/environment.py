"""The environment variables that configure delivery: a shipper inherits these from the process that starts it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

# RAY_TRACING_JAEGER_ENDPOINT may contain a password. Settings without secrets are in the plan instead.
_PREFIXES = ("OTEL_EXPORTER_", "OTEL_BSP_", "OTEL_METRIC", "OTEL_PYTHON_EXPORTER_", "RAY_TRACING_JAEGER_ENDPOINT")
_OTHER_SIGNALS = ("OTEL_EXPORTER_OTLP_PROFILES_", "OTEL_METRICS_EXPORTER")
_NAMES = frozenset(
    {
        "http_proxy",
        "https_proxy",
        "grpc_proxy",
        "all_proxy",
        "no_proxy",
        "no_grpc_proxy",
        "ssl_cert_file",
        "ssl_cert_dir",
        "requests_ca_bundle",
        "curl_ca_bundle",
        "grpc_default_ssl_roots_file_path",
    }
)


def of_delivery(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that exporters and their transports read. Empty ones are left out, since they count as unset."""
    return {name: value for name, value in environ.items() if is_of_delivery(name) and value.strip()}


def is_of_delivery(name: str) -> bool:
    return (name.startswith(_PREFIXES) and not name.startswith(_OTHER_SIGNALS)) or name.lower() in _NAMES


def digest(environ: Mapping[str, str], exporters: Sequence[str]) -> str:
    """A digest that differs if delivery is configured differently; empty for whatever only writes local files."""
    if set(exporters) <= {"local"}:
        return ""
    text = json.dumps(sorted(of_delivery(environ).items()))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
