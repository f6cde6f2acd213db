"""The playground of a real server in a real browser."""

import csv
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tagline

sys.path.insert(0, str(Path(__file__).parents[1]))
from serving import Server, serving

SUPPORT = Path(__file__).parents[2] / "examples" / "support"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    directory = tmp_path_factory.mktemp("runs")
    single = tagline.train(
        SUPPORT / "messages.csv",
        "model.family=linear",
        "model.characters=0",
        "decisions.abstain_below=0.5",
        runs=directory,
    )
    pair = tagline.train(SUPPORT / "pairs.csv", "model.family=linear", "model.characters=0", runs=directory)
    rows = [f"about topic{n % 15} number {n},label {n % 15}" for n in range(150)]
    (directory / "many.csv").write_text("\n".join(["text,label", *rows]))
    many = tagline.train(directory / "many.csv", "model.family=linear", "model.characters=0", runs=directory)
    with (
        serving(single.bundle) as first,
        serving(pair.bundle, TAGLINE_TOKEN="t0kën→") as second,
        serving(many.bundle) as third,
    ):
        yield {"single": first, "pair": second, "many": third}


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that must stay quiet and within its own server."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    opened = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("console", lambda told: said.append(told.text) if "Content Security Policy" in told.text else None)
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    assert said == []
    assert all(address.startswith(("http://127.0.0.1:", "data:", "blob:")) for address in asked)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_of_many_labels_the_likeliest_are_shown_and_the_others_counted(page: Any, servers: dict[str, Server]) -> None:
    page.goto(servers["many"].address)
    page.get_by_label("Text", exact=True).fill("about topic7")
    page.get_by_role("button", name="Answer").click()
    page.wait_for_selector("mark.for")
    assert page.locator("#bars bdi").all_inner_texts()[0] == "label 7"
    assert page.locator("#bars .number").count() == 10
    assert page.locator("#others").inner_text().startswith("And 5 labels more, at 0.0")


def test_a_text_is_answered_with_scores_and_words(page: Any, servers: dict[str, Server]) -> None:
    page.goto(servers["single"].address)
    page.get_by_label("Text", exact=True).fill("I was <b>charged</b> twice <script>alert(1)</script>")
    page.get_by_label("with a set that holds the truth").check()
    page.get_by_role("button", name="Answer").click()
    page.wait_for_selector("mark.for")
    assert page.locator("#said").inner_text().startswith("billing")
    assert "The set: billing" in page.locator("#more").inner_text()
    assert page.locator("#words").inner_text().strip() == "I was <b>charged</b> twice <script>alert(1)</script>"
    assert page.locator("#bars .number").count() == 6
    assert "charged" in page.locator("mark.for").all_inner_texts()


def test_a_script_a_style_or_a_frame_of_somebody_else_is_refused(browser: Any, servers: dict[str, Server]) -> None:
    address = servers["single"].address
    for path in ("/", "/docs"):
        page = browser.new_page()
        page.goto(address + path)
        page.evaluate("""() => {
            const given = {script: "document.title = 'taken'", style: "body { color: rgb(1, 2, 3) }"};
            for (const [tag, text] of Object.entries(given)) {
                document.body.append(Object.assign(document.createElement(tag), {textContent: text}));
            }
            document.body.setAttribute("style", "background: rgb(1, 2, 3)");
        }""")
        assert page.title() != "taken"
        shown = page.evaluate(
            "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
        )
        assert "rgb(1, 2, 3)" not in shown
        page.close()
    page = browser.new_page()
    page.set_content(f'<iframe src="{address}/"></iframe>')
    [inner] = [frame for frame in page.frames if frame != page.main_frame]
    inner.wait_for_load_state()
    assert inner.locator("#form").count() == 0
    page.close()


def test_words_are_marked_behind_an_emoji_too(page: Any, servers: dict[str, Server]) -> None:
    page.goto(servers["single"].address)
    page.get_by_label("Text", exact=True).fill("😡😡😡 I was charged twice")
    page.get_by_role("button", name="Answer").click()
    page.wait_for_selector("mark.for")
    assert "charged" in page.locator("mark.for").all_inner_texts()


def test_only_the_latest_question_is_answered(page: Any, servers: dict[str, Server]) -> None:
    page.goto(servers["single"].address)
    text = page.get_by_label("Text", exact=True)
    held: list[Any] = []
    page.route("**/predict", lambda route: held.append(route))
    for asked in ("I was charged twice", "where is my parcel"):
        text.fill(asked)
        with page.expect_request("**/predict"):
            page.keyboard.press("Control+Enter")
    for _ in range(6000):
        if len(held) < 2:
            page.wait_for_timeout(10)  # which is when it is told of what was held
    first, second = held
    with page.expect_response("**/explain"):
        second.continue_()
    page.wait_for_selector("mark.for")
    shown = page.locator("#said").inner_text()
    with page.expect_response("**/predict"):
        first.continue_()
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
    assert page.locator("#said").inner_text() == shown
    assert page.locator("#words").inner_text().strip() == "where is my parcel"


