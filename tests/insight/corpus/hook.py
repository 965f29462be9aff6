"""The startup hook of the programs' clusters: that of local files, after the imports that ``CORPUS_IMPORTS`` names.

Workers start before the program does, so their imports are no part of its time either. Each leaves a file in the folder
``CORPUS_READY`` when it is ready.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import ray_tracing_hooks.local


def setup() -> None:
    """Import, then trace."""
    for name in filter(None, os.environ.get("CORPUS_IMPORTS", "").split(",")):
        with suppress(ImportError):
            import_module(name)
    ray_tracing_hooks.local.setup()
    Path(os.environ["CORPUS_READY"], str(os.getpid())).touch()
