"""The settings of a shipper, which the process that starts it stores in a file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_tracing_hooks._private import read_file, write_atomically
from ray_tracing_hooks._ship.files import PLAN
from ray_tracing_hooks._values import copied

if TYPE_CHECKING:
    from ray_tracing_hooks._settings import Settings


class ShipPlan(NamedTuple):
    """The plan of one spool folder, stored in its ``plan.json``.

    Attributes:
        exporters: Names of the sinks; each gets every span.
        local_dir: The folder that the sink ``local`` writes to.
        local_file_max_bytes: It begins a new file before one grows larger than this.
        local_max_bytes: It removes its oldest files when all together are larger than this.
        spool_max_bytes: The oldest complete segments are removed when the undelivered ones are larger than this.
        raylet_socket: The unix socket of the node's raylet: the shipper runs as long as the raylet listens on it.
            With None the shipper ends soon after the last writer.
        log_file: The log file of the shipper, or None for none.
        label: The prefix of the names of output files.
        jaeger_protocol: The protocol of the sink ``jaeger``, as in RAY_TRACING_JAEGER_PROTOCOL.
        console_file: The file that the exporter ``console`` writes to, or None for standard output.
        keep_errors: Whether traces that are not sampled are kept if something in them fails.
        keep_slower: The same for those with a task, method or root span that took this many seconds or more.
        keep_wait: Seconds without activity after which a trace that is not kept is dropped.
        metrics: Whether metrics are computed from the spans.
        utilization: Seconds between samples of how much of the node is in use, for metrics; None for no samples.
        environment: The digest of the variables of :mod:`~ray_tracing_hooks._ship.plan`: plans differ if these
            do. The values are in the shipper's environment, since some are secrets.
        log_records: Whether processes record log records too, for the exporters that accept them.
        group: The group that may read the files of the sink ``local`` and the log; None: only this user may.
        prometheus: Where the figures of delivery are shown to Prometheus, as in RAY_TRACING_PROMETHEUS.
    """

    exporters: tuple[str, ...]
    local_dir: str
    local_file_max_bytes: int
    local_max_bytes: int
    spool_max_bytes: int
    raylet_socket: str | None = None
    log_file: str | None = None
    label: str = "spans"
    jaeger_protocol: str = "otlp-grpc"
    console_file: str | None = None
    metrics: bool = False
    utilization: float | None = None
    environment: str = ""
    log_records: bool = False
    keep_errors: bool = False
    keep_slower: float | None = None
    keep_wait: float = 30.0
    group: int | None = None
    prometheus: str | None = None

    def __repr__(self) -> str:
        # Without fields that may contain a secret.
        return f"ShipPlan({self.label}, {', '.join(self.exporters)})"

    @property
    def has_metrics(self) -> bool:
        """Whether there are metrics, of calls or of the node."""
        return self.metrics or self.utilization is not None

    @property
    def keeps(self) -> bool:
        """Whether tail sampling is on."""
        return self.keep_errors or self.keep_slower is not None

    @property
    def logs(self) -> str | None:
        """The folder of the logs of the Ray session, or None without one."""
        return os.path.dirname(self.log_file) if self.log_file else None

    @classmethod
    def of(cls, settings: Settings, exporters: tuple[str, ...], environ: Mapping[str, str], **others: Any) -> ShipPlan:
        """The plan of these settings and of the environment of delivery, with the fields that neither of them says."""
        return cls(
            exporters=exporters,
            local_dir=settings.local_dir,
            local_file_max_bytes=settings.local_file_max_bytes,
            local_max_bytes=settings.local_max_bytes,
            spool_max_bytes=settings.spool_max_bytes,
            jaeger_protocol=settings.jaeger_protocol,
            group=settings.group,
            environment=digest(environ, exporters),
            **others,
        )

    def delivered_as(self, other: ShipPlan) -> ShipPlan | None:
        """This plan with the addresses and credentials of another one; None if the exporters are not the same."""
        if self.exporters != other.exporters:
            return None
        return self._replace(environment=other.environment, jaeger_protocol=other.jaeger_protocol)

    def store(self, spool_dir: str) -> None:
        """Write the plan for the shipper of this spool folder. Raises OSError."""
        write_atomically(os.path.join(spool_dir, PLAN), json.dumps(self._asdict()).encode())

    @classmethod
    def load(cls, spool_dir: str) -> ShipPlan:
        """The plan in this spool folder. Raises OSError, or ValueError if it is malformed."""
        found = json.loads(read_file(os.path.join(spool_dir, PLAN)))
        try:
            values = {name: value for name, value in found.items() if name in cls._fields}
            return cls(**{**values, "exporters": tuple(found["exporters"])})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{os.path.join(spool_dir, PLAN)!r} is not a shipper's plan: {error!r}") from error


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
