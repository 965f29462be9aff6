"""Imported by Python as it starts, before the program: this folder is on the path for ``ray-tracing-hooks run``."""  # noqa: INP001  a folder on the path

import importlib
import sys

from ray_tracing_hooks._run import inside

inside.begin()

# The program's own module of this name, or the error of there being none, which Python passes over.
del sys.modules[__name__]
importlib.import_module(__name__)
