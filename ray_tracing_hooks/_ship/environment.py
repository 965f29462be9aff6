"""The environment variables that configure delivery: a shipper inherits these from the process that starts it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ray_tracing_hooks._values import copied

if TYPE_CHECKING:
    from ray_tracing_hooks._settings import Settings

JAEGER_ENDPOINT = "RAY_TRACING_JAEGER_ENDPOINT"
_OURS = (JAEGER_ENDPOINT, "RAY_TRACING_SKYWALKING_")
"""The settings of this package that are here: the endpoint of Jaeger, which may contain a password, and the many of
SkyWalking. The others are in the plan."""

_PREFIXES = ("OTEL_EXPORTER_", "OTEL_BSP_", "OTEL_METRIC", "OTEL_PYTHON_EXPORTER_", "SW_AGENT_", *_OURS)
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
_FILES = ("_CERTIFICATE", "_CLIENT_KEY", "SSL_CERT_FILE", "_CA_BUNDLE", "_SSL_ROOTS_FILE_PATH")
"""How the names of variables end that are the path of a file."""


def of_delivery(environ: Mapping[str, str], directory: Callable[[], str] = os.getcwd) -> dict[str, str]:
    """The variables that exporters and their transports read. Empty ones are left out, since they count as unset.

    Paths of files below ``directory`` become absolute, since the shipper runs in another one.
    """
    return {
        name: _absolute(value.strip(), directory) if name.upper().endswith(_FILES) else value
        for name, value in copied(environ).items()
        if is_of_delivery(name) and value.strip()
    }


def with_settings(
    environ: Mapping[str, str], settings: Settings, directory: Callable[[], str] = os.getcwd
) -> dict[str, str]:
    """The same, with the settings that are passed on in it: they may be from a file, and invalid ones are left out."""
    from ray_tracing_hooks._settings import as_variables  # noqa: PLC0415  a shipper needs none

    found = {name: value for name, value in of_delivery(environ, directory).items() if not name.startswith(_OURS)}
    if settings.jaeger_endpoint is not None:
        found[JAEGER_ENDPOINT] = settings.jaeger_endpoint
    return found | as_variables(settings, "skywalking_")


def _absolute(path: str, directory: Callable[[], str]) -> str:
    """The path from the root. It stays as it is if there is no such file: it may be a key in place of a path."""
    if path.startswith(("/", "~")):
        return path
    try:
        absolute = os.path.join(directory(), path)
    except OSError:  # the folder has been removed, or cannot be found
        return path
    return absolute if os.path.isfile(absolute) else path


def is_of_delivery(name: str) -> bool:
    return (name.startswith(_PREFIXES) and not name.startswith(_OTHER_SIGNALS)) or name.lower() in _NAMES


def digest(environ: Mapping[str, str], exporters: Sequence[str]) -> str:
    """A digest that differs if delivery is configured differently; empty for whatever only writes local files."""
    if set(exporters) <= {"local"}:
        return ""
    text = json.dumps(sorted(of_delivery(environ).items()))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
