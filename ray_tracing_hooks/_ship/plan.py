"""What a shipper is to do, as the process that starts it writes it down."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from ray_tracing_hooks._private import read_file
from ray_tracing_hooks._ship.files import PLAN, write_atomically


class ShipPlan(NamedTuple):
    """The plan of one spool folder, in its ``plan.json``.

    Attributes:
        exporters: Names of the sinks that each get every span.
        local_dir: Where the sink ``local`` writes.
        local_file_max_bytes: Its next file begins before one grows larger than this.
        local_max_bytes: Its oldest files are removed when all together are larger than this.
        spool_max_bytes: The oldest complete segments are removed when what is not delivered is larger than this.
        raylet_socket: Path of the unix socket of the node's raylet: the shipper stays as long as it can be reached.
            With None the shipper ends soon after the last writer.
        log_file: What the shipper logs to, or None for nowhere.
        label: What names of output files begin with.
        jaeger_protocol: How the sink ``jaeger`` sends, as RAY_TRACING_JAEGER_PROTOCOL says.
        jaeger_endpoint: Where to. A driver or worker leaves it out and puts RAY_TRACING_JAEGER_ENDPOINT into the
            shipper's environment, since it may hold a password.
        console_file: Where the exporter ``console`` writes, or None for standard output.
        keep_errors: Whether traces that are not sampled are kept if something in them fails.
        keep_slower: The same for those with a task, method or root span that took so many seconds or more.
        keep_wait: Seconds without news of a trace after which it is dropped, if it is not to be kept.
        metrics: Whether spans are counted too, for metrics.
        environment: The digest of the variables of :mod:`~ray_tracing_hooks._ship.environment`: plans differ where
            these do. Their values are in the shipper's environment, since some are secrets.
        log_records: Whether processes record log records too, for those of the exporters that take them.
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
    jaeger_endpoint: str | None = None
    console_file: str | None = None
    metrics: bool = False
    environment: str = ""
    log_records: bool = False
    keep_errors: bool = False
    keep_slower: float | None = None
    keep_wait: float = 30.0

    def __repr__(self) -> str:
        # Without what may be a secret.
        return f"ShipPlan({self.label}, {', '.join(self.exporters)})"

    @property
    def keeps(self) -> bool:
        """Whether there may be spans to be decided on."""
        return self.keep_errors or self.keep_slower is not None

    @property
    def logs(self) -> str | None:
        """The folder of the logs of the Ray session, or None where there is none."""
        return os.path.dirname(self.log_file) if self.log_file else None

    def store(self, spool_dir: str) -> None:
        """Write the plan for the shipper of this spool folder. Raises OSError."""
        write_atomically(os.path.join(spool_dir, PLAN), json.dumps(self._asdict()))

    @classmethod
    def load(cls, spool_dir: str) -> ShipPlan:
        """The plan in this spool folder. Raises OSError, or ValueError for what is no plan."""
        found = json.loads(read_file(os.path.join(spool_dir, PLAN)))
        try:
            values = {name: value for name, value in found.items() if name in cls._fields}
            return cls(**{**values, "exporters": tuple(found["exporters"])})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{os.path.join(spool_dir, PLAN)!r} is no plan of a shipper: {error!r}") from error
