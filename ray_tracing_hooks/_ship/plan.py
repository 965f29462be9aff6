"""The settings of a shipper, which the process that starts it stores in a file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ray_tracing_hooks._safety.private import read_file, write_atomically
from ray_tracing_hooks._settings.table import DECLARING, PLANNED, Settings, as_variables, variables_of
from ray_tracing_hooks._settings.values import copied
from ray_tracing_hooks._ship.files import PLAN


class ShipPlan(NamedTuple):
    """The plan of one spool folder, stored in its ``plan.json``.

    Attributes:
        exporters: Names of the sinks; each gets every span.
        settings: Those that ``PLANNED`` of ``_settings/table.py`` names, as far as they apply to these exporters. The
            others have their defaults.
        raylet_socket: The unix socket of the node's raylet: the shipper runs as long as the raylet listens on it.
            With None the shipper ends soon after the last writer.
        log_file: The log file of the shipper, or None for none.
        label: The prefix of the names of output files.
        console_file: The file that the exporter ``console`` writes to, or None for standard output.
        environment: The digest of the variables that :func:`of_delivery` selects: plans differ if these do. The values
            are in the shipper's environment, since some are secrets.
        log_records: Whether processes record log records too, for the exporters that accept them.
    """

    exporters: tuple[str, ...]
    settings: Settings
    raylet_socket: str | None = None
    log_file: str | None = None
    label: str = "spans"
    console_file: str | None = None
    environment: str = ""
    log_records: bool = False

    def __repr__(self) -> str:
        # Without fields that may contain a secret.
        return f"ShipPlan({self.label}, {', '.join(self.exporters)})"

    @property
    def has_metrics(self) -> bool:
        """Whether there are metrics: of calls, of the node, or for Prometheus."""
        settings = self.settings
        return settings.metrics or settings.utilization is not None or settings.prometheus is not None

    @property
    def logs(self) -> str | None:
        """The folder of the logs of the Ray session, or None without one."""
        return os.path.dirname(self.log_file) if self.log_file else None

    @classmethod
    def of(cls, settings: Settings, exporters: tuple[str, ...], environ: Mapping[str, str], **others: Any) -> ShipPlan:
        """The plan of these settings and of the environment of delivery, with the fields that neither of them says."""
        planned = {name: getattr(settings, name) for name in PLANNED}
        planned["utilization"] = planned["utilization"] or None
        if not exporters:
            planned.update(metrics=False, utilization=None, prometheus=None)
        return cls(
            exporters,
            Settings(**planned),
            environment=digest(environ, exporters),
            log_records="otlp" in settings.logs and take_log_records(exporters),
            **others,
        )

    def with_settings(self, **changes: Any) -> ShipPlan:
        return self._replace(settings=Settings(**{**vars(self.settings), **changes}))

    def as_json(self) -> str:
        planned = {name: getattr(self.settings, name) for name in PLANNED}
        return json.dumps({**self._asdict(), "settings": planned}, sort_keys=True)

    def store(self, spool_dir: str) -> None:
        """Write the plan for the shipper of this spool folder. Raises OSError."""
        write_atomically(os.path.join(spool_dir, PLAN), self.as_json().encode())

    @classmethod
    def load(cls, spool_dir: str) -> ShipPlan:
        """The plan in this spool folder. Raises OSError, or ValueError if it is malformed."""
        found = json.loads(read_file(os.path.join(spool_dir, PLAN)))
        try:
            values = {name: value for name, value in found.items() if name in cls._fields}
            settings = {name: value for name, value in found["settings"].items() if name in PLANNED}
            return cls(**{**values, "exporters": tuple(found["exporters"]), "settings": Settings(**settings)})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{os.path.join(spool_dir, PLAN)!r} is not a shipper's plan: {error!r}") from error


_MERGED = tuple(beginning for sink in DECLARING for beginning in variables_of(sink))
"""How the variables begin that the settings of sinks follow. The other settings are in the plan."""

_PREFIXES = (
    "OTEL_EXPORTER_",
    "OTEL_BSP_",
    "OTEL_METRIC",
    "OTEL_PYTHON_EXPORTER_",
    *_MERGED,
)
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
    """The same, with the settings that are passed on in it: they may be from a file, and invalid ones are left out.

    A setting that has its default is not in it, and neither is the standard variable that would apply in its place.
    """
    found = {name: value for name, value in of_delivery(environ, directory).items() if not name.startswith(_MERGED)}
    return found | as_variables(settings)


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


def take_log_records(exporters: Sequence[str]) -> bool:
    return not {"local", "otlp"}.isdisjoint(exporters)
