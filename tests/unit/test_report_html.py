"""Reports as pages: whatever the data holds is shown as text, and nothing is asked of another computer."""

import csv
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tagline
from tagline.data.dataset import Split
from tagline.errors import SpecError
from tagline.evaluation import error_analysis
from tagline.evaluation.schema import ErrorRow, Report
from tagline.prediction.decisions import DecisionLayer
from tagline.reports import advice, charts, html, markdown
from tagline.reports.charts import Series

sys.path.insert(0, str(Path(__file__).parents[1]))
from reports import change_report, make_label_figures, make_report

pytestmark = pytest.mark.trains

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
    return tagline.train(
        path,
        "model.family=linear",
        "model.characters=0",
        "data.text=text",
        "data.labels=label",
        runs=directory / "runs",
    )


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> tagline.Run:
    return tagline.train(
        SUPPORT / "messages-multi.csv",
        "model.family=linear",
        "model.characters=0",
        "decisions.abstain_below=0.3",
        runs=tmp_path_factory.mktemp("runs"),
    )


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
    assert re.findall(r"<title>(.*?)</title>", page)[0] == f"{hostile.name}: Tagline report"
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
    assert {"coverage", "abstainBelow", "thresholds", "plot", "coveragePlaces"} == set(json.loads(facts))


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
    pushes = [[4, 10, 2.0, 0], [11, 16, -1.0, 0], [0, 3, 0.01, 0]]
    row = ErrorRow(text="the refund never came", truth=["a"], answer=["b"], score=0.9, file="x.csv", line=2)
    [pieces] = html._build_error(row, "mistake", pushes=pushes)["sides"]
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
    found: Any = html._build_matrix(Report.model_validate(make_report({"confusion": confusion}, labels=labels)))
    assert len(found["names"]) == html.MOST_IN_MATRIX
    assert {"label 7", "label 9"} <= set(found["names"])
    assert found["is_part"]


def test_of_many_labels_without_an_error_there_is_no_matrix() -> None:
    labels = [f"label {number}" for number in range(30)]
    confusion = [[5 * (i == j) for j in range(30)] for i in range(30)]
    assert html._build_matrix(Report.model_validate(make_report({"confusion": confusion}, labels=labels))) is None


def test_the_page_says_when_it_abstains_and_its_slider_starts_there(several: tagline.Run) -> None:
    page, report = page_of(several), several.report()
    assert report is not None
    assert f"It abstains below a score of 0.300: it answers {report['test']['coverage']:.1%} of the test rows" in page
    [at] = re.findall(r'id="abstain"[^>]*value="(\d+)"', page)
    assert report["coverage"][int(at)]["below"] >= 0.3
    assert all(point["below"] < 0.3 for point in report["coverage"][int(at) + 1 :])


def test_what_abstention_comes_to_is_said_with_its_interval(several: tagline.Run) -> None:
    report = several.report()
    assert report is not None
    answered = {"coverage": 0.8, "accuracy_of_answered": 0.9, "accuracy_of_answered_interval": [0.8, 0.96]}
    said = advice.abstention_sentence(change_report(report, test={**report.test, **answered}))
    assert said == (
        "It abstains below a score of 0.300: it answers 80.0% of the test rows; 90.0% of the answers it gives are "
        "right (95 % interval 80.0% to 96.0%)."
    )
    none = {**report["test"], "coverage": 0.0, "accuracy_of_answered": None, "accuracy_of_answered_interval": None}
    assert advice.abstention_sentence(change_report(report, test=none)).endswith("it answers 0.0% of the test rows.")
    without = {key: value for key, value in report["test"].items() if key != "coverage"}
    assert "which no test row has" in advice.abstention_sentence(change_report(report, test=without))
    always = {**report["decisions"], "abstain_below": 0.0}
    assert advice.abstention_sentence(change_report(report, decisions=always)) == ""


def test_the_slider_and_the_headline_round_the_same_figure_alike(several: tagline.Run) -> None:
    report = several.report()
    assert report is not None
    everything = report["coverage"][-1]
    assert everything["coverage"] == 1
    assert everything["right"] == pytest.approx(report["test"]["subset_accuracy"], abs=1e-6)


def test_evaluations_are_shown_where_a_training_was_too_short_for_a_curve_of_its_loss(several: tagline.Run) -> None:
    report = several.report()
    assert report is not None
    short = change_report(report, history={**report.history, "steps": []})
    page = html.render_report(short, name="x")
    assert "macro_f1 on validation" in page
    assert 'href="#learning"' in page


