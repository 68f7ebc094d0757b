"""The page in a browser: nothing is requested, nothing fails, nothing is cut off."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def pages(scfs, trained, photos, tmp_path):
    """A page of one run, and one of two."""
    assert scfs("linear", trained, "--data", photos, "--cached", "true", "--epochs", 2, "--workers", 0)[0] == 0
    shutil.copytree(trained, tmp_path / "a-run-with-a-rather-long-name-that-has-no-place-to-break-a-line")
    both = (trained, tmp_path / "a-run-with-a-rather-long-name-that-has-no-place-to-break-a-line")
    assert scfs("report", trained)[0] == 0
    assert scfs("report", *both, "--out", tmp_path / "two.html")[0] == 0
    return [trained / "report" / "index.html", tmp_path / "two.html"]


def test_on_phones_and_desktops(browser, pages, tmp_path):
    for path in pages:
        for width, scheme in ((390, "dark"), (1200, "light")):
            check(browser, path, width, scheme)
    check_print(browser, pages[0], tmp_path / "page.pdf")


def check(browser, path: Path, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    assert problems == []
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    images = page.evaluate("[...document.images].map(image => image.complete && image.naturalWidth > 0)")
    assert len(images) > 50
    assert all(images)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in background.partition("(")[2].rstrip(")").split(",")[:3])
    assert (brightness < 200) == (scheme == "dark")
    page.close()


def check_print(browser, path: Path, pdf: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(path.as_uri())
    page.pdf(path=str(pdf))
    assert pdf.stat().st_size > 10_000
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    heights = page.evaluate("[...document.querySelectorAll('details')].map(part => part.offsetHeight)")
    assert min(heights) > 60  # folded parts are open
    page.close()
