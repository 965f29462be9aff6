"""The page in a real browser: what it shows, what it lets do, and what it does not let happen."""

from __future__ import annotations

from collections.abc import Callable
from email.message import EmailMessage
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from browsing import MakeReport

from ray_tracing_hooks._insight.analysis import critical_path as paths
from ray_tracing_hooks._insight.analysis.flame import flame
from ray_tracing_hooks._insight.analysis.functions import waits
from ray_tracing_hooks._insight.analysis.intervals import covered
from ray_tracing_hooks._insight.analysis.lanes import ends_of
from ray_tracing_hooks._insight.analysis.wording import duration
from ray_tracing_hooks._insight.model.span import CONSUMER, INTERNAL, PRODUCER, Event, Link, Span, call_name
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.redaction import Redaction

VIEWS = ("findings", "timeline", "flame", "logical", "physical", "stack", "spans")
SECOND = 10**9


def span(name: str, number: int, parent: int = 0, **more: Any) -> Span:
    """A span of a second, for what a page is made of by hand."""
    given: dict[str, Any] = {
        "trace_id": "1" * 32,
        "span_id": f"{number:016x}",
        "parent_id": f"{parent:016x}" if parent else "",
        "name": name,
        "kind": INTERNAL,
        "start_ns": 1_700_000_000 * SECOND + number,
        "end_ns": 1_700_000_001 * SECOND + number,
        "status_code": 0,
        "status_message": "",
        "attributes": {},
        "events": [],
        "links": [],
        "resource": {"service.name": "made", "process.pid": "7"},
        "scope": "",
        "state": "ended",
    }
    return Span(**given | more)


# --- What it shows ------------------------------------------------------------------------------------------------


def test_every_view_opens(report: MakeReport) -> None:
    """Each view shows the run: pictures have colours, tables and graphs have rows. No network is asked for anything."""
    opened = report("worker_tree").open()
    for number, view in enumerate(VIEWS, 1):
        opened.page.keyboard.press(str(number))
        opened.settle()
        assert opened.page.locator("[role=tabpanel]:visible").get_attribute("id") == f"view-{view}"
        assert opened.page.locator(f"#tab-{view}").get_attribute("aria-selected") == "true"
    assert opened.open(view="timeline").colours("#view-timeline canvas") > 20
    assert opened.open(view="flame").colours("#view-flame canvas") > 10
    assert opened.open(view="logical").page.locator("#view-logical .member").count() >= 8
    assert opened.open(view="physical").page.locator("#view-physical [data-place]").count() >= 8
    assert opened.open(view="stack").page.locator("#view-stack tbody tr").count() >= 3
    assert opened.open(view="spans").page.locator("#view-spans .rows [role=row]").count() >= 20


def test_only_runs_of_a_library_have_its_tab(report: MakeReport) -> None:
    """An address that leads there leads to the findings of another run."""
    other = report("worker_tree")
    for run, tab in (("data_bottleneck", "datasets"), ("waiting_requests", "requests"), ("late_rank", "ranks")):
        other.open(view=tab)
        assert other.page.locator("[role=tab]").count() == len(VIEWS)
        assert other.page.locator("[role=tabpanel]:visible").get_attribute("id") == "view-findings"
        opened = report(run).open()
        opened.page.locator(f"#tab-{tab}").click()
        opened.settle()
        assert opened.page.locator("[role=tabpanel]:visible").get_attribute("id") == f"view-{tab}"


def test_the_page_holds_the_spans_as_they_were_read(report: MakeReport) -> None:
    """Times, names, parents and places are those of the table, to the nanosecond."""
    opened = report("worker_tree").open()
    table = opened.analysis.table
    rows = range(len(table))
    ends = ends_of(table)
    assert opened.js("store.names.length") >= len(set(table.name))
    assert opened.js("Array.from(store.start)") == [start - table.start[0] for start in table.start]
    assert opened.js("Array.from(store.took)") == [ends[row] - table.start[row] for row in rows]
    assert opened.js("Array.from(store.parent)") == list(table.parent)
    assert opened.js("Array.from(store.name, name => store.names[name])") == [table.name_of(row) for row in rows]
    assert opened.js("Array.from(store.name, (_, row) => store.failed(row))") == [table.failed(row) for row in rows]
    calls = opened.analysis.calls
    waited = calls.queued().tolist()
    queued = {calls.execution[call]: waited[call] for call in range(len(calls)) if len(calls.attempts(call)) == 1}
    shown = opened.js("Array.from(store.start, (_, row) => store.queued(row))")
    assert {row: shown[row] for row in queued} == queued


def test_figures_are_those_of_the_summary(report: MakeReport) -> None:
    """What the page says of the time is what the analysis says; the browser adds up flames as Python does."""
    opened = report("bottleneck").open(view="findings", actors=0)
    analysis = opened.analysis
    page = opened.page
    assert page.locator(".fact .value").first.text_content() == duration(analysis.path.wall)
    for kind, ns in analysis.path.kinds.items():
        if ns > 0 and kind not in (paths.RUN, paths.SUBMIT):
            row = page.locator(".columns tr", has=page.locator(f"text='{paths.MEANINGS[kind]}'"))
            assert row.locator("td").last.text_content() == duration(ns), kind
    stacks = flame(analysis.table, ends_of(analysis.table), analysis.is_failed)
    figures = opened.js(
        "(found => [found.spans, found.summed, found.wall, found.own, found.share].map(each => Array.from(each)))"
        "(store.flameFigures())"
    )
    assert figures[:4] == [stacks.spans, stacks.total, stacks.wall, stacks.own]
    assert figures[4] == pytest.approx(stacks.share, abs=2)
    opened.open(view="logical", actors=0)
    for function in analysis.functions:
        cells = page.locator("table.functions tbody tr", has=page.locator(f"text='{function.name}'")).first.locator(
            "td"
        )
        row = cells.all_text_contents()
        assert row[1] == f"{len(function.durations):,}"
        assert row[3] == duration(sum(function.durations))
        assert row[6] == duration(function.durations[-1])