def test_a_table_of_many_labels_does_not_push_the_rest_away(several: tagline.Run) -> None:
    report = several.report()
    assert report is not None
    names = [f"label {number}" for number in range(40)]
    figures = next(iter(report["test"]["per_label"].values()))
    decisions = {**report["decisions"], "thresholds": [0.5] * 40}
    test = {**report["test"], "per_label": dict.fromkeys(names, figures)}
    changed = change_report(report, labels=names, test=test, decisions=decisions, thresholds={})
    page = html.render_report(changed, name="x")
    assert 'class="scroll tall" tabindex="0" role="region" aria-label="Figures of every label"' in page
    assert ">0.50</td>" in page
    assert "scroll tall" not in page_of(several)


def test_a_model_that_always_gives_the_same_answer_is_not_advised(several: tagline.Run) -> None:
    report = several.report()
    assert report is not None
    figures = {name: report["test"][name] for name in ("micro_f1", "macro_f1")}
    easy = {**report["baselines"], "majority": {"answer": ["billing"], **figures}}
    first = advice.next_steps(change_report(report, baselines=easy))[0]
    assert first.startswith("Do not use it yet: always answering billing does as well (micro_f1 ")
    assert not any(step.startswith("Do not use it yet") for step in advice.next_steps(report))
    rare = {**easy, "majority": {**easy["majority"], "macro_f1": 0.0}}
    changed = change_report(report, baselines=rare)
    assert not any(step.startswith("Do not use it yet") for step in advice.next_steps(changed))


def advised(**changes: Any) -> str:
    """What is advised about a fair model of two labels, or one that differs in this."""
    figures = {"precision": 0.9, "recall": 0.9, "f1": 0.9}
    test = {
        "rows": 1000,
        "accuracy": 0.9,
        "macro_f1": 0.9,
        "intervals": {"accuracy": [0.88, 0.92], "macro_f1": [0.88, 0.92]},
        "per_label": {"ham": figures | {"support": 500}, "spam": figures | {"support": 500}},
    }
    majority = {"answer": ["ham"], "accuracy": 0.5, "macro_f1": 0.33}
    report = make_report(
        test, family="encoder", labels=["ham", "spam"], splits={"test": 1000}, baselines={"majority": majority}
    )
    for key, value in changes.items():
        report[key] = report[key] | value if isinstance(value, dict) else value
    return "\n".join(advice.next_steps(Report.model_validate(report)))


AT_CHANCE = {
    "accuracy": 0.53, "macro_f1": 0.52, "intervals": {"accuracy": [0.43, 0.62], "macro_f1": [0.42, 0.61]},
}  # fmt: skip


def test_of_a_fair_model_nothing_is_advised() -> None:
    assert advised() == "Nothing stands out. Try it on texts of your own: tagline predict."


def test_a_model_at_chance_is_called_that_and_its_doubts_are_not_told() -> None:
    said = advised(test=AT_CHANCE, gravely_doubted=300)
    assert said.startswith("Do not use it yet: it may be no better than always answering ham (accuracy 0.500")
    assert "labels that look wrong" not in said
    assert "model.family=encoder, which reads the two texts" in advised(test=AT_CHANCE, family="linear", pair=True)
    found = {"accuracy": 0.96, "macro_f1": 0.87, "intervals": {"accuracy": [0.94, 0.98], "macro_f1": [0.82, 0.92]}}
    rare = {"majority": {"answer": ["ham"], "accuracy": 0.95, "macro_f1": 0.49}}
    assert "Do not use it" not in advised(test=found, baselines=rare), "it finds the rare label"


def test_the_linear_baseline_is_only_recommended_where_it_is_of_use() -> None:
    assert "Family linear does as well" in advised(baselines={"linear": {"accuracy": 0.895, "macro_f1": 0.896}})
    assert "Family linear does better" in advised(baselines={"linear": {"accuracy": 0.96, "macro_f1": 0.96}})
    assert "Family linear" not in advised(baselines={"linear": {"accuracy": 0.895, "macro_f1": 0.78}})
    assert "Family linear" not in advised(test=AT_CHANCE, baselines={"linear": {"accuracy": 0.5, "macro_f1": 0.33}})


