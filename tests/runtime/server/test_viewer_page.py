"""The page in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_lite.runtime.engine.engine import Engine
from tests.records.support import recorded
from tests.support.browser import Browser, Keys, running_browser
from tests.support.live_server import LiveServer, live_server
from tests.support.talking_engine import TalkingRunner

pytestmark = pytest.mark.browser

ATTACK = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'


@pytest.fixture(scope="module")
def shared_browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture
def browser(shared_browser: Browser) -> Browser:
    shared_browser.resize(1280)
    shared_browser.prefer("light")
    shared_browser.open("about:blank")
    shared_browser.complaints()
    return shared_browser


@pytest.fixture
def page(browser: Browser, server: LiveServer, runner: TalkingRunner) -> Browser:
    browser.open(server.url + "/")
    browser.run("sessionStorage.clear(); localStorage.clear()")
    browser.open("about:blank")
    browser.open(server.url + "/")
    browser.wait(lambda: browser.text("#model"))
    return browser


def write(page: Browser, css: str, text: str) -> None:
    page.run("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))", page.find(css), text)


def choose_mode(page: Browser, mode: str) -> None:
    page.run("arguments[0].click()", page.find(f"input[name=mode][value={mode}]"))


def kinds(page: Browser, css: str) -> list[str]:
    return page.run("return [...document.querySelectorAll(arguments[0])].map(e => e.className.split(' ')[0])", css)


def test_a_chat_shows_tokens_with_their_kind_and_log_probability(page: Browser, runner: TalkingRunner) -> None:
    runner.replies["Hi"] = "Hello you."
    page.find("#text").send_keys("Hi", Keys.CONTROL, Keys.ENTER)
    page.wait(lambda: page.text(".counts"))
    assert page.text(".turn.is-assistant > div") == "Hello you."
    tokens = page.all(".turn.is-assistant > div .tokens > span")
    assert len(tokens) == len("Hello you.")
    assert set(kinds(page, ".turn.is-assistant > div .tokens > span")) == {"t-sampled"}
    assert "log-probability -0." in tokens[0].get_attribute("title")
    assert set(kinds(page, ".turn details .tokens > span")) <= {"t-cached", "t-computed"}
    runner.replies["Again"] = "Once more."
    page.find("#text").send_keys("Again", Keys.CONTROL, Keys.ENTER)
    page.wait(lambda: len(page.all(".counts")) == 2 and page.all(".counts")[1].text)
    assert b"Hello you." in runner.prompts[-1]
    assert "t-cached" in kinds(page, ".turn:last-child details .tokens > span")
    assert page.complaints() == []


def test_arrow_keys_go_through_the_tokens(page: Browser, runner: TalkingRunner) -> None:
    runner.replies["Hi"] = "abc"
    page.find("#text").send_keys("Hi", Keys.CONTROL, Keys.ENTER)
    page.wait(lambda: page.text(".counts"))
    page.run("document.querySelector('.turn.is-assistant > div .tokens').focus()")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.text("#token-info").startswith("“b” · sampled · log-probability")


def test_a_prompt_runs_under_a_constraint(page: Browser) -> None:
    choose_mode(page, "prompt")
    write(page, "#text", "Say it: ")
    write(page, "#constraint", "regex")
    write(page, "#constraint-text", "yes")
    page.find("#run").click()
    page.wait(lambda: page.text("#output .counts"))
    outputs = page.all("#output .tokens")
    assert [box.text.strip() for box in outputs] == ["Say it:", "yes"]
    write(page, "#constraint-text", "refuse me")
    page.find("#run").click()
    page.wait(lambda: page.text("#problem"))
    assert "refused as asked" in page.text("#problem")


def test_a_request_tree_is_run_and_shown_with_reuse(page: Browser) -> None:
    choose_mode(page, "tree")
    page.find("#run").click()
    page.wait(lambda: page.all("#tree-output .tree") and page.find("#run").is_enabled())
    names = [node.text for node in page.all("#tree-output .node.is-call .node-name b")]
    assert names == ["fact", "poem", "salty"]
    assert page.all("#tree-output .node-cost .is-cached")
    write(page, "#text", "{")
    page.find("#run").click()
    page.wait(lambda: "no JSON" in page.text("#problem"))


def test_text_of_a_model_is_never_markup(page: Browser, runner: TalkingRunner) -> None:
    runner.replies["Hi"] = ATTACK
    page.find("#text").send_keys("Hi" + ATTACK, Keys.CONTROL, Keys.ENTER)
    page.wait(lambda: page.text(".counts"))
    assert page.text(".turn.is-assistant > div") == ATTACK
    for tab in ("programs", "cache", "load"):
        page.find(f"#tab-{tab}").click()
        page.wait(lambda tab=tab: page.find(f"#view-{tab}").is_displayed())
    page.wait(lambda: page.all("#requests td"))
    assert page.run("return window.broken") is None
    assert page.run("return document.images.length") == 0


def test_tabs_and_trees_work_by_keyboard(page: Browser, server: LiveServer) -> None:
    ops = [
        {"op": "text", "id": 0, "branch": 0, "text": "a"},
        {"op": "fork", "id": 1, "branch": 0, "children": [1, 2]},
        {"op": "gen", "id": 2, "branch": 1, "name": "one", "params": {"max_new_tokens": 4}},
        {"op": "gen", "id": 3, "branch": 2, "name": "two", "params": {"max_new_tokens": 4}},
    ]
    server.post("/v1/programs", {"ops": ops, "close": True, "stream": True})
    page.find("#tab-play").send_keys(Keys.ARROW_RIGHT)
    assert page.focused.get_attribute("id") == "tab-programs"
    page.wait(lambda: len(page.all("#program .node.is-call")) == 2)
    page.run("document.querySelector('#program .node').focus()")
    page.press(Keys.ARROW_DOWN)
    assert page.focused.get_attribute("aria-label") == "fork into 2, done"
    page.press(Keys.ARROW_LEFT)
    assert page.focused.get_attribute("aria-expanded") == "false"
    assert not page.find("#program .node.is-call").is_displayed()
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ENTER)
    assert page.focused.get_attribute("aria-label") == "gen one, done"
    assert "seed" in page.text("#program .node-detail")
    page.find("#tab-programs").send_keys(Keys.END)
    assert page.focused.get_attribute("id") == "tab-load"


def test_the_radix_tree_shows_what_is_kept_and_what_went(page: Browser, server: LiveServer) -> None:
    server.post(
        "/generate", {"text": "a prompt of more than a page of tokens", "sampling_params": {"max_new_tokens": 2}}
    )
    page.find("#tab-cache").click()
    page.wait(lambda: "a prompt of more" in page.text("#radix"))
    server.post("/flush_cache", {})
    page.wait(lambda: page.all("#radix .is-gone"))


def test_running_requests_are_listed(page: Browser, server: LiveServer, talking: tuple[Engine, TalkingRunner]) -> None:
    engine, _ = talking
    page.find("#tab-load").click()
    page.wait(lambda: "None at the moment." in page.text("#requests"))
    stream = engine.generate("wait", {"max_new_tokens": 400, "ignore_eos": True}, stream=True, rid="the-one")
    assert not isinstance(stream, dict | list)
    next(stream)
    shown = server.http.get("/viewer/statistics").json()["requests"]
    assert [one["rid"] for one in shown] in (["the-one"], [])  # it may have ended already
    list(stream)
    page.wait(lambda: page.run("return document.querySelectorAll('.chart path[d]').length") == 7)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_system_and_the_button(page: Browser, scheme: str) -> None:
    page.prefer(scheme)
    shades = {"light": "rgb(246, 247, 249)", "dark": "rgb(18, 21, 26)"}
    background = "return getComputedStyle(document.body).backgroundColor"
    assert page.run(background) == shades[scheme]
    page.find("#theme").click()
    assert page.run(background) == shades["light"]
    page.find("#theme").click()
    assert page.run(background) == shades["dark"]


def test_the_playground_fits_a_phone(page: Browser, server: LiveServer, runner: TalkingRunner) -> None:
    page.resize(375, 720)
    page.open("about:blank")
    page.open(server.url + "/")
    page.wait(lambda: page.text("#model"))
    page.run("document.getElementById('model').textContent = 'A-Model-With-A-Very-Long-Name-Instruct.Q4_K_M'")
    runner.replies["Hi"] = "a long answer " * 12
    page.find("#text").send_keys("Hi")
    page.find("#run").click()
    page.wait(lambda: page.text(".counts"))
    assert page.run("return document.documentElement.scrollWidth") <= 375
    assert page.run("return document.getElementById('run').getBoundingClientRect().height") >= 44
    for tab in ("programs", "cache", "load"):
        page.find(f"#tab-{tab}").click()
        page.wait(lambda tab=tab: page.find(f"#view-{tab}").is_displayed())
        assert page.run("return document.documentElement.scrollWidth") <= 375, tab


def test_a_server_with_keys_asks_for_one(browser: Browser, talking: tuple[Engine, TalkingRunner]) -> None:
    with live_server(talking[0], api_keys=("secret",)) as server:
        browser.open(server.url + "/")
        browser.wait(lambda: browser.find("#key-form").is_displayed())
        browser.find("#key").send_keys("secret", Keys.ENTER)
        browser.wait(lambda: browser.text("#model"))
        assert not browser.find("#key-form").is_displayed()


def test_numbers_only_has_no_playground(browser: Browser, talking: tuple[Engine, TalkingRunner]) -> None:
    with live_server(talking[0], viewer="stats") as server:
        browser.open(server.url + "/")
        browser.wait(lambda: browser.text("#model"))
        assert not browser.find("#tab-play").is_displayed()
        assert browser.find("#view-programs").is_displayed()


def test_the_page_of_a_record_stands_alone(browser: Browser, tmp_path: Path) -> None:
    record = recorded(ATTACK)
    path = tmp_path / "record.html"
    path.write_text(record.to_html(), encoding="utf-8")
    browser.open(path.as_uri())
    browser.wait(lambda: browser.all(".tree"))
    names = [node.text for node in browser.all(".node.is-call .node-name b")]
    assert names == ["topic", "idea", "idea", "pick", "last"]
    assert json.dumps(ATTACK)[1:10] in json.dumps([node.text for node in browser.all(".node-value")])
    assert browser.run("return window.broken") is None
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    browser.find(".legend input").click()
    assert not browser.all(".node")[0].is_displayed()
    assert browser.complaints() == []
