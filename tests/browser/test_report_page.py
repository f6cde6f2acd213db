"""The report in a real browser: Chromium, driven by Playwright."""

import json
from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline.reports import compare, html

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
WIDTHS = (390, 820, 1280)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of a single-label, a multi-label, a pair and a many-labels run, the last one with hostile texts."""
    directory = tmp_path_factory.mktemp("runs")
    odd = directory / "odd.jsonl"
    labels = [f"טקסט 🎉 <script> {number}" for number in range(60)]
    rows = [
        {
            "text": f"</script><script>window.hacked = 1</script> topic {n % 60} של {'long ' * (n % 40)}",
            "label": labels[n * 7919 // 60 % 60],
        }
        for n in range(900)
    ]
    odd.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")
    made = {
        "single": tagline.train(
            SUPPORT / "messages.csv", "model.family=linear", "model.characters=0", runs=directory / "single"
        ),
        "multi": tagline.train(
            SUPPORT / "messages-multi.csv", "model.family=linear", "model.characters=0", runs=directory / "multi"
        ),
        "pair": tagline.train(
            SUPPORT / "pairs.csv", "model.family=linear", "model.characters=0", runs=directory / "pair"
        ),
        "odd": tagline.train(
            odd,
            "model.family=linear",
            "model.characters=0",
            "data.text=text",
            "data.labels=label",
            "model.strength=0.01",
            runs=directory / "odd",
        ),
    }
    found = {name: run.directory / "report.html" for name, run in made.items()}
    weaker = tagline.train(
        SUPPORT / "messages.csv",
        "model.family=linear",
        "model.characters=0",
        "model.words=0",
        "model.characters=1",
        runs=directory / "single",
    )
    found["comparison"] = directory / "comparison.html"
    both = compare.compare(made["single"].name, weaker.name, runs=directory / "single")
    html.save_comparison(both, str(found["comparison"]))
    return found


@pytest.mark.parametrize("name", ["single", "multi", "pair", "odd", "comparison"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_is_quiet_asks_for_nothing_and_fits_the_screen(
    browser: Any, runs: dict[str, Path], name: str, width: int
) -> None:
    said, asked = [], []
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if width > 800 else "light"
    )
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(runs[name].as_uri())
    assert said == []
    assert [address for address in asked if not address.startswith(("file:", "data:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.hacked") is None
    context.close()


def test_the_slider_is_moved_with_the_keyboard_and_says_what_it_means(browser: Any, runs: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(runs["single"].as_uri())
    slider = page.get_by_role("slider", name="Abstain below")
    slider.focus()
    before = page.locator("#abstain-said").inner_text()
    assert "answers 100.0 % of the texts" in before
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    after = page.locator("#abstain-said").inner_text()
    assert after != before
    assert "Set decisions.abstain_below = 0." in after
    assert slider.get_attribute("aria-valuetext") in after
    page.close()


def test_errors_are_filtered_by_kind_label_and_text(browser: Any, runs: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(runs["single"].as_uri())
    items = page.locator("#error-list > li")
    total = items.count()
    assert total == items.filter(visible=True).count() > 3
    page.get_by_role("combobox", name="Show").select_option("mistake")
    mistakes = items.filter(visible=True).count()
    assert 0 < mistakes < total
    label = json.loads(items.first.get_attribute("data-labels"))[0]
    page.locator("#error-label").select_option(label)
    assert 0 < items.filter(visible=True).count() <= mistakes
    page.get_by_label("Text contains").fill("no text holds this")
    assert items.filter(visible=True).count() == 0
    assert page.locator("#error-count").inner_text() == "0 shown."
    page.close()


def test_thresholds_are_drawn_for_the_label_that_is_chosen(browser: Any, runs: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(runs["multi"].as_uri())
    line = page.locator("#thresholds polyline.a")
    before = line.get_attribute("points")
    page.locator("#threshold-label").select_option("urgent")
    assert line.get_attribute("points") != before
    assert page.locator("#threshold-said").inner_text().startswith("urgent: answered at")
    page.close()


def test_texts_and_labels_of_any_kind_are_shown_as_they_are(browser: Any, runs: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(runs["odd"].as_uri())
    first = page.locator("#error-list .text").first
    assert first.inner_text().startswith("</script><script>window.hacked = 1</script> topic")
    assert "טקסט 🎉 <script>" in page.locator("#label-table tbody th").first.inner_text()
    page.get_by_label("Show labels with").fill("<script> 17")
    assert page.locator("#label-table tbody tr").filter(visible=True).count() == 1
    page.close()


def test_a_label_without_a_space_does_not_push_its_figures_off_a_phone(browser: Any, tmp_path: Path) -> None:
    rows = [{"text": f"word{n % 2} number {n}", "label": ("x" * 300, "short")[n % 2]} for n in range(60)]
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = tagline.train(tmp_path / "long.jsonl", "model.family=linear", "model.characters=0", runs=tmp_path / "runs")
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto((run.directory / "report.html").as_uri())
    ends = page.locator("#label-table tbody tr td:last-child").evaluate_all(
        "cells => cells.map((cell) => cell.getBoundingClientRect().right)"
    )
    assert max(ends) <= 390
    page.close()


def test_everything_is_reached_with_the_keyboard(browser: Any, runs: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(runs["multi"].as_uri())
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"abstain", "threshold-label", "error-kind", "error-label", "error-text", "A", "SUMMARY"} <= reached
    page.close()


def test_what_is_too_wide_has_a_shadow_at_the_side_on_which_it_goes_on(browser: Any, runs: dict[str, Path]) -> None:
    page = browser.new_context(viewport={"width": 390, "height": 900}).new_page()
    page.goto(runs["single"].as_uri())
    wide = page.locator("#confusions .scroll")
    assert wide.evaluate("each => each.scrollWidth > each.clientWidth")
    wide.scroll_into_view_if_needed()
    for place, sides in (("0", {"right"}), ("each.scrollWidth", {"left"})):
        wide.evaluate(f"each => {{ each.scrollLeft = {place}; }}")
        shaded = {side: _side_of(page, wide, side) for side in ("left", "right")}
        wide.evaluate("each => { each.style.background = 'var(--card)'; }")
        plain = {side: _side_of(page, wide, side) for side in ("left", "right")}
        wide.evaluate("each => { each.style.background = ''; }")
        assert {side for side in shaded if shaded[side] != plain[side]} == sides


def _side_of(page: Any, wide: Any, side: str) -> bytes:
    """A picture of the outermost pixels of an element."""
    box = wide.bounding_box()
    x = box["x"] + (2 if side == "left" else box["width"] - 12)
    return bytes(page.screenshot(clip={"x": x, "y": box["y"] + 30, "width": 10, "height": box["height"] - 40}))
