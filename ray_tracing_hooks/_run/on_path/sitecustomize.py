"""Imported at startup, before the program: ``ray-tracing-hooks run`` puts this folder on the path."""  # noqa: INP001  a folder on the path

import importlib
import sys

from ray_tracing_hooks._run import inside

inside.begin()

# Import the program's own module of this name; if there is none, Python ignores the ImportError.
del sys.modules[__name__]
importlib.import_module(__name__)