def test_a_frame_of_the_flame_graph_is_as_wide_as_its_label_says(report: MakeReport) -> None:
    """In both modes, for all and for a range; what is in a frame fits into it, and waits are no part of summed time."""
    opened = report("bottleneck").open(view="flame")
    drawn = """(() => {
        const { children, frames: { value, size, total, levels } } = app.views.flame;
        const inside = (id) => children[id].reduce((sum, each) => sum + size[each] * total, 0);
        return levels.flat().map(id => [value[id], size[id] * total, inside(id)]);
    })()"""
    stacks = flame(opened.analysis.table, ends_of(opened.analysis.table), opened.analysis.is_failed)
    waits = stacks.label.index("ray.get")
    for mode, whole in (
        ("wall", sum(stacks.share)),
        ("summed", sum(own for own, is_wait in zip(stacks.own, stacks.is_wait, strict=True) if not is_wait)),
    ):
        opened.page.locator(f"#view-flame [data-key={mode}]").click()
        for shown in (f"[0, {opened.js('store.end')}]", "[1e9, 2e9]"):
            opened.js(f"store.setRange(...{shown})")
            opened.settle()
            frames = opened.js(drawn)
            assert len(frames) > 5
            for value, width, inside in frames:
                assert width == pytest.approx(value, rel=1e-6, abs=10)
                assert inside <= width + 10
            if shown.startswith("[0"):
                assert opened.js("app.views.flame.frames.total") == pytest.approx(whole, rel=1e-4)
        assert (opened.js(f"app.views.flame.frames.value[{waits}]") == 0) == (mode == "summed")


def test_findings_are_the_first_screen(report: MakeReport) -> None:
    """A planted bottleneck is named there, and its spans are a click away."""
    opened = report("bottleneck").open()
    page = opened.page
    assert page.locator("#view-findings").is_visible()
    finding = page.locator("[data-finding=bottleneck-actor]")
    assert finding.get_by_role("heading").inner_text() == "Actor Store#93fc54dc is a bottleneck"
    assert finding.locator(".cost").inner_text().split("\n") == ["50 %", "at most 1.31 s"]
    page.locator("[data-finding=bottleneck-actor] button").first.click()
    assert page.locator("#view-timeline").is_visible()
    assert opened.js("store.matchedRows().length") > 0


def test_a_wait_opens_the_functions_that_it_consists_of(report: MakeReport) -> None:
    """Each kind of wait on the path names its functions, and its spans are a click away."""
    opened = report("bottleneck").open()
    page, path = opened.page, opened.analysis.path
    wait = page.locator("[data-kind=scheduling]")
    assert wait.get_attribute("aria-expanded") == "false"
    wait.focus()
    page.keyboard.press("Enter")
    assert wait.get_attribute("aria-expanded") == "true"
    rows = page.locator("#inside tbody tr")
    assert {"start_up", "Store.__init__"} & {
        each.removeprefix("__main__.") for each in rows.locator("td:first-child").all_text_contents()
    }
    assert path.kinds["scheduling"] == opened.js(
        "store.meta.path.by.find(each => each.kind === 'scheduling').by.reduce((sum, each) => sum + each.ns, 0)"
    )
    rows.first.get_by_role("button", name="Show").click()
    assert page.locator("#view-timeline").is_visible()
    assert opened.js("store.matchedRows().length") > 0
    opened.open(view="findings", part="scheduling")
    assert page.locator("#inside").is_visible()
    wait.click()
    assert not page.locator("#inside").is_visible()


def test_the_tree_of_actors_is_seen_in_each_view(report: MakeReport) -> None:
    """Actors that call others of their class are apart from the start, and that with the planted bottleneck leads."""
    opened = report("tree").open(view="logical")
    page, busiest = opened.page, "Worker#88b20bad"
    boxes = page.locator("#view-logical .box .title")
    assert sum(each.startswith("Worker#") for each in boxes.all_text_contents()) == 5
    called = opened.js(
        """store.meta.graph.calls.map(({ from, to, count, path }) =>
            [store.meta.graph.functions[from].label, store.meta.graph.functions[to].label, count, path])"""
    )
    assert max(called, key=lambda call: call[3])[:3] == ["Worker#65d67c84.process", f"{busiest}.process", 10]
    opened.open(view="flame")
    widest = opened.js(
        "app.views.flame.frames.levels[2].map(id => [app.views.flame.frames.size[id], app.views.flame.label(id)])"
    )
    assert max(widest)[1] == f"{busiest}.process"
    opened.open(view="physical")
    first = page.locator(".boxes .place").first.inner_text()
    assert busiest in first
    assert "called first by Worker#65d67c84" in first
    opened.open(view="timeline")
    order = "app.views.timeline.order.map(([place, level]) => [store.meta.places[place].label, level])"
    levels = [each for each in opened.js(order) if each[0].startswith("Worker#")]
    assert [level for _, level in levels] == [0, 1, 2, 1, 2]
    opened.open(view="stack", at=10 * SECOND)
    assert page.locator("#view-stack tr", has_text=busiest).count() > 0


def test_a_class_is_one_box_or_a_box_for_each_actor(report: MakeReport) -> None:
    """A button switches both graphs, their figures stay those of the run, and the address holds the choice."""
    opened = report("worker_tree").open(view="logical")
    page, button = opened.page, opened.page.locator("#view-logical").get_by_role("button", name="By actor")
    counts = "store.meta.graph.functions.reduce((sum, each) => sum + each.count, 0)"
    total = "store.flameFigures().own.reduce((sum, each) => sum + each, 0)"
    apart = opened.js(f"[{counts}, {total}]")
    assert button.get_attribute("aria-pressed") == "true"
    page.locator(".box .member").nth(3).click()
    button.click()
    opened.settle()
    assert button.get_attribute("aria-pressed") == "false"
    assert opened.js("store.selection") is None
    assert opened.js(f"[{counts}, {total}]") == apart
    assert opened.js("app.views.logical.layout.boxes.filter(box => box.title === 'Worker').length") == 1
    assert "actors=0" in page.url
    page.keyboard.press("3")
    opened.settle()
    assert "Worker.process" in opened.js("app.views.flame.frames.levels.flat().map(id => app.views.flame.label(id))")
    assert opened.open(view="flame", actors=1).js("store.isApart")
    assert not report("bottleneck").open(view="logical").js("store.other")


