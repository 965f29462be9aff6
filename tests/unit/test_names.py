"""The names of spans and attributes are documented in one place."""

from __future__ import annotations

import re
from pathlib import Path

import name_tables

from ray_tracing_hooks import names

ROOT = Path(__file__).parents[2]
KEYS = {
    value
    for name, value in vars(names).items()
    if name.startswith(("RAY_", "GEN_AI_", "RESOURCE_", "LOG_", "SKYWALKING_"))
}


def test_every_metric_says_what_it_is_in_the_terms_of_opentelemetry() -> None:
    metrics = name_tables.metrics()
    assert len(metrics) == len(set(metrics))
    for each in name_tables.delivery_metrics():
        assert re.fullmatch(r"ray(\.[a-z_]+)+", each)
        assert each.instrument in {"counter", "gauge"}
        assert each.unit in {"{item}", "{retry}", "{process}", "By", "s"}
        assert all(key.startswith("ray.tracing.") for key in each.attributes)
        # Prometheus and OTLP have each description alone.
        assert not re.match(r"(those|their|it|what they)\b", each.meaning)
        assert each.meaning != "`RAY_TRACING_SPOOL_MAX_BYTES`"
    for each in set(metrics) - set(name_tables.delivery_metrics()):
        if each.instrument == "gauge":
            # Of nodes: the names, units and attributes are those of the conventions for hardware and systems.
            assert re.fullmatch(r"(hw\.gpu|system)(\.[a-z_]+)+", each)
            assert each.unit in {"1", "By"}
            assert set(each.attributes) <= {names.HW_ID, names.HW_NAME, names.HW_VENDOR, names.RAY_ACCELERATOR_ID}
        else:
            assert re.fullmatch(r"(ray|gen_ai\.server)(\.[a-z_]+)+", each)
            assert (each.instrument, each.unit) in {("histogram", "s"), ("counter", "{retry}")}
            assert set(each.attributes) <= {key.key for key in name_tables.attributes()}


def test_every_key_of_ours_is_in_the_table_once() -> None:
    told = [each.key for each in name_tables.attributes()]
    assert len(told) == len(set(told))
    assert set(told) == KEYS | {names.ERROR_TYPE, names.EXIT_CODE}
    assert {each.kind for each in name_tables.attributes()} <= {
        "string",
        "int",
        "double",
        "boolean",
        "string[]",
        "int[]",
        "double[]",
    }


def test_no_other_module_spells_a_key_out() -> None:
    """They take it from this one, so that it is the same everywhere."""
    spelt = {
        f"{path.name}: {key}"
        for path in (ROOT / "ray_tracing_hooks").rglob("*.py")
        if path.name != "names.py"
        for key in re.findall(r"\"(ray\.[a-z_.]+)\"", path.read_text(encoding="utf-8"))
        if key in KEYS
    }
    assert spelt == set()
