"""A headless Chromium for tests of the pages, with a profile of its own; selenium is loaded where a test runs, not before."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium import webdriver
    from selenium.webdriver.remote.webelement import WebElement

TIMEOUT_S = 60.0

_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Keys:
    """Keys that are no characters, as WebDriver names them."""

    END = "\ue010"
    ENTER = "\ue007"
    CONTROL = "\ue009"
    ARROW_LEFT = "\ue012"
    ARROW_RIGHT = "\ue014"
    ARROW_DOWN = "\ue015"


class Browser:
    """What tests do with a page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(url)

    def resize(self, width: int, height: int = 800) -> None:
        """A phone's width too: windows have a least one, a device has none."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """`light` or `dark`, as the system would say."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def find(self, css: str) -> WebElement:
        return self.driver.find_element("css selector", css)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements("css selector", css)

    def text(self, css: str) -> str:
        return self.find(css).text

    def wait(self, is_true: Callable[[], Any]) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, TIMEOUT_S, 0.05).until(lambda _: is_true())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    @property
    def focused(self) -> WebElement:
        return self.driver.switch_to.active_element

    def press(self, *keys: str) -> None:
        for key in keys:
            self.focused.send_keys(key)

    def complaints(self) -> list[str]:
        """What the console has had to say since it was last asked: errors, and what the content policy stopped."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@contextmanager
def running_browser() -> Iterator[Browser]:
    from selenium import webdriver

    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        for argument in (*_ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        options.binary_location = shutil.which("chromium") or ""
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            yield Browser(driver)
        finally:
            driver.quit()