def test_tables_are_sorted_by_cost_and_as_asked(report: MakeReport) -> None:
    """What took most leads; a click on a title sorts by it, a second one the other way."""
    opened = report("worker_tree").open()
    table = opened.page.locator(".columns section", has_text="Self time").locator("table")
    calls = table.get_by_role("button", name="Calls", exact=True)
    functions = [each for each in opened.analysis.functions if each.executions]
    column = table.locator("tbody tr td:nth-child(2)")
    assert column.all_text_contents() == [duration(each.self_time) for each in functions]
    heading = table.locator("th", has=opened.page.get_by_role("button", name="Self", exact=True))
    assert heading.get_attribute("aria-sort") == "descending"
    calls.click()
    assert heading.get_attribute("aria-sort") == "none"
    counts = [int(each) for each in table.locator("tbody tr td:nth-child(3)").all_text_contents()]
    assert counts == sorted((len(each.durations) for each in functions), reverse=True)
    calls.click()
    assert [int(each) for each in table.locator("tbody tr td:nth-child(3)").all_text_contents()] == counts[::-1]


def test_findings_say_that_filter_and_range_do_not_apply(report: MakeReport) -> None:
    """Their figures are of the whole run, which is said where less is looked at, with the way back."""
    opened = report("bottleneck").open()
    scope = opened.page.locator(".scope")
    assert not scope.is_visible()
    opened.page.locator("#search").fill("Store")
    scope.filter(has_text="the filter “Store” does not apply").wait_for()
    opened.page.keyboard.press("Escape")
    opened.js("store.setRange(0, 1e9)")
    scope.filter(has_text="and the range").wait_for()
    scope.get_by_role("button", name="Whole run").click()
    scope.get_by_role("button", name="Clear filter").click()
    scope.wait_for(state="hidden")
    assert opened.js("[store.keep, store.isWhole]") == [None, True]


def test_the_timeline_says_what_it_shows(report: MakeReport) -> None:
    """A legend tells what colours and shapes mean; buttons zoom as the keys do."""
    opened = report("worker_tree").open(view="timeline")
    page = opened.page
    legend = page.get_by_role("list", name="Legend")
    assert not legend.is_visible()
    page.get_by_role("button", name="Legend").click()
    for meaning in ("A color is a function", "submits a call", "waiting", "failed", "queued calls", "critical path"):
        assert meaning in legend.inner_text()
    whole = opened.js("store.range")
    page.get_by_role("button", name="Zoom in").click()
    near = opened.js("store.range")
    assert near[1] - near[0] < whole[1] - whole[0]
    page.keyboard.press("-")
    page.keyboard.press("+")
    assert opened.js("store.range") == pytest.approx(near)
    page.get_by_role("button", name="Zoom out to the whole run").click()
    assert opened.js("store.range") == whole
    page.get_by_role("button", name="Legend").click()
    assert not legend.is_visible()


def test_a_queue_tells_how_many_wait_where_any_do(report: MakeReport) -> None:
    """Where none waits there is nothing to tell, so nothing covers the bars."""
    opened = report("worker_tree").open(view="timeline")
    page = opened.page
    stage = page.locator("#view-timeline .stage").bounding_box()
    assert stage is not None
    told: dict[bool, set[bool]] = {True: set(), False: set()}
    opened.js("window.queues = app.views.timeline.rows.filter(row => row.kind === 'queue').slice(0, 4)")
    for number in range(4):
        y = opened.js(f"queues[{number}].y + app.views.timeline.headHeight + 5")
        for x in range(260, 1600, 90):
            page.mouse.move(stage["x"] + x, stage["y"] + y)
            at = f"app.views.timeline.queues[queues[{number}].place].at(app.views.timeline.timeAt({x}))"
            tip = page.locator("#tip")
            told[opened.js(at) > 0].add(tip.is_visible() and "waiting" in tip.inner_text())
    assert told == {True: {True}, False: {False}}


def test_the_path_marks_the_calls_that_it_goes_through(report: MakeReport) -> None:
    """An edge of the graph is marked where its calls take a hundredth of the path or more, and says how much."""
    opened = report("worker_tree").open(view="logical")
    path = opened.analysis.path
    calls = opened.js("store.meta.graph.calls")
    assert sum(edge["path"] for edge in calls) <= path.wall
    expected = sorted(f"{100 * edge['path'] / path.wall:.1f} %" for edge in calls if edge["path"] >= path.wall / 100)
    assert 0 < len(expected) < len(calls)
    shown = opened.page.locator("#view-logical .edge.onpath text").all_text_contents()
    assert sorted(text.split(" · ")[-1] for text in shown) == expected
    opened.page.keyboard.press("c")
    opened.settle()
    assert opened.page.locator("#view-logical .onpath").count() == 0


def test_the_critical_path_is_drawn_in_each_view(report: MakeReport) -> None:
    """It is there from the beginning; a key turns it off and on everywhere."""
    opened = report("worker_tree").open(view="timeline")
    assert opened.page.locator("#path").get_attribute("aria-pressed") == "true"
    on_path = opened.js("store.start.reduce((sum, _, row) => sum + store.onPath(row), 0)")
    assert on_path == len({step.row for step in opened.analysis.path.steps if step.row >= 0})
    assert (
        opened.js("store.meta.path.steps.reduce((sum, step) => sum + step.end - step.start, 0)")
        == opened.analysis.path.wall
    )
    for view, mark in (("logical", ".pathmark"), ("physical", ".pathshare"), ("stack", ".badge.path")):
        opened.js(f"app.show('{view}')")
        opened.settle()
        assert opened.page.locator(f"#view-{view} {mark}").count() > 0, view
    opened.page.keyboard.press("c")
    opened.settle()
    assert opened.page.locator("#view-stack .badge.path").count() == 0
    assert "path=0" in opened.page.url
    assert not opened.open(view="timeline", path=0).js("store.showPath")
    opened.page.get_by_role("button", name="Legend").click()
    assert "critical path" not in opened.page.get_by_role("list", name="Legend").inner_text()


