"""What SkyWalking's headers say of this process, and how it writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._formats.skywalking import headers, peers
from ray_tracing_hooks._formats.skywalking.peers import Identity
from ray_tracing_hooks._safety.private import read_file
from ray_tracing_hooks._spool.progress import decode, file_name

if TYPE_CHECKING:
    from ray_tracing_hooks._ship.sinks.skywalking_settings import Settings

_LOOK_SECONDS = 1.0
"""How often a process looks whether its instance has been registered."""
_LOOK_AGAIN_SECONDS = 30.0
"""How often it looks after that: a back end that has lost its storage gives out another id."""


class Local(NamedTuple):
    """What headers say of this process, and how they are written."""

    identity: Identity
    prefix: str = ""
    unsampled: str = "omit"
    correlation: bool = False
    instance_id: int = headers.USER
    is_of_6: bool = False
    spool: str | None = None
    """The spool folder, where the exporter stores the id that the back end has given to this instance."""
    is_reported: bool = False
    """Whether the spans of this process are sent to SkyWalking, so that it knows their names."""

    @classmethod
    def of(
        cls, settings: Settings, resource: Mapping[str, Any], spool: str | None = None, *, is_reported: bool = False
    ) -> Local:
        """By the settings, in a process with this resource."""
        is_of_6 = settings.protocol == headers.SW6
        of_deployment = None if is_of_6 else settings.deployment_service
        return cls(
            peers.identity(resource, settings.service, settings.instance, settings.namespace, of_deployment),
            f"{settings.header_prefix.lower()}-" if settings.header_prefix else "",
            settings.unsampled,
            settings.correlation,
            settings.instance_id or headers.USER,
            is_of_6,
            spool if settings.instance_id is None else None,
            is_reported,
        )


class _Process:
    """What this process is called. A hook says it; in a process without one, the environment does."""

    def __init__(self) -> None:
        self._local: Local | None = None
        self._look_at = 0.0

    def become(self, local: Local | None) -> None:
        self._local, self._look_at = local, 0.0

    def registered(self) -> Local:
        """The same, with the id of the instance as soon as the exporter has registered it."""
        local = self.local()
        if local.spool is None or monotonic() < self._look_at:
            return local
        self._look_at = monotonic() + _LOOK_SECONDS
        try:
            state = decode(read_file(os.path.join(local.spool, file_name("skywalking")))).state
        except (OSError, ValueError, TypeError, KeyError):
            return local  # nothing has been delivered yet
        found = peers.registered_in(state).get(local.identity)
        if found is not None:
            self._look_at = monotonic() + _LOOK_AGAIN_SECONDS
            local = self._local = local._replace(instance_id=found[1])
        return local

    def local(self) -> Local:
        if self._local is None:
            import socket  # noqa: PLC0415  few processes need it

            from ray_tracing_hooks._sdk import resource  # noqa: PLC0415  as above
            from ray_tracing_hooks._settings import table  # noqa: PLC0415  as above
            from ray_tracing_hooks._ship.sinks.skywalking_settings import Settings  # noqa: PLC0415  as above

            settings = table.load(os.environ, _ignore).of(Settings)
            detected = {"service.name": "unknown_service", "host.name": socket.gethostname()}
            self._local = Local.of(settings, detected | resource.from_environment(os.environ))
        return self._local


def _ignore(_problem: str) -> None:
    """A hook reports it."""


_process = _Process()

become = _process.become
"""Set what headers say of this process; None lets the environment say it."""
local = _process.local
"""What headers say of this process."""
registered = _process.registered
"""The same, with the id of the instance as soon as the exporter has registered it."""
