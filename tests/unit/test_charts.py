"""Charts are well-formed, name what they show, carry no style or script, and survive odd values."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from math import inf, nan

import pytest

from evenbeat import charts
from evenbeat.charts import DurationPoint
from evenbeat.charts.svg import Drawing, ticks, ticks_of_time

SVG = "{http://www.w3.org/2000/svg}"
WEEK = [float(n % 96) for n in range(672)]
NASTY = '</title><script>alert("x")</script>\x00&'

Draw = Callable[..., str]
EACH: dict[str, Draw] = {
    "bars": lambda **more: charts.bars([1, 5, 2], labels=["00", "01", "02"], **more),
    "stacked": lambda **more: charts.stacked([3, 4], [0, 1], labels=["00", "01"], **more),
    "before_after": lambda **more: charts.before_after(WEEK, [40.0] * 672, **more),
    "heatmap": lambda **more: charts.heatmap(WEEK, now=300, **more),
    "durations": lambda **more: charts.durations(
        [DurationPoint(0, 3), DurationPoint(9, 70, ok=False)], median=30, p95=69, **more
    ),
}


def shapes(svg: str, tag: str, name: str) -> list[ET.Element]:
    found = ET.fromstring(svg).iter(f"{SVG}{tag}")  # noqa: S314 - our own output
    return [element for element in found if element.get("class") == f"chart-{name}"]


@pytest.mark.parametrize("draw", EACH.values(), ids=EACH)
def test_a_chart_says_what_it_is(draw: Draw) -> None:
    root = ET.fromstring(draw(title="Load <&>"))  # noqa: S314
    assert root.tag == f"{SVG}svg"
    assert (root.get("role"), root.get("aria-label")) == ("img", "Load <&>")
    assert root[0].tag == f"{SVG}title"
    assert root[0].text == "Load <&>"


@pytest.mark.parametrize("draw", EACH.values(), ids=EACH)
def test_a_chart_obeys_a_strict_content_security_policy(draw: Draw) -> None:
    root = ET.fromstring(draw(title=NASTY))  # noqa: S314
    for element in root.iter():
        assert element.tag.removeprefix(SVG) not in {"script", "style", "image", "use", "a"}
        for name in element.attrib:
            assert name != "style"
            assert not name.startswith("on")
            assert "href" not in name


@pytest.mark.parametrize("draw", EACH.values(), ids=EACH)
def test_a_chart_within_a_page_leaves_its_colours_to_the_style_sheet(draw: Draw) -> None:
    assert "#" not in draw(title="t")
    assert "currentColor" in draw(title="t")


def test_colours_come_along_when_it_stands_alone() -> None:
    alone = EACH["before_after"](title="t", alone=True)
    assert "currentColor" not in alone
    assert "#" in alone
    drawing = Drawing("heat", "t", 10, 10, alone=True)
    drawing.rect("level-3", (0, 0, 1, 1))
    assert "currentColor" not in str(drawing)


@pytest.mark.parametrize(
    "svg",
    [
        charts.bars([], title="t"),
        charts.bars([0, 0], title="t"),
        charts.bars([nan, -3, inf], title="t"),
        charts.stacked([], [], title="t"),
        charts.before_after([], [], title="t"),
        charts.heatmap([], title="t"),
        charts.durations([], title="t"),
    ],
)
def test_nothing_is_said_in_words(svg: str) -> None:
    root = ET.fromstring(svg)  # noqa: S314
    assert [element.text for element in root.iter(f"{SVG}text")] == ["Nothing to show yet"]


def test_the_peak_stands_out_and_has_its_figure() -> None:
    svg = charts.bars([1, 7, 2], title="t", labels=["00", "01", "02"])
    assert len(shapes(svg, "rect", "bar")) == 2
    (peak,) = shapes(svg, "rect", "peak")
    assert peak[0].text == "01: 7 jobs"
    assert [e.text for e in shapes(svg, "text", "heading")] == ["7"]


def test_heights_follow_values() -> None:
    svg = charts.bars([1, 4, 2], title="t")
    heights = [float(e.get("height", 0)) for e in shapes(svg, "rect", "bar")]
    (peak,) = shapes(svg, "rect", "peak")
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.02)
    assert float(peak.get("height", 0)) == pytest.approx(4 * heights[0], abs=0.05)


def test_before_and_after_share_one_scale() -> None:
    svg = charts.before_after([100.0] * 10, [50.0] * 10, title="t")
    tops = []
    for name in ("before", "after"):
        (path,) = shapes(svg, "path", name)
        _, up, rest = path.get("d", "").split("V")
        tops.append(float(rest.removesuffix("Z")) - float(up.split("H")[0]))
    assert tops[1] == pytest.approx(tops[0] / 2, abs=0.02)


def test_no_spike_is_lost_to_the_width() -> None:
    quiet, loud = [1.0] * 10_080, [1.0] * 10_080
    loud[5_000] = 40.0
    svg = charts.before_after(loud, quiet, title="t")
    (path,) = shapes(svg, "path", "before")
    assert "V68" in path.get("d", "")


def test_the_heat_map_covers_the_week_without_gaps() -> None:
    svg = charts.heatmap(WEEK, title="t", width=96 * 2 + 38)
    root = ET.fromstring(svg)  # noqa: S314
    cells = [path for path in root.iter(f"{SVG}path") if "chart-cell" in path.get("class", "")]
    widths = [float(w) for c in cells for w in re.findall(r"h([0-9.]+)v", c.get("d", ""))]
    assert sum(widths) == pytest.approx(7 * 96 * 2)
    assert {c.get("class") for c in cells} == {f"chart-cell level-{n}" for n in range(8)}
    tips = [rect[0].text for rect in root.iter(f"{SVG}rect") if rect.get("class") == "tip"]
    assert len(tips) == 168
    assert tips[2] == "Mon 02:00: up to 11 at once"


def test_a_strip_shows_the_last_runs_with_the_newest_on_the_right() -> None:
    svg = charts.outcome_strip(["failed", *["completed"] * 30, "cancelled"], 20)
    assert 'aria-label="20 runs, 0 failed"' in svg
    assert 'class="other" d="M115 ' in svg
    assert charts.outcome_strip(["failed"], 20).count("<path") == 1


def test_ticks_are_round_numbers() -> None:
    assert ticks(914) == [0, 250, 500, 750]
    assert ticks(0.3) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert ticks(0) == [0]
    assert ticks_of_time(185) == [0, 60, 120, 180]
    assert ticks_of_time(3 * 86_400) == [0, 86_400, 172_800, 259_200]
