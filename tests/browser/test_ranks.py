"""The heat map of ranks by steps, and the lanes of how much of a node was in use, in a real browser."""

from __future__ import annotations

from array import array

import pytest
from browsing import MakeReport, Report
from recordings import recorded

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.utilization import Key, Series

CANVAS = "#view-ranks canvas"


def cells(opened: Report) -> list[list[list[int]]]:
    """The colour in the middle of each cell, by rank and step."""
    found: list[list[list[int]]] = opened.page.evaluate(
        """() => {
            const view = window.insight.app.views.ranks, ratio = window.devicePixelRatio, { canvas, attempt } = view;
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
            copy.drawImage(canvas, 0, 0);
            const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
            return attempt.ranks.map(({ took }, rank) => took.map((_, column) => {
                const x = 230 + (column + 0.5) * view.columnWidth, y = 56 + (rank + 0.5) * view.rowHeight;
                const at = 4 * (Math.floor(y * ratio) * canvas.width + Math.floor(x * ratio));
                return [...data.slice(at, at + 3)];
            }));
        }"""
    )
    return found


def distance(one: list[int], other: list[int]) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_late_rank_stands_out(report: MakeReport, scheme: str) -> None:
    """Its own time is dark at each step, and its waiting is pale, while the others waited: on light and dark ground."""
    opened = report("late_rank", scheme=scheme).open(view="ranks")
    opened.settle()
    ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    surface = [int(each) for each in ground.removeprefix("rgb(").removesuffix(")").split(",")]
    shares = []
    for measure in ("Own time", "Waiting"):
        opened.page.get_by_role("button", name=measure).click()
        opened.settle()
        shades = [sum(distance(colour, surface) for colour in row[2:]) for row in cells(opened)]
        shares.append(shades[2] / max(shades[0], shades[1], shades[3]))
    own, waiting = shares
    assert own > 1.2
    assert waiting < 0.7
    assert opened.page.get_by_role("button", name="Waiting").get_attribute("aria-pressed") == "true"


def test_cells_are_reached_by_keyboard_and_lead_to_their_spans(report: MakeReport) -> None:
    """The tab by its number, cells by arrow keys, each read out; Enter selects its report, and again goes to it."""
    opened = report("late_rank").open()
    page = opened.page
    page.keyboard.press("8")
    assert page.locator("[role=tabpanel]:visible").get_attribute("id") == "view-ranks"
    assert page.evaluate("document.activeElement.getAttribute('role')") == "application"
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "End", "ArrowLeft"):
        page.keyboard.press(key)
    assert (page.locator("#live").text_content() or "").startswith("Rank 2, step 11, own time ")
    page.keyboard.press("Enter")
    opened.settle()
    table = opened.analysis.table
    (attempt,) = opened.analysis.train_runs[0].attempts
    step = attempt.ranks[2].steps[10]
    assert opened.js("store.chosenRow") == step.row
    assert page.locator(".details h2, .details h3").first.text_content() == table.name_of(step.row)
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.classList.contains('details')")
    # Above and left of the first cell there is nothing.
    page.keyboard.press("Escape")
    page.locator("#view-ranks .scroller").focus()
    for key in ("Home", *["ArrowUp"] * 5, "ArrowLeft"):
        page.keyboard.press(key)
    assert (page.locator("#live").text_content() or "").startswith("Rank 0, step 1, ")


def test_cells_are_pointed_at_and_clicked(report: MakeReport) -> None:
    opened = report("late_rank").open(view="ranks")
    opened.settle()
    box = opened.page.locator(CANVAS).bounding_box()
    assert box is not None
    width, height = opened.js("[app.views.ranks.columnWidth, app.views.ranks.rowHeight]")
    x, y = box["x"] + 230 + 4.5 * width, box["y"] + 56 + 1.5 * height
    opened.page.mouse.move(x, y)
    tip = opened.page.locator("#tip").inner_text().split("\n")
    assert tip[0] == "Rank 1, step 5"
    assert tip[2].startswith("waited ")
    opened.page.mouse.click(x, y)
    assert opened.js("store.chosenRow") == opened.analysis.train_runs[0].attempts[0].ranks[1].steps[4].row
    opened.page.mouse.move(x, box["y"] + 20)
    assert opened.page.locator("#tip").inner_text().split("\n")[0] == "Step 5"


def test_attempts_are_chosen(report: MakeReport) -> None:
    """The latest first; what failed has a mark."""
    opened = report("rank_fails").open(view="ranks")
    chooser = opened.page.get_by_label("Attempt")
    labels = chooser.locator("option").all_text_contents()
    assert [label.partition(":")[0] for label in labels] == ["job, attempt 1 ✗", "job, attempt 2"]
    assert opened.js("app.views.ranks.attempt.attempt") == 2
    chooser.select_option("0")
    assert opened.js("app.views.ranks.attempt.attempt") == 1
    opened.settle()
    assert opened.colours(CANVAS) > 20


def test_lanes_show_how_much_of_a_node_was_in_use(report: MakeReport) -> None:
    """Below the timeline, with its times: the first half full, then nothing; what is pointed at is said."""
    table = load(span_files([recorded("late_rank")]))
    begin, end = table.start[0], max(table.end)
    node = next(place.node for place in Analysis(table).calls.places if place.node)
    times = array("q", range(begin, end, (end - begin) // 100))
    half = Series(times, array("d", [1.0 if time < (begin + end) // 2 else 0.0 for time in times]))
    opened = report(Analysis(table, None, {Key(node, 0, "GPU:0"): half, Key(node, 2, "CPU"): half}))
    opened.open(view="timeline")
    opened.settle()
    lanes = opened.page.locator(".utilization")
    assert (lanes.get_attribute("aria-label") or "").startswith("In use on average: GPU:0 50.")
    box = lanes.locator("canvas").bounding_box()
    assert box is not None
    for share, said in ((0.25, "100.0 % in use at "), (0.75, "0.0 % in use at ")):
        opened.page.mouse.move(box["x"] + 230 + share * (box["width"] - 230), box["y"] + 30)
        tip = opened.page.locator("#tip").inner_text().split("\n")
        assert tip[0].startswith("CPU · node ")
        assert tip[1].startswith(said)
    opened.js(f"store.setRange({(end - begin) // 2 + 10**9}, {end - begin})")
    opened.settle()
    assert opened.colours(".utilization canvas") > 5
