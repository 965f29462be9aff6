"""The page of a comparison: both sides on one scale, and frames that tell more from less."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import MakeReport
from click.testing import CliRunner
from hand_made import HandMade

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.views.page import is_report
from ray_tracing_hooks._insight.views.page.compared import compared


def run_of(slow: float, quick: float) -> HandMade:
    """A run that calls one function after the other."""
    run, driver = HandMade.driven(slow + quick + 10, parts="actor,get,task,wait")
    for name, begin, took in (("slow", 2, slow), ("quick", slow + 5, quick)):
        run.get(driver, [run.task(driver, name, begin, begin + 1, begin + 1 + took)], begin, begin + 1 + took)
    return run


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_sides_are_drawn_on_one_scale_and_more_differs_from_less(report: MakeReport, scheme: str) -> None:
    before, now = (Analysis(run_of(*times).table()) for times in ((40, 40), (80, 20)))
    told = ["Now against <b>before</b>", {"titles": ["CHANGED", "NOW"], "rows": [["<i>slow</i>", "80 ms"]]}]
    page = report(now, comparison=compared([now], [before], told), scheme=scheme).open().page
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == "Comparison"
    view = page.locator("#view-compare")
    assert "Now against <b>before</b>" in view.inner_text()
    assert view.locator("td").all_inner_texts() == ["<i>slow</i>", "80 ms"]
    assert view.locator("[data-path] h3").all_inner_texts() == ["Before: 90.0 ms", "Now: 110 ms"]

    def frames(side: int) -> dict[str, tuple[float, str]]:
        """By label: the width, and the color."""
        found = {}
        for piece in view.locator(f"[data-flame-side='{side}'] .piece").all():
            box = piece.bounding_box()
            assert box is not None
            color = piece.evaluate("element => getComputedStyle(element).backgroundColor")
            found[str(piece.get_attribute("title")).partition(":")[0]] = box["width"], color
        return found

    left, right = frames(0), frames(1)
    assert right["slow"][0] == pytest.approx(2 * left["slow"][0], rel=0.02)
    assert right["quick"][0] == pytest.approx(left["quick"][0] / 2, rel=0.02)
    assert left["slow"][1] == right["quick"][1] != left["quick"][1] == right["slow"][1]


def test_compare_writes_a_page_and_replaces_only_its_own(tmp_path: Path) -> None:
    for name, times in (("before", (40, 40)), ("now", (80, 20))):
        (tmp_path / f"{name}.jsonl").write_bytes(run_of(*times).as_json_lines())
    sides = [str(tmp_path / "before.jsonl"), "--to", str(tmp_path / "now.jsonl")]
    for _ in range(2):
        result = CliRunner().invoke(main, ["compare", *sides, "--page", str(tmp_path / "page.html")])
        assert result.exit_code == 0, result.output
        assert is_report(str(tmp_path / "page.html"))
    other = tmp_path / "other.html"
    other.write_text("mine")
    assert CliRunner().invoke(main, ["compare", *sides, "--page", str(other)]).exit_code == 1
    assert other.read_text() == "mine"


def test_a_page_of_a_part_begins_with_the_whole_run(report: MakeReport) -> None:
    """And claims nothing that the rest of the run may disprove."""
    analysis = Analysis(run_of(40, 40).table())
    analysis.is_part = True
    told = ["The page opens <b>some</b> spans", {"titles": ["FUNCTION", "CALLS"], "rows": [["<i>slow</i>", "9"]]}]
    page = report(analysis, whole=told).open().page
    sections = page.locator("#view-findings section")
    assert sections.first.locator("h2").inner_text() == "The whole run"
    assert "The page opens <b>some</b> spans" in sections.first.inner_text()
    assert sections.first.locator("td").all_inner_texts() == ["<i>slow</i>", "9"]
    assert "Findings" not in sections.locator("h2").all_inner_texts()
    assert page.locator(".fact .label").all_inner_texts() == ["failed spans"]
    assert page.locator("#path").is_disabled()
