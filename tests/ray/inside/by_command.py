"""Runs a program of the tests by ``ray-tracing-hooks run``."""

import os
import sys

program = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "programs", sys.argv[1])
os.execv(sys.executable, [sys.executable, "-m", "ray_tracing_hooks", "run", program])
