"""``ray-tracing-hooks demo``, as somebody tries it who has only installed it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import environment
from terminal import STYLE, in_terminal

from ray_tracing_hooks._insight.views.page import is_report

OF_ANOTHER_JOB = {
    "OTEL_SDK_DISABLED": "true",
    "OTEL_TRACES_SAMPLER": "always_off",
    "RAY_ADDRESS": "192.0.2.1:6379",
    "RAY_TRACING_EXPORTERS": "otlp",
}
WITH_WORKERS_AT_HAND = {"RAY_prestart_worker_first_driver": "1", "RAY_enable_worker_prestart": "1"}
"""As Ray is by default, and not as in other tests."""


@pytest.mark.slow(older_rays=True)  # `make demo` is the same
def test_it_finds_the_bottleneck_and_that_it_is_gone(tmp_path: Path) -> None:
    """On a screen of 80 columns, whatever is set for other programs. All that it names is there.

    Only the start of workers may cost more than the bottleneck, where tests beside this one keep the processors busy.
    """
    printed = in_terminal(80, "demo", "--output", tmp_path, **environment(**OF_ANOTHER_JOB, **WITH_WORKERS_AT_HAND))
    lines = [STYLE.sub("", line.removeprefix("\x1b[K")) for line in printed if "\x1b[Krunning " not in line]
    text = "\n".join(lines)
    found = [line[4:] for line in lines if re.match(r" \d\. ", line)]
    first = next(line for line in found if not line.startswith("Starting worker processes"))
    assert re.match(r"Actor Rates#\w+ is a bottleneck: at most ", first)
    assert "or make them async if they wait" in " ".join(text.split())
    assert "   +    async def rate(self, currency):" in lines
    assert [line.split()[-1] for line in lines if line.startswith(" bottleneck-actor Rates")] == ["gone"]
    assert len(lines) < 50
    named = [line.strip() for line in lines if line.startswith("   /")]
    assert [os.path.basename(path) for path in named] == ["slow.py", "fast.py"]
    assert all(map(os.path.exists, named))
    assert not [line for line in lines if len(line) > 80 and "/" not in line]
    assert f"Open in a browser: {tmp_path / 'report.html'}" in lines
    assert is_report(str(tmp_path / "report.html"))
    (next_one,) = [line.partition("ray-tracing-hooks ")[2].split() for line in lines if line.startswith("Every call:")]
    command = [sys.executable, "-m", "ray_tracing_hooks", *next_one]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Rates.rate x200" in shown
