"""Finds running shippers."""

from __future__ import annotations

import os

import psutil


def running_shippers(folder: str) -> list[psutil.Process]:
    """The shippers of spools in or below this folder, without zombies and the shells that start them."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if "ray_tracing_hooks._ship" in (command := process.info["cmdline"] or [])
        and os.path.basename(command[0]).startswith("python")
        and any(part.startswith(folder) for part in command)
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
