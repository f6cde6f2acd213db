"""Reports as pages: whatever the data holds is shown as text, and nothing is asked of another computer."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline import cards, charts, pages
from tagline.charts import Series
from tagline.errors import SpecError

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
HOSTILE = ('<script>alert("x")</script>', "שלום עולם 🎉", "a label with spaces & <b>", "'\"</pre></style>{{ 7 * 7 }}")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tagline.Run:
    """A run whose labels and texts are HTML, templates and right-to-left text, most of them answered wrong."""
    directory = tmp_path_factory.mktemp("hostile")
    rows = [
        {
            "text": f"</script><script>alert({n})</script> <img src=x onerror=alert(1)> {{{{ 1 }}}}",
            "label": HOSTILE[n % 4],
        }
        for n in range(200)
    ]
    path = directory / "odd <b>name.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return tagline.train(path, "model.family=linear", "data.text=text", "data.labels=label", runs=directory / "runs")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> tagline.Run:
    return tagline.train(
        SUPPORT / "messages-multi.csv", "model.family=linear", "decisions.abstain_below=0.3",
        runs=tmp_path_factory.mktemp("runs"),
    )  # fmt: skip


class Elements(HTMLParser):
    """The elements of a page and what they point at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def page_of(run: tagline.Run) -> str:
    return (run.directory / "report.html").read_text("utf-8")


def test_what_the_data_holds_is_shown_as_text(hostile: tagline.Run) -> None:
    page = page_of(hostile)
    found = Elements(page)
    assert found.names.count("script") == 2
    assert "img" not in found.names
    assert "b" not in found.names
    assert found.handlers == []
    assert "49" not in re.findall(r"<title>(.*?)</title>", page)[0]
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;" in page
    assert "{{ 7 * 7 }}" in page


@pytest.mark.parametrize("which", ["hostile", "several"])
def test_a_page_points_at_nothing_outside_itself(which: str, request: pytest.FixtureRequest) -> None:
    page = page_of(request.getfixturevalue(which))
    found = Elements(page)
    assert all(address.startswith(("#", "data:")) for address in found.addresses)
    assert not re.search(r"@import|url\(|https?://", page)
    assert "default-src 'none'" in page


def test_every_link_inside_leads_somewhere_and_every_control_has_a_name(several: tagline.Run) -> None:
    page = page_of(several)
    for target in re.findall(r'href="#([\w-]+)"', page):
        assert f'id="{target}"' in page
    for control in re.findall(r"<(?:input|select)[^>]*>", page):
        before = page[: page.index(control)]
        assert before.rindex("<label") > before.rfind("</label>")
    assert page.count("<svg") == len(re.findall(r'<svg[^>]*role="img"[^>]*aria-label="[^"]+"', page))


def test_the_facts_of_a_page_are_json_inside_a_script(hostile: tagline.Run) -> None:
    [facts] = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', page_of(hostile), flags=re.S)
    assert "<" not in facts
    assert {"coverage", "thresholds", "plot", "coveragePlaces"} == set(json.loads(facts))


def test_what_is_said_of_a_threshold_was_measured_there(several: tagline.Run) -> None:
    """A tuned threshold may lie far below the first that the curves are drawn at."""
    report = several.report()
    assert report is not None
    [facts] = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', page_of(several))
    chosen = json.loads(facts)["thresholds"]["chosen"]
    for label, threshold in zip(report["labels"], report["decisions"]["thresholds"], strict=True):
        measured = report["test"]["per_label"][label]
        assert chosen[label] == {"threshold": threshold} | {key: measured[key] for key in ("precision", "recall", "f1")}


def test_the_words_that_pushed_are_marked_and_the_text_is_whole() -> None:
    row = {"text": "the refund never came", "pushes": [[4, 10, 2.0, 0], [11, 16, -1.0, 0], [0, 3, 0.01, 0]]}
    [pieces] = pages._error(row, "mistake")["sides"]
    assert "".join(piece["text"] for piece in pieces) == "the refund never came"
    assert [(piece["text"], piece["kind"]) for piece in pieces if piece["kind"]] == [
        ("refund", "for"),
        ("never", "against"),
    ]


def test_many_labels_are_shown_for_those_with_the_most_errors() -> None:
    labels = [f"label {number}" for number in range(300)]
    confusion = [[0] * 300 for _ in labels]
    for number in range(300):
        confusion[number][number] = 5
    confusion[7][9] = 3
    found: Any = pages._matrix({"labels": labels, "test": {"confusion": confusion}})
    assert len(found["names"]) == pages.MOST_IN_MATRIX
    assert {"label 7", "label 9"} <= set(found["names"])
    assert found["is_part"]


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_a_report_is_saved_in_each_form(several: tagline.Run, tmp_path: Path, form: str) -> None:
    report = several.report()
    assert report is not None
    pages.save(report, str(tmp_path / f"out.{form}"), name="a | name")
    text = (tmp_path / f"out.{form}").read_text("utf-8")
    assert f"{report['test']['micro_f1']:.3f}"[:4] in text
    if form == "json":
        assert json.loads(text) == report


def test_an_unknown_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such form"):
        pages.check_form(str(tmp_path / "report.pdf"))


def test_markdown_keeps_the_data_from_being_markup(hostile: tagline.Run) -> None:
    report = hostile.report()
    assert report is not None
    text = cards.report_markdown(report, name="x")
    assert not re.search(r"(?<!\\)<", text)
    assert all(line.count(" | ") in (0, 2, 4) for line in text.splitlines() if line.startswith("|"))


def test_a_run_without_test_rows_has_a_page_that_says_so(tmp_path: Path) -> None:
    run = tagline.train(SUPPORT / "messages.csv", "model.family=linear", "data.test_share=0", runs=tmp_path)
    page = page_of(run)
    assert "Nothing was measured" in page
    assert "Give data.test" in page


@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.83, 0.86), (0.0, 12345.0), (5.0, 5.0), (-2.0, 3.0), (1e-6, 2e-6)])
def test_ticks_are_few_round_and_inside(ends: tuple[float, float]) -> None:
    ticks = charts._ticks(ends)
    assert 1 <= len(ticks) <= 9
    assert all(ends[0] - 1e-9 <= tick <= ends[1] + 1e-9 for tick in ticks)


def test_a_chart_says_in_words_what_it_shows() -> None:
    drawn = charts.line_chart(
        [Series("loss <x>", [(0, 1), (1, 0.5)], "a", [(0.9, 1.1), (0.4, 0.6)], has_dots=True)], title="Loss",
        description="it falls", x_label="step", y_label="loss",
    )  # fmt: skip
    assert 'aria-label="Loss. it falls"' in drawn
    assert "loss &lt;x&gt;" in drawn
    assert drawn.count("<circle") == 2