def test_what_is_open_shows_as_a_stack_over_processes(report: MakeReport) -> None:
    """The stack of a running program is that of its last moment: what waits, and what it waits for."""
    driver = span("job.py ray.driver", 1, end_ns=0, state="running")
    submission = span("step ray.remote", 2, 1, kind=PRODUCER, end_ns=1_700_000_000 * SECOND + 100)
    execution = span(
        "step ray.remote_worker", 3, 2, kind=CONSUMER, end_ns=0, state="running", resource={"process.pid": "8"}
    )
    ended = span("past", 4, 1, end_ns=1_700_000_000 * SECOND + 900)
    now = 1_700_000_030 * SECOND
    opened = report(Table.of([driver, submission, execution, ended], now)).open(view="stack", path=0)
    lines = opened.page.locator("#view-stack tbody tr")
    assert [line.strip() for line in lines.locator(".stackname").all_text_contents()] == [
        "job.py ray.driverrunning",
        "step ray.remote",
        "steprunning",
    ]
    assert "ended" in (lines.nth(1).get_attribute("class") or "")
    assert lines.nth(2).locator("td").nth(2).text_content() == "30.0 s"


def test_calls_that_wait_for_each_other_are_said(report: MakeReport) -> None:
    """Two tasks, each in a ``ray.get`` for the other, are a circle."""
    first, second = "a" * 40 + "01000000", "b" * 40 + "01000000"

    def task(name: str, number: int, task_id: str, waits_for: str) -> list[Span]:
        common: dict[str, Any] = {"end_ns": 0, "state": "running", "resource": {"process.pid": str(number)}}
        return [
            span(f"{name} ray.remote_worker", number, kind=CONSUMER, attributes={"ray.task_id": task_id}, **common),
            span("ray.get", number + 1, number, attributes={"ray.object_ids": [waits_for + "01000000"]}, **common),
        ]

    ours = {"telemetry.distro.name": "ray_tracing_hooks"}
    spans = [*task("ping", 10, first, second), *task("pong", 20, second, first)]
    for each in spans:
        each.resource = each.resource | ours
    opened = report(Table.of(spans, 1_700_000_030 * SECOND)).open(view="stack")
    warning = opened.page.locator("#view-stack .warning").first.text_content() or ""
    assert "wait for each other" in warning
    assert "ping" in warning
    assert "pong" in warning


# --- Selecting ----------------------------------------------------------------------------------------------------


def test_a_click_on_the_timeline_selects_in_all_views(report: MakeReport) -> None:
    """The span is described beside the views, and marked in each of them."""
    opened = report("worker_tree").open(view="timeline")
    page = opened.page
    row = opened.rows("Worker.process ray.remote_worker")[0]
    opened.js(f"app.views.timeline.focus({row}, true)")
    opened.settle()
    x, y = opened.js(f"(box => [(box.x0 + box.x1) / 2, box.y + box.height / 2])(app.views.timeline.box({row}))")
    stage = page.locator("#view-timeline .stage").bounding_box()
    assert stage is not None
    page.mouse.click(stage["x"] + x, stage["y"] + y)
    assert opened.js("store.selection") == {"type": "span", "row": row}
    details = page.locator(".details")
    assert details.locator("h2").text_content() == "Worker.process ray.remote_worker"
    details.locator("table.attributes").first.wait_for()
    span = opened.analysis.table.span(row)
    text = details.text_content() or ""
    for key, value in span.attributes.items():
        assert key in text
        assert str(value) in text
    assert span.span_id in text
    opened.js("app.show('spans')")
    opened.settle()
    assert page.locator("#view-spans .row.chosen").count() == 1
    opened.js("app.show('physical')")
    opened.settle()
    place = opened.js(f"store.place({row})")
    assert page.locator(f"#view-physical [data-place='{place}']").get_attribute("aria-pressed") == "true"
    opened.js("app.show('logical')")
    opened.settle()
    lit = page.locator("#view-logical .member:not(.unlit)").evaluate_all(
        "all => all.map(each => each.dataset.function)"
    )
    assert [opened.js(f"store.meta.graph.functions[{each}].method") for each in lit] == ["process"]
    assert opened.js(f"app.views.flame.isChosen(store.flame[{row}])")


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ("bottleneck", "not counting waits in ray.get."),
        ("bottleneck_inferred", "counting waits in ray.get too, since they were not recorded"),
    ],
)
def test_the_physical_view_says_whether_waits_count(report: MakeReport, run: str, says: str) -> None:
    note = report(run).open(view="physical").page.locator("#view-physical .note").text_content()
    assert says in (note or "")


def test_accelerators_show_how_much_they_are_used(report: MakeReport) -> None:
    """On their node, by the figures of the summary; not where attributes are not to be shown."""
    opened = report("starved_gpu").open(view="physical")
    (accelerator,) = opened.analysis.accelerators
    box = opened.page.locator("#view-physical .node .accelerator")
    text = box.inner_text()
    assert text.split("\n")[:2] == ["GPU:0", f"{100 * accelerator.busy_share:.1f} %"]
    assert f"held for {duration(accelerator.held)} by Gpu" in text
    assert f"used for {duration(accelerator.busy)}, longest gap {duration(accelerator.longest_gap)}" in text
    opened = report("starved_gpu", redaction=Redaction(attributes=False)).open(view="physical")
    assert opened.page.locator("#view-physical .node .place").count() > 1
    assert opened.page.locator("#view-physical .accelerator").count() == 0