def test_few_rows_of_one_label_are_noticed_among_many_rows() -> None:
    wide = {"accuracy": [0.88, 0.92], "macro_f1": [0.5, 1.0]}
    rare = {"ham": make_label_figures(0.95) | {"support": 995}, "spam": make_label_figures(0.8) | {"support": 5}}
    said = advised(test={"intervals": wide, "per_label": rare})
    assert "with 1,000 of them, 5 of spam, macro_f1 may be anything from 0.50 to 1.00" in said


def test_a_label_that_abstention_hides_is_named() -> None:
    figures = make_label_figures(0.9) | {"support": 500}
    said = {"ham": figures | {"coverage": 0.9}, "spam": figures | {"coverage": 0.2}}
    assert "55% of all texts are answered, but few of spam (20%)." in advised(
        test={"coverage": 0.55, "per_label": said}
    )
    even = {"ham": figures | {"coverage": 0.6}, "spam": figures | {"coverage": 0.5}}
    assert "keeps silent" not in advised(test={"coverage": 0.55, "per_label": even})


def test_a_report_has_how_many_texts_of_each_label_are_answered(several: tagline.Run) -> None:
    report = several.report()
    assert report is not None
    rows = [json.loads(line) for line in (several.directory / "predictions.jsonl").read_text("utf-8").splitlines()]
    for label, figures in report["test"]["per_label"].items():
        answered = [not row.get("abstained", False) for row in rows if label in row["truth"]]
        assert figures["coverage"] == pytest.approx(sum(answered) / len(answered))
    assert {figures["coverage"] for figures in report["test"]["per_label"].values()} != {1.0}


def test_a_label_is_gravely_doubted_only_for_another_that_is_believed() -> None:
    scores = np.array([[0.02, 0.96, 0.02], [0.05, 0.48, 0.47], [0.9, 0.05, 0.05], [0.3, 0.6, 0.1]])
    split = Split(["a"] * 4, np.zeros(4, int), np.arange(4))
    single = {"test": (split, DecisionLayer("single", ("x", "y", "z")).decide(scores))}
    assert error_analysis.count_grave_suspects(single) == 1
    truth = np.zeros((100, 2), bool)
    truth[:50, 0] = truth[:2, 1] = True
    several = np.where(truth, [0.97, 0.001], [0.03, 0.001])
    several[0, 0] = several[60, 0] = 0.5  # neither here nor there
    several[61, 0] = 0.99  # one that is missing, and the second label is never found
    rows = Split(["a"] * 100, truth, np.arange(100))
    answers = DecisionLayer("multi", ("x", "y"), thresholds=(0.5, 0.5)).decide(several)
    assert error_analysis.count_grave_suspects({"test": (rows, answers)}) == 1


def test_texts_to_measure_on_that_were_learned_from_come_before_other_faults_of_the_data() -> None:
    found = [
        {"code": code, "severity": "warning", "message": message, "advice": "x"}
        for code, message in (("copies", "3 copies"), ("near-duplicates", "47 rows of test nearly the same"))
    ]
    first, *others = advised(findings=found, gravely_doubted=100).split("\n")
    assert first.endswith("the figures may be too good, with 47 rows of test nearly the same.")
    assert others == [
        "Read the labels that look wrong: 100 in 1,000 held-out rows, marked at the top of the report's errors.",
        "Mend the data: 3 copies.",
    ]
    new = {"by": "likeness", "name": "unlike any training text", "rows": 450, "accuracy": 0.844}
    new |= {"accuracy_of_rest": 1.0, "p_value": 0.01}
    first, *others = advised(findings=found, slices=[new | {"is_worse": True}]).split("\n")
    assert first.endswith(
        " Of the 450 test rows that are unlike any training text 84.4% are right, of the others 100.0%."
    )
    assert others == ["Mend the data: 3 copies."], "it is said once"
    assert "unlike" not in advised(findings=found, slices=[new | {"is_worse": False}])
    column = new | {"name": "faint", "is_worse": True}
    assert "(likeness: faint)" in advised(findings=found, slices=[column]), "a column of the data may be called so too"


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_a_report_is_saved_in_each_form(several: tagline.Run, tmp_path: Path, form: str) -> None:
    report = several.report()
    assert report is not None
    html.save_report(report, str(tmp_path / f"out.{form}"), name="a | name")
    text = (tmp_path / f"out.{form}").read_text("utf-8")
    assert f"{report['test']['micro_f1']:.3f}"[:4] in text
    if form == "json":
        assert json.loads(text) == report.to_dict()


def test_an_unknown_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such form"):
        html.check_form(str(tmp_path / "report.pdf"))


