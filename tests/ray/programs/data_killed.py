"""Starts a driver that is killed while it executes a dataset."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
from ray import data


def wait(batch, marker):
    Path(marker).touch()
    harness.until_killed_in_thread()
    return batch


def main():
    """In the driver that is killed: a function of the dataset says that it runs."""
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    dataset = data.range(1, override_num_blocks=1).map_batches(wait, fn_kwargs={"marker": sys.argv[1]}, num_cpus=0.5)
    dataset.set_name("killed")
    dataset.materialize()


if __name__ == "__main__":
    if sys.argv[1:]:
        harness.run(main)
    else:
        with tempfile.TemporaryDirectory() as folder:
            marker = os.path.join(folder, "runs")
            driver = subprocess.Popen([sys.executable, __file__, marker])
            while not os.path.exists(marker) and driver.poll() is None:
                time.sleep(0.05)
            driver.send_signal(signal.SIGKILL)
            driver.wait()