@pytest.mark.parametrize(
    ("view", "choose", "kind"),
    [
        ("logical", "#view-logical .member:has-text('numbers')", "function"),
        ("physical", "#view-physical [data-place='1']", "place"),
        ("flame", "#view-flame tbody tr:nth-child(3) .link", "flame"),
    ],
)
def test_what_is_chosen_elsewhere_is_lit_on_the_timeline(report: MakeReport, view: str, choose: str, kind: str) -> None:
    """A function, a worker or a stack stands for its spans in all other views."""
    opened = report("worker_tree").open(view=view)
    opened.page.locator(choose).click()
    chosen = opened.js("store.selection")
    assert chosen["type"] == kind
    matched = opened.js("store.matchedRows()")
    assert matched
    column = {"function": "store.node[row] - 1", "place": "store.place(row)", "flame": "store.flame[row]"}[kind]
    values = set(opened.js(f"store.matchedRows().map(row => {column})"))
    assert chosen["id"] in values
    assert kind == "flame" or values == {chosen["id"]}
    assert opened.page.locator(".details h2").is_visible()


def test_a_failed_span_tells_its_error(report: MakeReport) -> None:
    """Type, message and traceback of the exception are at the top of the details."""
    opened = report("worker_tree").open(view="timeline")
    table = opened.analysis.table
    row = next(row for row in opened.rows("__main__.flaky ray.remote_worker") if table.failed(row))
    opened.select(row)
    failure = opened.page.locator(".details .failure")
    failure.wait_for()
    assert "FileNotFoundError" in (failure.locator(".kind").text_content() or "")
    assert "no/such/file" in (failure.locator("pre").first.text_content() or "")
    failure.locator("summary").click()
    assert "Traceback" in (failure.locator("details pre").text_content() or "")


def test_a_span_without_an_end_has_no_duration(report: MakeReport) -> None:
    """One that the program never ended, and one that was interrupted; the legend has what is there only."""
    spans = [
        span("job.py ray.driver", 1),
        span("open", 2, 1, attributes={"ray.never_ended": True}),
        span("interrupted", 3, 1, state="lost", end_ns=1_700_000_000 * SECOND + 3),
    ]
    opened = report(spans).open(view="timeline")
    opened.page.get_by_role("button", name="Legend").click()
    legend = opened.page.get_by_role("list", name="Legend")
    assert "not ended" in legend.inner_text()
    assert "submits a call" not in legend.inner_text()
    for row, said in ((1, "unknown: the program never ended it"), (2, "unknown: its end was not recorded")):
        opened.select(row)
        opened.page.locator(".details dd", has_text=said).wait_for()
    opened = report("two_stages").open(view="timeline")
    opened.page.get_by_role("button", name="Legend").click()
    legend = opened.page.get_by_role("list", name="Legend")
    assert "submits a call" in legend.inner_text()
    assert not {"failed", "not ended"} & set(legend.inner_text().split("\n"))


# --- Search, filter, range ----------------------------------------------------------------------------------------


QUERIES: dict[str, Callable[[Table, int], Any]] = {
    "compute": lambda table, row: "compute" in table.name_of(row),
    "-ray.get -ray.wait": lambda table, row: table.name_of(row) not in ("ray.get", "ray.wait"),
    "work*init": lambda table, row: "Worker.__init__" in table.name_of(row),
    ">50ms": lambda table, row: table.duration(row) >= 50_000_000,
    "is:error": lambda table, row: table.failed(row),
    "batch=1": lambda table, row: table.span(row).attributes.get("batch") == 1,
    "worker": lambda table, row: "worker" in call_name(table.name_of(row)).lower(),
    "remote_worker": lambda table, row: "remote_worker" in table.name_of(row),
    "Worker. is:execution": lambda table, row: "Worker." in table.name_of(row) and table.kind[row] == CONSUMER,
}


def test_the_filter_hides_what_does_not_pass(report: MakeReport) -> None:
    """What is filtered out is gone from every view, and the page says how many spans that is."""
    opened = report("worker_tree").open(view="spans")
    table = opened.analysis.table
    for query, keeps in QUERIES.items():
        expected = [row for row in range(len(table)) if keeps(table, row)]
        assert 0 < len(expected) < len(table)
        opened.page.locator("#search").fill(query)
        opened.page.wait_for_function("count => window.insight.store.kept === count", arg=len(expected))
        assert f"{len(table) - len(expected)} hidden" in (opened.page.locator("#hidden").text_content() or "")
        opened.settle()
        assert opened.js("Array.from(app.views.spans.rows).sort((a, b) => a - b)") == expected, query
        assert sorted(opened.js("Array.from(store.order)")) == expected
        assert sum(opened.js("Array.from(store.flameFigures().spans)")) == len(expected)
        opened.page.locator("#clear").click()
        opened.page.wait_for_function("count => window.insight.store.kept === count", arg=len(table))


def test_waits_that_are_hidden_are_no_time_that_code_ran(report: MakeReport) -> None:
    """As many calls run at once with the waits hidden as with spans hidden that are no calls."""
    opened = report("worker_tree").open(view="timeline")
    count = len(opened.analysis.table)
    most = []
    for query in ("-compute", "-ray.get -ray.wait"):
        opened.page.locator("#search").fill(query)
        opened.page.wait_for_function("count => window.insight.store.kept < count", arg=count)
        most.append(opened.js("store.strip().most"))
        opened.page.locator("#clear").click()
        opened.page.wait_for_function("count => window.insight.store.kept === count", arg=count)
    assert most[0] > 1
    assert most[1] == pytest.approx(most[0])


def test_what_nothing_matches_is_said(report: MakeReport) -> None:
    """No view is left empty: it says what nothing matches, and how to be rid of it."""
    opened = report("worker_tree").open(view="timeline")
    page = opened.page
    page.locator("#search").fill("nosuch")
    nothing = page.locator("#nothing")
    nothing.filter(has_text="No span matches “nosuch”").wait_for()
    opened.js("app.show('spans')")
    assert nothing.is_visible()
    opened.js("app.show('findings')")
    assert not nothing.is_visible()
    opened.js("app.show('flame')")
    nothing.get_by_role("button", name="Clear filter").click()
    nothing.wait_for(state="hidden")
    assert opened.js("[store.keep, app.input.value]") == [None, ""]
    assert page.evaluate("document.activeElement.closest('#view-flame') !== null")


