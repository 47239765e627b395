"""Charts are well-formed, name what they show, and carry neither style nor script."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from evenbeat import charts
from evenbeat.charts import DurationPoint
from evenbeat.charts.svg import ticks, ticks_of_time
from evenbeat.dashboard import rendering

SVG = "{http://www.w3.org/2000/svg}"
WEEK = [float(n % 96) for n in range(672)]
NASTY = '</title><script>alert("x")</script>\x00&'

Draw = Callable[..., str]
EACH: dict[str, Draw] = {
    "bars": lambda values=(1, 5, 2), **more: charts.bars(
        values, labels=["00", "01", "02"], unit="jobs", width=720, height=200, **more
    ),
    "stacked": lambda **more: charts.stacked([3, 4], [0, 1], labels=["00", "01"], **more),
    "before_after": lambda before=WEEK, after=(40.0,) * 672, **more: charts.before_after(
        before, after, notes=("before", "after"), **more
    ),
    "heatmap": lambda **more: charts.heatmap(WEEK, unit="at once", now=300, **more),
    "durations": lambda **more: charts.durations(
        [DurationPoint(0, 3, True, "3 s"), DurationPoint(9, 70, False, "70 s")],
        lines={"median": 30, "p95": 69},
        labels=(),
        **more,
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
    style = (Path(rendering.__file__).parent / "static" / "evenbeat.css").read_text()
    for name in set(re.findall(r'<[a-z]+ class="(chart-[a-z0-9-]+)', draw(title="t"))):
        assert re.search(rf"\.{name}\b(?!-)", style) or name == "chart-level-7"


def test_colours_come_along_when_it_stands_alone() -> None:
    alone = ET.fromstring(EACH["before_after"](title="t", alone=True))  # noqa: S314
    painted = [one for one in alone.iter() if (one.get("class") or "").startswith("chart-")]
    assert painted
    assert all("#" in (one.get("fill") or one.get("stroke") or "") for one in painted)


@pytest.mark.parametrize(
    "svg",
    [
        EACH["bars"]([0, 0, 0], title="t"),
        charts.stacked([0], [0], labels=["00"], title="t"),
        EACH["before_after"]([], [], title="t"),
    ],
)
def test_nothing_is_said_in_words(svg: str) -> None:
    root = ET.fromstring(svg)  # noqa: S314
    assert [element.text for element in root.iter(f"{SVG}text")] == ["Nothing to show yet"]


def test_the_peak_stands_out_and_has_its_figure() -> None:
    svg = EACH["bars"]([1, 7, 2], title="t")
    assert len(shapes(svg, "rect", "bar")) == 2
    (peak,) = shapes(svg, "rect", "peak")
    assert peak[0].text == "01: 7 jobs"
    assert [e.text for e in shapes(svg, "text", "heading")] == ["7"]


def test_heights_follow_values() -> None:
    svg = EACH["bars"]([1, 4, 2], title="t")
    heights = [float(e.get("height", 0)) for e in shapes(svg, "rect", "bar")]
    (peak,) = shapes(svg, "rect", "peak")
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.02)
    assert float(peak.get("height", 0)) == pytest.approx(4 * heights[0], abs=0.05)


def test_before_and_after_share_one_scale() -> None:
    svg = EACH["before_after"]([100.0] * 10, [50.0] * 10, title="t")
    tops = []
    for name in ("before", "after"):
        (path,) = shapes(svg, "path", name)
        _, up, rest = path.get("d", "").split("V")
        tops.append(float(rest.removesuffix("Z")) - float(up.split("H")[0]))
    assert tops[1] == pytest.approx(tops[0] / 2, abs=0.02)


def test_no_spike_is_lost_to_the_width() -> None:
    quiet, loud = [1.0] * 10_080, [1.0] * 10_080
    loud[5_000] = 40.0
    svg = EACH["before_after"](loud, quiet, title="t")
    (path,) = shapes(svg, "path", "before")
    assert "V68" in path.get("d", "")


def test_the_heat_map_covers_the_week_without_gaps() -> None:
    root = ET.fromstring(EACH["heatmap"](title="t"))  # noqa: S314
    cells = [path for path in root.iter(f"{SVG}path") if "chart-level" in path.get("class", "")]
    widths = [float(w) for c in cells for w in re.findall(r"h([0-9.]+)v", c.get("d", ""))]
    assert sum(widths) == pytest.approx(7 * (1080 - 38), abs=1)
    assert {c.get("class") for c in cells} == {f"chart-level-{n}" for n in range(8)}
    tips = [rect[0].text for rect in root.iter(f"{SVG}rect") if rect.get("class") == "chart-tip"]
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
    assert ticks_of_time(185) == [0, 60, 120, 180]
    assert ticks_of_time(3 * 86_400) == [0, 86_400, 172_800, 259_200]