def test_markdown_keeps_the_data_from_being_markup(hostile: tagline.Run) -> None:
    report = hostile.report()
    assert report is not None
    text = markdown.render_markdown_report(report, name="x")
    assert not re.search(r"(?<!\\)<", text)
    assert all(line.count(" | ") in (0, 2, 4) for line in text.splitlines() if line.startswith("|"))


def test_a_run_without_test_rows_has_a_page_that_says_so(tmp_path: Path) -> None:
    run = tagline.train(
        SUPPORT / "messages.csv", "model.family=linear", "model.characters=0", "data.test_share=0", runs=tmp_path
    )
    page = page_of(run)
    assert "Nothing was measured" in page
    assert "Give data.test" in page


@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.83, 0.86), (0.0, 12345.0), (5.0, 5.0), (-2.0, 3.0), (1e-6, 2e-6)])
def test_ticks_are_few_round_and_inside(ends: tuple[float, float]) -> None:
    ticks = charts._choose_ticks(ends)
    assert 1 <= len(ticks) <= 9
    assert all(ends[0] - 1e-9 <= tick <= ends[1] + 1e-9 for tick in ticks)


def test_a_chart_says_in_words_what_it_shows() -> None:
    drawn = charts.draw_line_chart(
        [Series("loss <x>", [(0, 1), (1, 0.5)], "a", [(0.9, 1.1), (0.4, 0.6)], has_dots=True)],
        title="Loss",
        description="it falls",
        x_label="step",
        y_label="loss",
    )
    assert 'aria-label="Loss. it falls"' in drawn
    assert "loss &lt;x&gt;" in drawn
    assert drawn.count("<circle") == 2


def test_steps_are_counted_and_shares_stay_shares() -> None:
    drawn = charts.draw_line_chart(
        [Series("macro_f1", [(8, 1.0), (16, 1.0), (24, 1.0)], "a"), Series("kept", [(8, 1.0)], "c")],
        title="F1",
        description="all the same",
        x_label="step",
        y_label="macro_f1",
    )
    ticks = [float(tick) for tick in re.findall(r'class="tick"[^>]*>([^<]+)<', drawn)]
    assert [tick for tick in ticks if tick > 1] == [10, 15, 20]
    assert '<li class="a">macro_f1</li><li class="c point">kept</li>' in drawn


@pytest.mark.parametrize("ends", [(1.0, 2.0), (0.5, 2.5), (7.6, 8.4), (0.0, 12345.0), (3.0, 9.0)])
def test_ticks_of_what_is_counted_are_whole(ends: tuple[float, float]) -> None:
    ticks = charts._choose_ticks(ends, is_counted=True)
    assert 1 <= len(ticks) <= 9
    assert all(tick.is_integer() for tick in ticks)


def test_the_page_for_programs_is_for_people_too() -> None:
    example = {"instances": ["a text"], "label": "R&D 🎉 <b>"}
    body = {"content": {"application/json": {"schema": {}, "example": example}}}
    posted = {"summary": "Answers.", "requestBody": body, "responses": {"200": {"description": "answers"}}}
    page = html.render_api_page({"paths": {"/predict": {"post": posted}}})
    assert "R&amp;D 🎉 &lt;b&gt;" in page


@pytest.fixture(scope="module")
def careful(tmp_path_factory: pytest.TempPathFactory) -> tagline.Run:
    """A run that abstains so that most of its answers are right."""
    return tagline.train(
        SUPPORT / "messages.csv",
        "model.family=linear",
        "model.characters=0",
        "decisions.target_precision=0.95",
        runs=tmp_path_factory.mktemp("careful"),
    )


