"""Runs a program of the other folder, whose process calls the hook first, as that of a Ray Client may."""

import os
import runpy
import sys

from ray_tracing_hooks import local

if __name__ == "__main__":
    local.setup()
    local.setup()
    del sys.argv[0]
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.argv[0] = os.path.join(folder, "programs", sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
