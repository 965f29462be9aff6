"""The names of spans and attributes are documented in one place."""

from __future__ import annotations

import re
from pathlib import Path

from ray_tracing_hooks import _reference, names

ROOT = Path(__file__).parents[2]
KEYS = {value for name, value in vars(names).items() if name.startswith(("RAY_", "RESOURCE_", "LOG_", "SKYWALKING_"))}


def test_the_document_of_spans_holds_the_table_of_attributes() -> None:
    """Between its two `<!-- names -->` markers."""
    _, table, _ = (ROOT / "docs/spans.md").read_text(encoding="utf-8").split("<!-- names -->")
    assert table.strip() == _reference.markdown_table().strip()


def test_the_document_of_metrics_holds_the_table_of_metrics() -> None:
    """Between its two `<!-- metrics -->` markers."""
    _, table, _ = (ROOT / "docs/metrics.md").read_text(encoding="utf-8").split("<!-- metrics -->")
    assert table.strip() == _reference.metrics_table().strip()


def test_the_document_of_metrics_holds_the_table_of_metrics_of_delivery() -> None:
    """Between its two `<!-- delivery -->` markers."""
    _, table, _ = (ROOT / "docs/metrics.md").read_text(encoding="utf-8").split("<!-- delivery -->")
    assert table.strip() == _reference.delivery_metrics_table().strip()


def test_every_metric_says_what_it_is_in_the_terms_of_opentelemetry() -> None:
    told = [each.name for each in (*_reference.METRICS, *_reference.DELIVERY_METRICS)]
    assert len(told) == len(set(told))
    for each in _reference.DELIVERY_METRICS:
        # Prometheus and OTLP have each description alone.
        assert not re.match(r"(those|their|it|what they)\b", each.meaning)
        assert each.meaning != "`RAY_TRACING_SPOOL_MAX_BYTES`"
    for each in _reference.METRICS:
        if each.instrument == "gauge":
            # Of nodes: the names, units and attributes are those of the conventions for hardware and systems.
            assert re.fullmatch(r"(hw\.gpu|system)(\.[a-z_]+)+", each.name)
            assert each.unit in {"1", "By"}
            assert set(each.attributes) <= {names.HW_ID, names.HW_NAME, names.HW_VENDOR, names.RAY_ACCELERATOR_ID}
            continue
        assert re.fullmatch(r"ray(\.[a-z_]+)+", each.name)
        assert (each.instrument, each.unit) in {("histogram", "s"), ("counter", "{retry}")}
        assert set(each.attributes) <= {key.key for key in _reference.ATTRIBUTES}
    for each in _reference.DELIVERY_METRICS:
        assert re.fullmatch(r"ray(\.[a-z_]+)+", each.name)
        assert each.instrument in {"counter", "gauge"}
        assert each.unit in {"{item}", "{retry}", "{process}", "By", "s"}
        assert all(key.startswith("ray.tracing.") for key in each.attributes)


def test_every_key_of_ours_is_in_the_table_once() -> None:
    told = [each.key for each in _reference.ATTRIBUTES]
    assert len(told) == len(set(told))
    assert set(told) == KEYS | {names.ERROR_TYPE, names.EXIT_CODE}
    assert {each.kind for each in _reference.ATTRIBUTES} <= {
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


def test_what_can_be_imported_is_listed() -> None:
    public = {name for name in vars(names) if not name.startswith("_")} - {"annotations", "re"}
    assert set(names.__all__) == public