def test_a_range_is_selected_with_the_pointer(report: MakeReport) -> None:
    """Shift and drag zooms to a range; shares of workers are then those of the range, without what they waited."""
    opened = report("worker_tree").open(view="timeline")
    page = opened.page
    box = page.locator("#view-timeline .stage").bounding_box()
    assert box is not None
    times = opened.js("[400, 700].map(x => app.views.timeline.timeAt(x))")
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 400, box["y"] + 300)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 320, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert opened.js("store.range") == pytest.approx(times, rel=0.01)
    begin, end = opened.js("store.range")
    busy = opened.js("Array.from(store.placeFigures().busy)")
    table = opened.analysis.table
    origin = table.start[0]
    first, last = origin + round(begin), origin + round(min(end, table.duration(0)))
    frames, begins, ends = (column.tolist() for column in waits(opened.analysis.calls))
    of_driver = [(begun, ended) for frame, begun, ended in zip(frames, begins, ends, strict=True) if not frame]
    waited = covered(of_driver, first, last)
    assert waited
    assert busy[0] == pytest.approx(last - first - waited, abs=10)
    page.locator("#whole").click()
    assert opened.js("store.isWhole")


def test_the_address_holds_what_is_looked_at(report: MakeReport) -> None:
    """View, range, filter, selection, path and moment are in it, and opening it shows the same again."""
    opened = report("worker_tree").open(view="timeline")
    row = opened.rows("compute")[2]
    opened.js("store.setRange(2e8, 3e9)")
    opened.js("app.setFilter('-ray.get')")
    opened.page.wait_for_function("() => window.insight.store.keep")
    opened.js("app.setPath(true)")
    opened.js("app.setMoment(1e9)")
    opened.select(row)
    opened.settle()
    look = "[app.view, store.range.map(Math.round), store.query, store.selection, store.showPath, store.moment]"
    before = opened.js(look)
    address = opened.page.url
    opened.page.goto("about:blank")
    opened.page.goto(address)
    opened.page.wait_for_selector("body[data-ready]")
    assert opened.js(look) == before
    assert before[0] == "timeline"
    assert before[3] == {"type": "span", "row": row}


def test_an_address_that_says_nonsense_shows_the_first_screen(report: MakeReport) -> None:
    """Numbers out of range, unknown views and broken ranges are left aside."""
    opened = report("worker_tree").open(view="nowhere", span=10**9, flame="x", t="9-", at="-3", place=-1, q="%22%22")
    assert opened.page.locator("#view-findings").is_visible()
    assert opened.js("[store.selection, store.isWhole]") == [None, True]


# --- Keyboard, reading aloud, colours -----------------------------------------------------------------------------


def test_the_keyboard_does_what_the_pointer_does(report: MakeReport) -> None:
    """Zoom and move, go from span to span, search, close, help."""
    opened = report("worker_tree").open(view="timeline")
    page = opened.page
    whole = opened.js("store.range")
    page.keyboard.press("w")
    begin, end = opened.js("store.range")
    assert end - begin < whole[1] - whole[0]
    page.keyboard.press("d")
    assert opened.js("store.range")[0] > begin
    page.keyboard.press("a")
    assert opened.js("store.range")[0] == pytest.approx(begin)
    page.keyboard.press("s")
    page.keyboard.press("0")
    assert opened.js("store.range") == whole
    page.locator("#view-timeline .scroller").focus()
    page.keyboard.press("ArrowRight")
    assert opened.js("store.selection.row") == 0
    page.keyboard.press("ArrowDown")
    child = opened.js("store.selection.row")
    assert opened.analysis.table.parent[child] == 0
    page.keyboard.press("ArrowRight")
    after = opened.js("store.selection.row")
    assert opened.analysis.table.start[after] >= opened.analysis.table.start[child]
    page.keyboard.press("ArrowUp")
    assert opened.js("store.selection.row") == 0
    page.keyboard.press("f")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.className") == "details"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("square")
    page.wait_for_function("() => window.insight.store.keep")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert opened.js("store.selection") is None
    page.keyboard.press("Escape")
    page.wait_for_function("() => !window.insight.store.keep")
    page.keyboard.press("?")
    assert page.locator("#helpbox").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#helpbox").is_visible()


def test_the_focus_goes_with_the_view(report: MakeReport) -> None:
    """A key that changes the view takes the focus there; so does a button that leads to another view."""
    opened = report("bottleneck").open()
    page = opened.page
    focused = "document.activeElement.closest('[role=tabpanel]')?.id"
    page.locator("[data-finding] button").first.focus()
    for number, view in enumerate(VIEWS, 1):
        page.keyboard.press(str(number))
        assert page.evaluate(focused) == f"view-{view}"
    page.keyboard.press("1")
    page.locator("[data-finding] button").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(focused) == "view-timeline"
    page.locator(".details .close").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(focused) == "view-timeline"
    page.locator("#tab-timeline").focus()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.id") == "tab-spans"
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.id") == "tab-findings"


