"""``ray-tracing-hooks summary``: shows where the time of a run went, as text on one screen or as JSON."""

from __future__ import annotations

import json

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.engines import DUCKDB, LARGE, MEMORY, RAY, is_for_duckdb
from ray_tracing_hooks._cli.options import (
    address_option,
    examples,
    job_option,
    json_option,
    paths_argument,
    trace_option,
)
from ray_tracing_hooks._cli.screen import print_lines
from ray_tracing_hooks._cli.summary import document, stored, text
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import find


@click.command(
    epilog=examples(
        "ray-tracing-hooks summary",
        "ray-tracing-hooks summary spans/today",
        "ray-tracing-hooks summary --check --json > summary.json",
    ),
)
@paths_argument
@trace_option
@job_option
@click.option("--check", is_flag=True, help="Exit with code 1 if there are findings.")
@click.option(
    "--engine",
    type=click.Choice([MEMORY, DUCKDB, RAY]),
    help=f"What computes it: by default duckdb for a run of a store with {LARGE:,} spans or more, or without "
    "attributes that the analysis reads, since --redact or --no-attributes hid them. This one, and "
    "ray, which is Ray Data on a cluster, show only functions and the findings from when it was stored.",
)
@address_option
@click.option("-v", "--verbose", is_flag=True, help="Also show evidence: span ids and the steps of the critical path.")
@json_option
def summary(
    paths: tuple[str, ...],
    trace_id: str | None,
    job: str | None,
    check: bool,
    engine: str | None,
    address: str | None,
    verbose: bool,
    in_json: bool,
) -> None:
    """Show where the time of a run went, and what to fix first. By default, it is the newest run.

    PATH is a folder or a file of spans, or the spool of a running node; by default RAY_TRACING_LOCAL_DIR, /tmp/spans.

    The critical path is the chain of work and waits that decided when the run ended. It is exact if waits were recorded
    (RAY_TRACING_RAY=+get,wait). Otherwise, the analysis assumes that a caller waits for the call that ended last, and
    the summary says so.
    """
    which = inputs.Which(trace_id, job)
    if address is not None and engine != RAY:
        raise click.UsageError("--address is the cluster of --engine ray")
    files = which.files(paths, fetches=engine != RAY)
    run = which.kept[0] if len(which.kept) == 1 and trace_id is None else None
    if engine in {DUCKDB, RAY} and run is None:
        raise click.UsageError(
            f"--engine {engine} summarizes a run of a store: give the path of a store, and no --trace"
        )
    if run is not None and engine is None and is_for_duckdb(run):
        engine = DUCKDB
    if run is not None and engine in {DUCKDB, RAY}:
        found = stored.document(run, engine, address)
        if in_json:
            click.echo(json.dumps(found))
        else:
            print_lines(stored.lines(found))
        if check and found["findings"]:
            raise click.exceptions.Exit(1)
        return
    part, number = which.of(which.read(files, paths))
    analysis = inputs.analysed(part, which.folders)
    findings = find(analysis)
    if in_json:
        click.echo(json.dumps(document.document(analysis, findings, runs=number, steps=verbose)))
    else:
        print_lines(text.lines(analysis, findings, number, verbose=verbose, trace_url=inputs.trace_url()))
    if check and findings:
        raise click.exceptions.Exit(1)


def print_summary(analysis: Analysis, number: int, *, err: bool = False) -> None:
    """Print what matters most of a run, the newest of ``number`` runs, on standard output or error: the first finding,
    the titles of some others, and where the time went. These are some fifteen lines.
    """
    print_lines(text.brief(analysis, find(analysis), number), err=err)
