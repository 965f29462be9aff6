"""``python -m ray_tracing_hooks``: the command line."""

from ray_tracing_hooks._cli import main

main(prog_name="python -m ray_tracing_hooks")