def test_what_is_selected_is_read_out(report: MakeReport) -> None:
    """Tabs, tables and controls have names and roles; a selection is announced to screen readers."""
    opened = report("worker_tree").open(view="timeline")
    page = opened.page
    opened.select(0)
    assert "worker_tree" in (page.locator("#live").text_content() or "") or "ray.driver" in (
        page.locator("#live").text_content() or ""
    )
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, [role=application], [role=table]")]
            .filter(each => !(each.getAttribute("aria-label") || each.textContent.trim() || each.title)).length"""
    )
    assert unnamed == 0
    assert page.get_by_role("tab").count() == len(VIEWS)
    assert page.get_by_role("tab", selected=True).text_content() == "Timeline"
    opened.js("app.show('logical')")
    opened.settle()
    assert page.get_by_role("table").first.get_by_role("columnheader").count() == 9
    page.locator("#tab-logical").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#view-physical").is_visible()


def test_it_is_dark_or_light_as_the_system(report: MakeReport) -> None:
    """Pictures too."""
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = report("worker_tree").open(), report("worker_tree", scheme="dark").open(view="timeline")
    assert light.js(background) == "rgb(255, 255, 255)"
    assert dark.js(background) == "rgb(20, 23, 28)"
    assert dark.js("app.colours.surface") == "#14171c"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(report: MakeReport, scheme: str) -> None:
    """Text has the contrast of 4.5 that WCAG asks for, on all grounds that it stands on, in bars too; bars have 3."""
    opened = report("worker_tree", scheme=scheme).open()
    assert opened.js("store.flags.some((flags, row) => store.failed(row) && flags & 64)")
    assert opened.page.evaluate(CONTRASTS) == []


CONTRASTS = """() => {
    const { app, store } = window.insight;
    const { colours } = app;
    const style = getComputedStyle(document.documentElement);
    const value = name => style.getPropertyValue(name).trim();
    const light = colour => {
        const [r, g, b] = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16) / 255)
            .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
    const grounds = ["--surface", "--panel", "--raised"].map(value);
    const inks = ["--ink", "--soft", "--accent", "--bad"].map(value);
    const bad = [];
    const ask = (ground, ink, least = 4.5) =>
        contrast(ground, ink) < least && bad.push([ground, ink, contrast(ground, ink)]);
    for (const ground of grounds) for (const ink of inks) ask(ground, ink);
    const functions = window.insight.store.names.map((_, index) => colours.ofNameIndex(index));
    const hex = colour => "#" + colour.match(/\\d+/g).map(part => Number(part).toString(16).padStart(2, "0")).join("");
    const kinds = [...document.querySelectorAll("td .key")]
        .map(key => hex(getComputedStyle(key).backgroundColor));
    const bars = [...functions, ...kinds, colours.failed, colours.submission, colours.path];
    for (const bar of bars) ask(bar, colours.text(bar));
    for (const bar of [...bars, value("--accent")]) ask(colours.surface, bar, 3);
    const grounded = "surface path,panel path,warn-soft warn,bad-soft bad,accent-soft ink,accent-soft soft";
    for (const pair of grounded.split(",")) {
        ask(...pair.split(" ").map(name => value("--" + name)));
    }
    // Bars of spans, which are pale where they wait or where others are selected, with what stands on them.
    for (let row = 0; row < store.count; row++) {
        const plain = colours.of(row);
        ask(store.flags[row] & 64 ? colours.dimmed(plain) : plain, app.views.timeline.inkOn(plain, row, true));
        ask(colours.dimmed(plain), app.views.timeline.inkOn(plain, row, false));
    }
    return bad;
}"""


AXE = Path(__file__).parent.parent / "javascript" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.mark.skipif(not AXE.exists(), reason="make lint installs axe-core")
@pytest.mark.parametrize(("scheme", "size"), [("light", (1400, 900)), ("dark", (390, 844))])
@pytest.mark.parametrize("run", ["worker_tree", "data_bottleneck", "late_rank", "waiting_requests"])
def test_axe_finds_nothing_wrong(report: MakeReport, run: str, scheme: str, size: tuple[int, int]) -> None:
    """No view breaks a rule of WCAG 2.2 AA that a program can check, with a span selected, and on a phone. Of other
    runs than the first one, those views count that it has not.
    """
    opened = report(run, scheme=scheme, size=size)
    session = opened.page.context.new_cdp_session(opened.page)
    session.send("Page.setBypassCSP", {"enabled": True})
    opened.open()
    opened.page.evaluate(AXE.read_text("utf-8"))
    wrong = []
    for view in opened.js("app.shownTabs.map(([key]) => key)"):
        if run != "worker_tree" and view in VIEWS:
            continue
        opened.js(f"(app.show('{view}'), app.selectSpan(3))")
        opened.settle()
        tags = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"
        found = opened.page.evaluate(f"axe.run(document, {{ runOnly: {tags} }})")
        wrong += [(view, each["id"], each["nodes"][0]["html"]) for each in found["violations"]]
    session.detach()
    assert wrong == []


@pytest.mark.parametrize("run", ["worker_tree", "data_bottleneck", "late_rank", "waiting_requests"])
def test_it_fits_a_phone(report: MakeReport, run: str) -> None:
    """Nothing is cut off at the right of a narrow screen, and each view can be opened."""
    opened = report(run, size=(390, 844)).open()
    for view in opened.js("app.shownTabs.map(([key]) => key)"):
        opened.js(f"app.show('{view}')")
        opened.settle()
        assert opened.js("document.documentElement.scrollWidth") <= 390, view
        assert opened.page.locator(f"#tab-{view}").get_attribute("aria-selected") == "true"
    beyond = """() => [...document.querySelectorAll("header *, .findinglist *, .fact")]
        .filter(each => each.getBoundingClientRect().right > 391).map(each => each.outerHTML)"""
    opened.js("app.show('findings')")
    assert opened.page.evaluate(beyond) == []


def test_ids_come_first_and_can_be_copied(report: MakeReport) -> None:
    """Traces and findings lead to the back end that was named; the findings can be copied as Markdown."""
    opened = report("bottleneck", trace_url="https://jaeger.example/trace/{trace_id}").open(view="timeline", span=2)
    page, trace = opened.page, opened.analysis.table.trace_id_of(2)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    assert page.locator(".details dt").first.inner_text() == "Trace"
    assert page.locator(".details .id a").get_attribute("href") == f"https://jaeger.example/trace/{trace}"
    page.get_by_role("button", name="Copy trace id").click()
    page.locator("#hidden", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == trace
    opened.open(view="findings")
    assert (
        page.get_by_role("link", name="Open the trace").get_attribute("href") == f"https://jaeger.example/trace/{trace}"
    )
    page.get_by_role("button", name="Copy as Markdown").click()
    page.locator("#hidden", has_text="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "1. **Actor Store#93fc54dc is a bottleneck**: at most 1.31 s, 50 % of the run\n   - Actor Store#" in copied
    assert "\n   - → an actor runs its calls one at a time" in copied


def test_findings_lead_to_the_documentation(report: MakeReport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by its kind, if the installed package names its documentation."""
    installed = EmailMessage()
    installed["Project-URL"] = "Source, https://example.org/a/b"
    monkeypatch.setattr(metadata, "metadata", lambda _name: installed)
    assert report("bottleneck").open().page.locator(".evidence a").count() == 0
    installed["Project-URL"] = "Documentation, https://example.org/docs"
    link = report("bottleneck").open().page.locator("[data-finding=bottleneck-actor] a")
    assert link.get_attribute("href") == "https://example.org/docs/reference/findings.md#bottleneck-actor"


