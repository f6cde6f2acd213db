"""The rehearsal's page in a real browser, beside real jobs, logs and buckets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rehearsing import Rehearsal, custom_job, python, rehearsing

WAITING = "import pathlib, time\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.02)\n"
HOSTILE = "<script>alert(1)</script>"
VIEWS = (
    "customJobs", "trainingPipelines", "hyperparameterTuningJobs", "models", "endpoints", "batchPredictionJobs",
    "pipelineJobs", "buckets", "logs", "clients", "methods",
)  # fmt: skip


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("page") / "here", "--grace", "1") as found:
        yield found


@pytest.fixture
def page(browser: Any, rehearsal: Rehearsal) -> Iterator[Any]:
    """A page as wide as a phone that must say nothing wrong and ask nobody else."""
    yield from quiet_page(browser, rehearsal, width=390)


def quiet_page(browser: Any, rehearsal: Rehearsal, *, width: int) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": width, "height": 844})
    context.add_init_script(f"sessionStorage.setItem('rehearsal-token', {json.dumps(rehearsal.token)})")
    opened = context.new_page()
    said: list[str] = []
    asked: set[str] = set()
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("console", lambda message: said.append(message.text))
    opened.on("dialog", lambda dialog: said.append(dialog.message))
    opened.on("request", lambda request: asked.add(request.url.split("/")[2] if "//" in request.url else "data"))
    yield opened
    assert said == []
    assert all(host.partition(":")[0] in ("127.0.0.1", "localhost", "data") for host in asked)
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def upload(rehearsal: Rehearsal, bucket: str, name: str, content: bytes) -> None:
    status, answer = rehearsal.http(
        "POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}", content
    )
    assert status == 200, answer


def test_a_job_appears_and_its_state_and_log_go_on_live(page: Any, rehearsal: Rehearsal, tmp_path: Path) -> None:
    page.goto(rehearsal.address)
    row = page.get_by_role("row").filter(has_text="live job")
    assert row.count() == 0
    code = WAITING.format(str(tmp_path / "go")) + "print('second line', flush=True)\n"
    code += WAITING.format(str(tmp_path / "end")) + "raise SystemExit(3)"
    name = rehearsal.submit(custom_job(python("print('first line', flush=True)\n" + code), name="live job"))
    row.get_by_text("running").wait_for()
    assert "1 × n1-standard-4" in row.inner_text()
    row.get_by_role("link").click()
    log = page.get_by_role("log")
    log.get_by_text("first line").wait_for()
    (tmp_path / "go").touch()
    log.get_by_text("second line").wait_for()
    (tmp_path / "end").touch()
    page.get_by_role("heading", name="live job").get_by_text("failed").wait_for()
    assert "status of 3" in page.locator("p.error").inner_text()
    assert name in page.locator("main").inner_text()
    page.get_by_label("Severity").select_option("ERROR")
    log.get_by_text("second line").wait_for(state="detached")
    log.get_by_text("Job failed").wait_for()
    assert "python -S" in page.get_by_role("row").filter(has_text="workerpool0").inner_text()


def test_names_and_logs_are_shown_as_text(page: Any, rehearsal: Rehearsal) -> None:
    name = rehearsal.submit(
        custom_job(python(f"print({HOSTILE!r}); print('<img src=x onerror=alert(2)>')"), name=HOSTILE)
    )
    rehearsal.wait(name)
    rehearsal.http("POST", "/storage/v1/b?project=demo", {"name": "hostile"})
    upload(rehearsal, "hostile", HOSTILE, b"x")
    page.goto(rehearsal.address)
    page.get_by_role("link", name=HOSTILE).click()
    page.get_by_role("heading", name=HOSTILE).wait_for()
    page.get_by_role("log").get_by_text("<img src=x onerror=alert(2)>").wait_for()
    page.goto(rehearsal.address + "/#logs")
    page.get_by_role("log").get_by_text(HOSTILE).first.wait_for()
    page.goto(rehearsal.address + "/#buckets?bucket=hostile")
    page.get_by_role("link", name="<script>alert(1)</", exact=True).click()
    page.get_by_role("link", name="script>", exact=True).wait_for()
    assert page.evaluate("document.scripts.length") == 1
    page.goto(rehearsal.address + "/#constructor")
    page.get_by_text("Nothing here yet.").wait_for()


def test_buckets_are_browsed_and_objects_downloaded(page: Any, rehearsal: Rehearsal) -> None:
    rehearsal.http("POST", "/storage/v1/b?project=other", {"name": "shelf"})
    content = bytes(range(256)) * 20
    upload(rehearsal, "shelf", "models/a b/weights ünï.bin", content)
    upload(rehearsal, "shelf", "readme.txt", b"hello")
    page.goto(rehearsal.address + "/#buckets")
    page.get_by_role("link", name="shelf").click()
    assert "5 B" in page.get_by_role("row").filter(has_text="readme.txt").inner_text()
    page.get_by_role("link", name="models/").click()
    page.get_by_role("link", name="a b/").click()
    row = page.get_by_role("row").filter(has_text="weights ünï.bin")
    assert "5.1 kB" in row.inner_text()
    generation = rehearsal.http("GET", f"/storage/v1/b/shelf/o/{quote('models/a b/weights ünï.bin', safe='')}")[1][
        "generation"
    ]
    assert generation in row.inner_text()
    with page.expect_download() as download:
        row.get_by_role("link").click()
    assert download.value.suggested_filename == "weights ünï.bin"
    assert download.value.path().read_bytes() == content
    page.get_by_role("link", name="models", exact=True).click()
    page.get_by_role("link", name="a b/").wait_for()


def test_every_view_fits_a_phone_and_says_something(page: Any, rehearsal: Rehearsal) -> None:
    for view in VIEWS:
        page.goto(f"{rehearsal.address}/#{view}")
        page.locator(f"nav a[href='#{view}'][aria-current]").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        assert page.locator("main").inner_text().strip(), view
    page.get_by_label("Method").fill("GetCustomJob")
    page.get_by_text("1 of ").wait_for()
    assert "played" in page.get_by_role("row").filter(has_text="GetCustomJob").inner_text()
    page.goto(f"{rehearsal.address}/#clients")
    port = rehearsal.address.rpartition(":")[2]
    page.get_by_text(f"STORAGE_EMULATOR_HOST=http://localhost:{port}").first.wait_for()


def test_a_long_log_shows_its_end_and_earlier_lines_when_asked(browser: Any, rehearsal: Rehearsal) -> None:
    name = rehearsal.submit(custom_job(python("for i in range(3000): print(f'line {i}.')"), name="talker"))
    rehearsal.wait(name)
    pages = quiet_page(browser, rehearsal, width=1280)
    page = next(pages)
    page.goto(f"{rehearsal.address}/#resource?name={name}")
    log = page.get_by_role("log")
    log.get_by_text("line 2999.").wait_for()
    lines = log.locator("> div")
    assert lines.count() == 500
    page.get_by_role("button", name="Earlier lines").click()
    lines.nth(999).wait_for(state="attached")  # not by an expression: the page's policy lets nobody evaluate one
    assert log.get_by_text("line 2100.").count() == 1
    page.get_by_label("Text").fill("line 7.")
    lines.nth(1).wait_for(state="detached")
    assert "line 7." in lines.inner_text()
    assert next(pages, None) is None


def sent(response: Any) -> str | None:
    """The token that the answered request was sent with."""
    found: str | None = response.request.headers.get("authorization")
    return found


def test_a_token_is_asked_for_once(browser: Any, tmp_path: Path) -> None:
    with rehearsing(tmp_path / "here", VERTEX_REHEARSAL_TOKEN="s3cret") as found:
        assert found.http("GET", "/-/overview", headers={"Authorization": ""})[0] == 401
        context = browser.new_context()
        page = context.new_page()
        refused: list[tuple[str | None, int]] = []
        page.on(
            "response",
            lambda response: refused.append((sent(response), response.status)) if response.status != 200 else None,
        )
        late: list[Any] = []  # the first question about everything is kept until the right token is known
        page.route("**/-/overview", lambda route: route.continue_() if late else late.append(route))
        page.goto(found.address)
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("That was not the token.").wait_for()
        page.get_by_label("Token").fill("s3cret")
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("Nothing here yet.").wait_for()
        with page.expect_response(lambda response: response.status == 401):
            late[0].continue_()
        page.reload()
        page.get_by_text("Nothing here yet.").wait_for()
        found.http("POST", "/storage/v1/b?project=demo", {"name": "shelf"})
        found.http("POST", "/upload/storage/v1/b/shelf/o?uploadType=media&name=a.txt", b"hello")
        page.goto(found.address + "/#buckets?bucket=shelf")
        with page.expect_download() as download:
            page.get_by_role("link", name="a.txt").click()
        assert download.value.path().read_bytes() == b"hello"
        assert set(refused) == {("Bearer wrong", 401)}
        other = context.new_page()  # a tab of its own knows no token but the one in its address
        other.goto(found.facts["clients"]["a browser"])
        other.get_by_text("Nothing here yet.").wait_for()
        assert "s3cret" not in other.url
        context.close()
