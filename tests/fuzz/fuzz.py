"""Coverage-guided fuzzing with Atheris: ``python tests/fuzz/fuzz.py SECONDS [TARGET [libFuzzer options]]``.

Without a target it takes all, one after the other. An input that shows a defect is written to ``crash-*`` in the
current folder, and the exit code is not 0. So is one that takes longer than ten seconds, or two gibibytes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile

import atheris

with atheris.instrument_imports(include=["ray_tracing_hooks"]):
    from targets import SEEDS, TARGETS, frame

    import ray_tracing_hooks._ray.propagation
    import ray_tracing_hooks._ship.transport.grpc
    import ray_tracing_hooks._ship.transport.http  # noqa: F401  what targets import when they run
    from ray_tracing_hooks._spool.layout import MAGIC


def with_checksums(data: bytes, max_size: int, seed: int) -> bytes:
    """A mutation of a segment whose records have right checksums, so that what is in them is reached."""
    mutated = bytearray(atheris.Mutate(data, max_size))
    if seed % 4:
        position = len(MAGIC)
        out = bytes(mutated[:position])
        while position + 9 <= len(mutated):
            length = int.from_bytes(mutated[position : position + 4], "little")
            payload = bytes(mutated[position + 9 : position + 9 + length])
            out += frame(mutated[position + 8], payload)
            position += 9 + len(payload)
        mutated = bytearray(out + bytes(mutated[position:]))
    return bytes(mutated[:max_size])


def main(arguments: list[str]) -> None:
    if not arguments or not arguments[0].isdigit() or set(arguments[1:2]) - set(TARGETS):
        sys.exit(f"expected how many seconds, and one of {', '.join(TARGETS)}, or nothing for all")
    if len(arguments) == 1:
        for target in TARGETS:
            print(f"==> Fuzzing {target} for {arguments[0]} s", flush=True)
            command = [sys.executable, __file__, *arguments, target]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr[-4000:])
            print(*re.findall("stat::number_of_executed_units.*", done.stderr))
        return
    seconds, name, *options = arguments
    with tempfile.TemporaryDirectory(prefix="rth-corpus-") as corpus:
        for number, seed in enumerate(SEEDS[name]):
            with open(os.path.join(corpus, f"seed-{number}"), "wb") as file:
                file.write(seed)
        arguments = [sys.argv[0], f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=4096"]
        arguments += ["-print_final_stats=1", *options, corpus]
        mutator = {"custom_mutator": with_checksums} if name == "follower" else {}
        atheris.Setup(arguments, TARGETS[name], **mutator)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