# --- Hostile input ------------------------------------------------------------------------------------------------

EVIL = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"'><svg onload=window.hacked=1>",
    "<!--<script>",
    "${window.hacked = 1}",
    "$meta $columns $details $script",
    "javascript:window.hacked=1",
    "\u202egnol\u202c \u200b\u2066 \x1b[31m \u2028 \ud800",
    "__proto__",
    "constructor",
    "x" * (1 << 20),
]


def test_what_spans_say_stays_text(report: MakeReport) -> None:
    """Names, attributes, events, errors, resources and ids of others run nothing, whatever is done with them."""
    spans = [span("$meta $columns $details</title><script> ray.driver", 1, end_ns=1_700_000_099 * SECOND)]
    for number, text in enumerate(EVIL, 2):
        error = dict.fromkeys(("exception.type", "exception.message", "exception.stacktrace"), text)
        spans.append(
            span(
                f"{text}.f ray.remote_worker",
                number,
                1,
                kind=CONSUMER,
                status_code=2,
                status_message=text,
                attributes=dict.fromkeys(("ray.actor_class", "ray.actor_id", "ray.function"), text)
                | {text: text, "list": [text, {text: text}], "big": 2**63, "nan": float("nan")},
                events=[Event(text, 1_700_000_000 * SECOND, {text: text}), Event("exception", 0, error)],
                links=[Link("2" * 32, "3" * 16, {text: text}), Link("1" * 32, f"{1:016x}", {})],
                resource={"host.name": text, "service.name": text, "process.pid": str(number), "ray.node.id": text},
                scope=text,
            )
        )
    opened = report(spans, size=(1200, 800)).open()
    page = opened.page
    for view in VIEWS:
        opened.js(f"app.show('{view}')")
        opened.settle()
        for row in range(len(spans)) if view == "spans" else (3,):
            opened.select(row)
            page.locator(".details section").first.wait_for()
    for query in (EVIL[0], "-" + EVIL[2], f"{EVIL[8]}={EVIL[8]}", "((((", "*" * 300 + "x" + "?" * 300):
        page.locator("#search").fill(query)
        page.wait_for_function("query => window.insight.store.query === query", arg=query)
    opened.settle()
    page.mouse.move(600, 400)
    assert page.evaluate("window.hacked") is None
    assert page.locator("script").count() == 4
    assert page.locator("img, svg[onload]").count() == 0
    page.locator("#search").fill("")
    page.wait_for_function("() => !window.insight.store.keep")
    row = next(row for row in range(len(spans)) if "gnol" in opened.analysis.table.name_of(row))
    opened.select(row)
    shown = page.locator(".details h2").text_content() or ""
    assert "\\u202egnol" in shown
    assert "\u202e" not in page.locator("body").inner_text()


def test_no_other_script_can_run_in_it(report: MakeReport) -> None:
    """The page's policy forbids scripts that it was not made with, and any connection."""
    opened = report("worker_tree").open()
    page = opened.page
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hacked = 1";
            document.body.append(script);
        }"""
    )
    refused = page.evaluate("() => fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')")
    assert page.evaluate("window.hacked") is None
    assert refused == "refused"
    assert opened.wrong
    opened.wrong.clear()
    opened.requests[:] = [url for url in opened.requests if not url.startswith("http")]


def test_deep_circular_and_backward_spans_do_no_harm(report: MakeReport) -> None:
    """100,000 spans deep, parents in a circle, ends before starts: all views open, and the page says so."""
    after = 1_700_000_001 * SECOND
    spans = [span("deep", number, number - 1, end_ns=after - number) for number in range(1, 100_001)]
    spans += [span("circle", 200_001, 200_002), span("circle", 200_002, 200_001)]
    spans.append(span("backward", 200_003, end_ns=5))
    opened = report(spans, most_details=10).open()
    for view in VIEWS:
        opened.js(f"app.show('{view}')")
        opened.settle()
    opened.select(50_000)
    opened.settle()
    quality = opened.page.locator(".quality").text_content() or ""
    assert "cycle of parents" in quality
    assert "ends before it starts" in quality


@pytest.mark.parametrize("spans", [[], [span("alone", 1)], [span("no time", 1, end_ns=1_700_000_000 * SECOND + 1)]])
def test_next_to_nothing_is_shown_as_well(report: MakeReport, spans: list[Span]) -> None:
    """No span, one, and one that took no time."""
    opened = report(spans).open()
    for view in VIEWS:
        opened.js(f"app.show('{view}')")
        opened.settle()
    opened.page.keyboard.press("w")
    opened.page.keyboard.press("ArrowRight")


def test_a_sample_says_that_it_is_one(report: MakeReport) -> None:
    """Of too many spans the page draws some, and says so; failures and the critical path are among them."""
    opened = report("worker_tree", most_spans=80, most_details=40).open()
    assert opened.js("store.count") == 80
    table = opened.analysis.table
    assert f"80 of {len(table)} spans are drawn" in (opened.page.locator(".warning").first.text_content() or "")
    assert opened.js("store.start.reduce((sum, _, row) => sum + store.failed(row), 0)") == sum(
        map(table.failed, range(len(table)))
    )
    assert f"{len(table)} spans" in opened.page.locator(".quality").inner_text()
    opened.select(1)
    assert "attributes of 40 of its 80 spans" in (opened.page.locator(".details .note").text_content() or "")


def test_it_opens_without_anything_else(report: MakeReport, tmp_path: Path) -> None:
    """The page is one file: it works where nothing else is, and printed it shows the findings."""
    opened = report("worker_tree").open()
    assert [path.name for path in tmp_path.iterdir()] == ["report0.html"]
    opened.page.emulate_media(media="print")
    assert opened.page.locator(".report").is_visible()
    assert not opened.page.locator("nav").is_visible()
