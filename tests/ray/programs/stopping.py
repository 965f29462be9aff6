"""Starts a node and a driver on it, and ends them with ``ray stop`` and SIGTERM. Prints what processes are left then.

``ray stop`` ends each process of Ray's that it can see: this is to be run in a PID namespace of its own.
"""

import os
import subprocess
import sys
import time

import psutil
from recording import heard

RAY = os.path.join(os.path.dirname(sys.executable), "ray")


def others():
    found = [process for process in psutil.process_iter() if process.pid not in {1, os.getpid()}]
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]


def main(folder, *options):
    assert os.getppid() == 1, "not in a PID namespace of its own"
    start = ["start", "--head", "--num-cpus=1", "--include-dashboard=false", "--disable-usage-stats", "--port=0"]
    start += [f"--tracing-startup-hook={os.environ['RTH_HOOK']}", f"--temp-dir={os.environ['RAY_TMPDIR']}"]
    start += ["--min-worker-port=0", "--max-worker-port=0"]
    subprocess.run([RAY, *start], check=True)
    program = os.path.join(os.path.dirname(__file__), "endings.py")
    # The newest cluster of this temporary folder.
    driver = subprocess.Popen([sys.executable, program, "wait", folder], env={**os.environ, "RTH_ADDRESS": "auto"})
    heard(folder, "driver wait.pid")
    subprocess.run([RAY, "stop", *options], check=True)
    # It does not end what it does not know for a process of Ray's.
    driver.terminate()
    print("DRIVER", driver.wait(60), flush=True)
    deadline = time.monotonic() + 60
    while (left := others()) and time.monotonic() < deadline:
        time.sleep(0.1)
    print("LEFT", [process.cmdline() for process in left], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