@pytest.fixture(scope="module")
def mislabelled(tmp_path_factory: pytest.TempPathFactory) -> tagline.Run:
    """A run on data whose every twelfth label is another one."""
    directory = tmp_path_factory.mktemp("mislabelled")
    with (SUPPORT / "messages.csv").open(newline="") as file:
        rows = [(row["message"], row["topic"]) for row in csv.DictReader(file)]
    topics = sorted({topic for _, topic in rows})
    others = {topic: topics[(number + 1) % len(topics)] for number, topic in enumerate(topics)}
    with (directory / "messages.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("message", "topic"))
        writer.writerows((text, topic if number % 12 else others[topic]) for number, (text, topic) in enumerate(rows))
    return tagline.train(
        directory / "messages.csv", "model.family=linear", "model.characters=0", runs=directory / "runs"
    )


def facts_of(run: tagline.Run) -> Report:
    report = run.report()
    assert report is not None
    return report


def errors_listed(page: str) -> list[str]:
    listed = page[page.index('id="error-list"') : page.index('id="slices"')]
    return listed.split("<li data-kind")[1:]


def test_labels_that_look_wrong_stand_first_and_are_marked(mislabelled: tagline.Run) -> None:
    report, errors = facts_of(mislabelled), errors_listed(page_of(mislabelled))
    doubted = report["gravely_doubted"]
    rows = report["splits"]["test"] + report["splits"]["validation"]
    assert f"{doubted} in {rows} held-out rows, marked at the top of the report's errors" in "".join(report["advice"])
    assert doubted > 4
    assert ["label looks wrong" in item for item in errors] == [number < doubted for number in range(len(errors))]
    places = [f"{row['file']}:{row['line']}" for row in report["mistakes"]]
    assert all(sum(place + "<" in item for item in errors if '="mistake"' in item) <= 1 for place in places)
    both = [item for item in errors if '="suspect mistake"' in item]
    assert both, "a row that is a mistake too is listed once, and found under both"
    assert all("<mark" in item for item in both)


def test_where_it_abstains_the_headline_is_about_the_answers_it_gives(careful: tagline.Run) -> None:
    report, page = facts_of(careful), page_of(careful)
    test = report["test"]
    answered, right = f"{100 * test['coverage']:.1f}", f"{100 * test['accuracy_of_answered']:.1f}"
    assert re.findall(r'<div class="figure">(.*?)</div>', page) == [f"{right} %"]
    assert f"answers {answered} % of the texts" in page
    first, second, *_ = advice.write_verdict(report)
    assert first.startswith(f"Answers {answered} of 100 texts, and is right in {right} of 100 answers (95 % interval ")
    assert second.startswith(f"If it answered every text: right {100 * test['accuracy']:.1f} times in 100")
    assert "this run, answering all" in page
    for written in (markdown.render_markdown_report(report, name="x"), (careful.bundle / "README.md").read_text()):
        assert first in written
    always = {key: value for key, value in test.items() if "answered" not in key and key != "coverage"}
    assert advice.write_verdict(change_report(report, test=always))[0].startswith("Right ")


def test_there_is_one_score_below_which_it_abstains(careful: tagline.Run) -> None:
    report, page = facts_of(careful), page_of(careful)
    below = report["decisions"]["abstain_below"]
    [at] = re.findall(r'id="abstain"[^>]*value="(\d+)"', page)
    point = report["coverage"][int(at)]
    assert point["below"] == below
    assert point["coverage"] == pytest.approx(report["test"]["coverage"], abs=1e-6)
    assert point["right"] == pytest.approx(report["test"]["accuracy_of_answered"], abs=1e-6)
    assert f"It abstains below a score of {below:.3f}:" in page
    others = [each["below"] for each in report["coverage"] if each["below"] < advice.NEARLY_SURE and each != point]
    assert others == [round(each, 3) for each in others], "what is shown is what the shares are of"
    scores = [row["score"] for row in careful.predictions()]
    for each in report["coverage"]:
        answered = sum(round(score, 6) >= each["below"] for score in scores) / len(scores)
        assert each["coverage"] == pytest.approx(answered, abs=1e-6)


def test_settings_that_were_tried_are_no_steps_of_learning(careful: tagline.Run) -> None:
    report, page = facts_of(careful), page_of(careful)
    assert report["history"]["tried"] == "strength"
    assert [each["setting"] for each in report["history"]["evaluations"]] == [1.0, 4.0, 16.0]
    learning = page[page.index('id="learning"') : page.index('id="errors"')]
    assert learning.count(">strength, each tried by itself</text>") == 2
    assert ">step<" not in learning
    ticks = re.findall(r'text-anchor="middle">([\d.]+)</text>', learning)
    assert ticks == ["1", "4", "16"] * 2


def test_a_report_of_an_earlier_version_has_a_page(careful: tagline.Run) -> None:
    report = facts_of(careful)
    history = {key: value for key, value in report["history"].items() if key != "tried"}
    suspects = [{key: value for key, value in row.items() if key != "is_grave"} for row in report["suspects"]]
    coverage = [each for each in report["coverage"] if each["below"] != report["decisions"]["abstain_below"]]
    earlier = change_report(report, history=history, suspects=suspects, coverage=coverage)
    page = html.render_report(earlier, name="x")
    assert "label looks wrong" not in page
    assert ">step</text>" in page