def test_a_link_leads_to_the_same_answer_and_abstention_is_said(page: Any, servers: dict[str, Server]) -> None:
    page.goto(servers["single"].address + "/#t=hello+there")
    page.wait_for_selector("#result:not([hidden])")
    assert page.locator("#text").input_value() == "hello there"
    assert "would rather not say" in page.locator("#more").inner_text()
    explained(page)
    page.evaluate("location.hash = 't=where+is+my+parcel'")  # as when another link is opened here
    page.locator("#said", has_text="delivery").wait_for()
    assert page.locator("#text").input_value() == "where is my parcel"
    explained(page)


def explained(page: Any) -> None:
    """Wait for the words, or why there are none: while a server explains one text, it refuses the next."""
    page.locator("#words-said").filter(has_text="Looking for").wait_for(state="detached")


def test_a_file_comes_back_labelled(page: Any, servers: dict[str, Server], tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('id,message\n1,"where is my parcel, please?"\n2,"a ""quoted""\nword"\n')
    page.goto(servers["single"].address)
    page.get_by_label("CSV file").set_input_files(tmp_path / "in.csv")
    page.locator("#file-said", has_text="2 rows.").wait_for()  # a function would be evaluated, which the page forbids
    assert page.locator("select.column").input_value() == "message"
    page.get_by_role("button", name="Label all rows").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    text = download.value.path().read_text("utf-8-sig")
    assert text.startswith('id,message,label,score,abstained\n1,"where is my parcel, please?",delivery,0.')
    assert '2,"a ""quoted""\nword",' in text
    page.get_by_label("or paste it here").fill("only a header")
    assert "no rows" in page.locator("#file-said").inner_text()


def test_labels_that_look_like_formulas_are_escaped_in_the_file(page: Any, servers: dict[str, Server]) -> None:
    answers = [{"label": label, "score": 0.5} for label in ("=cmd()", "-1", "+plus", "plain")]
    page.goto(servers["single"].address)
    page.route("**/predict", lambda route: route.fulfill(json={"predictions": answers}))
    page.get_by_label("or paste it here").fill("message\n=one\ntwo\nthree\nfour\n")
    page.get_by_role("button", name="Label all rows").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    _, *rows = csv.reader(download.value.path().read_text("utf-8-sig").splitlines())
    assert [row[:2] for row in rows] == [["=one", "'=cmd()"], ["two", "-1"], ["three", "'+plus"], ["four", "plain"]]


def test_a_file_as_excel_writes_it_keeps_its_columns_beside_the_answers(
    page: Any, servers: dict[str, Server], tmp_path: Path
) -> None:
    """Semicolons, Western letters, a column named as one of an answer's, and rows shorter or longer than the header."""
    (tmp_path / "in.csv").write_bytes("message;label;score\nçà parcel;mine;5\nwhere\nis;it;0;extra\n".encode("cp1252"))
    page.goto(servers["single"].address)
    page.get_by_label("CSV file").set_input_files(tmp_path / "in.csv")
    page.get_by_role("button", name="Label all rows").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    header, *rows = csv.reader(download.value.path().read_text("utf-8-sig").splitlines())
    assert header == ["message", "input_label", "input_score", "column_4", "label", "score", "abstained"]
    assert [row[:4] for row in rows] == [
        ["çà parcel", "mine", "5", ""],
        ["where", "", "", ""],
        ["is", "it", "0", "extra"],
    ]
    assert rows[0][4] == "delivery"


def test_a_pair_takes_two_texts_and_a_token_and_errors_are_shown(page: Any, servers: dict[str, Server]) -> None:
    page.goto(servers["pair"].address)
    page.get_by_label("First text", exact=True).fill("Is it open on Sunday?")
    page.get_by_label("Second text", exact=True).fill("Yes, from ten.")
    page.get_by_role("button", name="Answer").click()
    page.wait_for_selector("#problem:not([hidden])")
    assert "Authorization" in page.get_by_role("alert").inner_text()
    page.get_by_label("Token").fill("t0kën→")
    page.get_by_role("button", name="Answer").click()
    page.wait_for_selector("#result:not([hidden])")
    assert not page.locator("#problem").is_visible()
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.get_by_role("button", name="Copy as Python").click()
    code = page.locator("#copied").text_content()
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TOKEN": "t0kën→"}, capture_output=True, check=False
    )
    assert b"'label'" in done.stdout, done.stderr
