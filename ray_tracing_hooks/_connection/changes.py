"""Follows what is set for a cluster while it runs, by ``enable``, ``disable`` and ``configure``, in one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ray_tracing_hooks._connection.folders import make_private_folder, session_folders
from ray_tracing_hooks._control.listener import Listener
from ray_tracing_hooks._safety.guard import describe

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.process import RayProcess

_FOLDER = "control"


class Changes:
    """Applies what is set for the cluster of this process.

    Args:
        known: What is in force here already, as the cluster has said.
        exporters: The exporters of its hook, or None for those of the settings.
        change: Applies it: called with the environment, the exporters and whether spans are recorded; returns the last.
    """

    def __init__(
        self, process: RayProcess, known: bytes, exporters: tuple[str, ...] | None, change: Callable[..., bool]
    ) -> None:
        self._process = process
        self._exporters = exporters
        self._change = change
        self._in_force = 0
        self._until: float | None = None
        """When spans are recorded again, if nothing is recorded for a time only."""
        self._known = b""
        self._listener: Listener | None = None
        if known:
            from ray_tracing_hooks._control.control import Control  # noqa: PLC0415  rare

            with suppress(ValueError):  # it is reported where it is read
                control = Control.decode(known)
                self._in_force, self._until, self._known = control.version, control.until, known

    def follow(self) -> None:
        """Apply changes from now on."""
        folder = control_folder(self._process.session_dir)
        if folder is None:
            return
        listener = Listener(folder, self._apply)
        listener.due = self._until
        self._listener = listener  # before its thread calls us
        if not listener.start():
            self._listener = None

    def end(self) -> None:
        """Apply no more."""
        if self._listener is not None:
            self._listener.end()

    def _apply(self, found: bytes) -> None:
        from ray_tracing_hooks._control.control import Control, acknowledge  # noqa: PLC0415  rare

        assert self._listener is not None
        folder, worker_id = self._listener.folder, self._process.worker_id
        control = Control.decode(found)
        if control.version == self._in_force:
            # It was told when it connected. A command may wait for it nevertheless.
            acknowledge(folder, control, worker_id, if_lately=True)
        if control.version > self._in_force:
            self._known = found
        else:
            # What is in force may have come to its end. Or this node has missed a later change, which the cluster has
            # told this process.
            control = Control.decode(self._known)
        self._listener.due = control.until
        if (control.version, control.until) == (self._in_force, self._until):
            return
        self._in_force, self._until = control.version, control.until
        problem = ""
        try:
            environ, exporters = control.over(os.environ), control.exporters(self._exporters)
            if not self._change(environ, exporters, records=control.records) and control.enabled:
                problem = "nothing is recorded, since there is no exporter: set one with exporters=..."
            elif control.refused:
                problem = f"its version of this package cannot change {', '.join(control.refused)} while it runs"
        except Exception as error:
            problem = describe(error)
            raise
        finally:
            acknowledge(folder, control, worker_id, problem)


def control_folder(session_dir: str) -> str | None:
    """The folder on this node where processes of this user learn of changes; None if there can be none."""
    for folder in session_folders(session_dir):
        if make_private_folder(folder) is None:
            return os.path.join(folder, _FOLDER)
    return None


def over(
    environ: Mapping[str, str], exporters: tuple[str, ...] | None, found: bytes
) -> tuple[Mapping[str, str], tuple[str, ...] | None, bool]:
    """The environment of a process and the exporters of its hook with what is set, and whether spans are recorded.

    Raises ValueError if what is ``found`` cannot be understood.
    """
    from ray_tracing_hooks._control.control import Control  # noqa: PLC0415  rare

    control = Control.decode(found)
    return control.over(environ), control.exporters(exporters), control.records
