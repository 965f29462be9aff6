"""The tab of the page on datasets of Ray Data: operators as a graph and over time, and what iterations waited for."""

from __future__ import annotations

import pytest
from browsing import MakeReport, Report

from ray_tracing_hooks._insight.analysis.pipelines import Operator, Pipeline
from ray_tracing_hooks._insight.analysis.wording import duration
from ray_tracing_hooks._insight.views.redaction import Redaction


def pipeline(opened: Report) -> Pipeline:
    return max(opened.analysis.pipelines.executions, key=lambda each: each.duration)


def row(opened: Report, operator: Operator) -> list[str]:
    """The cells of an operator in the table."""
    lines = opened.page.locator("table.operators tbody tr").all()
    found: list[list[str]] = [line.locator("td").all_text_contents() for line in lines]
    (cells,) = (cells for cells in found if cells[0] == operator.name)
    return cells


def test_the_graph_names_the_operator_that_limits_and_has_the_figures_of_the_summary(report: MakeReport) -> None:
    opened = report("data_bottleneck").open(view="datasets")
    read, embedder = pipeline(opened).operators
    boxes = opened.page.locator(".operator")
    assert [box.locator(".title").text_content() for box in boxes.all()][1] == embedder.name
    assert opened.page.locator(".operator.limit").count() == 1
    limit = opened.page.locator(".operator.limit").text_content() or ""
    assert "limits" in limit
    assert "3,000 rows · 23.4 KiB · 30 blocks" in limit
    assert f"at most {embedder.longest_queue} blocks" in limit
    assert "held back" in (boxes.nth(0).text_content() or "")
    assert opened.page.locator(".pipeline .edge path").count() == len(embedder.inputs) == 1
    assert "Limited by MapBatches(Embedder)" in (opened.page.locator("#view-datasets .viewbar").text_content() or "")
    cells = row(opened, read)
    assert cells[1:6] == ["30", "30", "3,000", "23.4 KiB", "30"]
    assert cells[9] == duration(read.duration)
    (iteration,) = opened.analysis.pipelines.iterations
    waited = opened.page.locator("table.iterations tbody td").all_text_contents()
    assert waited[0] == "iter_batches"
    assert waited[4] == duration(iteration.waited)


@pytest.mark.parametrize("metric", ["running", "queued", "rate"])
def test_each_operator_is_drawn_over_time(report: MakeReport, metric: str) -> None:
    """Its area is where it worked, on the time axis that all views share; below it when it was held back."""
    opened = report("data_backpressure").open(view="datasets")
    page = opened.page
    page.locator(f"[data-metric={metric}]").click()
    opened.settle()
    operators = pipeline(opened).operators
    assert page.locator(".tracks .trackname").count() == page.locator(f".track .area.{metric}").count() == 2
    read = operators[0]
    held = page.locator(".track").nth(0).locator(".held")
    assert held.count() == len(read.intervals)
    assert page.locator(".held.memory").count() >= 1
    first = opened.analysis.table.start[0]
    opened.js(f"store.setRange({read.start - first}, {read.end - first})")
    opened.settle()
    extent = page.locator(".track .extent").nth(0).bounding_box()
    plot = page.locator(".plot").bounding_box()
    assert extent is not None
    assert plot is not None
    assert extent["width"] == pytest.approx(plot["width"] - 231, abs=2)
    # Halfway through, the first operator was held back by memory.
    page.mouse.move(plot["x"] + 231 + extent["width"] / 2, plot["y"] + 40)
    opened.settle()
    tip = page.locator("#tip").text_content() or ""
    assert "running task" in tip
    assert "blocks waiting" in tip
    assert "object store memory (ResourceBudget)" in tip


def test_it_can_be_used_with_the_keyboard(report: MakeReport) -> None:
    """Boxes and names are in the order of tabulation; Enter shows the span, Escape leaves it, W zooms in."""
    opened = report("data_bottleneck").open(view="datasets")
    page = opened.page
    embedder = pipeline(opened).operators[1]
    page.locator(".operator").nth(1).focus()
    page.keyboard.press("Enter")
    opened.settle()
    assert opened.js("store.chosenRow") == embedder.row
    assert page.locator(".operator.chosen .title").text_content() == embedder.name
    assert page.locator(".track.chosen").count() == 1
    assert "ray.data.operator_id" in (page.locator(".details").text_content() or "")
    page.keyboard.press("Escape")
    opened.settle()
    assert opened.js("store.chosenRow") == -1
    page.locator(".trackname button").nth(1).focus()
    page.keyboard.press(" ")
    opened.settle()
    assert opened.js("store.chosenRow") == embedder.row
    page.keyboard.press("w")
    opened.settle()
    assert not opened.js("store.isWhole")
    page.get_by_text("Zoom to it").click()
    opened.settle()
    shown, first = opened.js("store.range"), opened.analysis.table.start[0]
    assert shown == [pipeline(opened).start - first, pipeline(opened).end - first]


def test_of_several_executions_one_is_shown_and_kept_in_the_address(report: MakeReport) -> None:
    opened = report("data_spill").open(view="datasets")
    page = opened.page
    assert page.locator("#view-datasets select option").count() == 2
    assert "materialize" in (page.locator("#view-datasets select option").nth(0).text_content() or "")
    assert "288 MiB spilled" in (page.locator("#view-datasets .note").first.text_content() or "")
    page.locator("#view-datasets select").select_option("1")
    opened.settle()
    assert page.locator(".operator .title").all_text_contents() == ["MapBatches(classify)"]
    assert "dataset=1" in page.url
    again = opened.open(view="datasets", dataset=1)
    assert again.page.locator(".operator .title").all_text_contents() == ["MapBatches(classify)"]


def test_figures_that_are_attributes_can_be_left_out(report: MakeReport) -> None:
    for redaction in (Redaction(attributes=False), Redaction(redact=["ray.data.rows"])):
        opened = report("data_skewed", redaction=redaction).open()
        assert opened.page.locator("#tab-datasets").count() == 0
        assert "4,290 rows" not in (opened.page.locator("#view-findings").text_content() or "")
