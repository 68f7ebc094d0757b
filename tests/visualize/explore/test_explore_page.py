"""The page of `scfs explore` in a real browser, on scenes, which say where their objects are."""

import io
import re

import numpy as np
import pytest
from explored import TOKEN, served, session_of
from PIL import Image

DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}
# Random weights find this object at the first search layer, with 0.06 in cosine to spare.
SCENE, SIDE = 56, 128
READY = "body[data-busy='0'][data-drawn]"
# Every fourth pixel of a canvas each way: red + green + blue, which in the colours of heat maps grows with the value.
LEVELS = """canvas => {
  const {width, height} = canvas, {data} = canvas.getContext("2d").getImageData(0, 0, width, height);
  const at = (x, y) => [0, 1, 2].reduce((sum, channel) => sum + data[4 * (y * width + x) + channel], 0);
  const every = (length) => Array.from({length: length / 4}, (_, i) => 4 * i + 2);
  return every(height).map((y) => every(width).map((x) => at(x, y)));
}"""


@pytest.fixture(scope="module")
def session():
    settings = {"data": "scenes:60,4", "size": SIDE, "query_size": 64, "sample": 60}
    return session_of("random:resnet10_half", "random:resnet18", **settings)


@pytest.fixture(scope="module")
def address(session, browser):  # noqa: ARG001 - a server only if there is a browser
    with served(session) as found:
        yield f"{found}/?token={TOKEN}"


@pytest.fixture
def page(open_page, address):
    return ready(open_page(address, viewport=DESKTOP))


def ready(page):
    """Wait until everything that was asked for is drawn."""
    page.wait_for_selector(READY)
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.wait_for_selector(READY)
    return page


def heat(page, column=0):
    """The heat map of the image itself as (H, W), in which brighter is larger."""
    return np.array(page.locator(".column").nth(column).locator(".own .heat").evaluate(LEVELS))


def drag(page, start, end, *, touch=False):
    """Drag from a point of the image to another, both as fractions, with a mouse or a finger."""
    page.locator("#picker").scroll_into_view_if_needed()
    area = page.locator("#picker").bounding_box()
    points = [(area["x"] + x * area["width"], area["y"] + y * area["height"]) for x, y in (start, end)]
    if touch:
        touch_drag(page, *points)
    else:
        page.mouse.move(*points[0])
        page.mouse.down()
        page.mouse.move(*points[1], steps=8)
        page.mouse.up()
    ready(page)


def touch_drag(page, start, end):
    finger = page.context.new_cdp_session(page)
    for i in range(9):
        x, y = (a + i / 8 * (b - a) for a, b in zip(start, end, strict=True))
        kind = "touchMove" if i else "touchStart"
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def box_of(page):
    style = page.locator("#box").evaluate("e => [e.style.left, e.style.top, e.offsetWidth, e.offsetHeight]")
    width = page.locator("#picker").bounding_box()["width"]
    return [float(style[0].rstrip("%")) / 100, float(style[1].rstrip("%")) / 100, style[2] / width, style[3] / width]


def go_to(page, index):
    page.locator("#go").fill(str(index))
    page.locator("#go").press("Enter")
    page.get_by_text(f"number {index}", exact=False).wait_for()
    ready(page)


def is_on_object(session, found):
    """Whether the brightest point of a heat map is on the object of the scene."""
    y, x = np.unravel_index(found.argmax(), found.shape)
    mask = session.gallery.source.masks(SCENE)[0]
    return bool(mask[int((y + 0.5) / len(found) * SIDE), int((x + 0.5) / len(found) * SIDE)])


def object_box(session):
    left, top, right, bottom = (float(v) / SIDE for v in session.gallery.source.objects(SCENE).boxes[0])
    width, height = right - left, bottom - top
    return (left + 0.1 * width, top + 0.1 * height), (right - 0.1 * width, bottom - 0.1 * height)


def away_from(point):
    """The corner of the image that is farthest from a point."""
    return tuple(0.06 if value > 0.5 else 0.94 for value in point)


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_a_box_over_an_object_finds_the_object(open_page, address, session, viewport):
    is_phone = viewport is PHONE
    page = ready(open_page(address, viewport=viewport, has_touch=is_phone, is_mobile=is_phone))
    go_to(page, SCENE)
    page.get_by_text("layer2", exact=True).first.click()
    start, end = object_box(session)
    corner = away_from(start)
    drag(page, corner, corner, touch=is_phone)  # a click: the box moves to the background
    elsewhere = heat(page)
    assert not is_on_object(session, elsewhere)
    drag(page, start, end, touch=is_phone)
    found = heat(page)
    assert box_of(page) == pytest.approx([*start, end[0] - start[0], end[1] - start[1]], abs=0.03)
    assert np.abs(found - elsewhere).mean() > 5
    assert is_on_object(session, found)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator(".column").first.locator(".tile").count() == 7


def test_the_first_state_shows_something(page, session):
    assert page.locator(".column").count() == 2
    assert heat(page).std() > 10
    assert [page.locator(".column select").nth(i).input_value() for i in range(2)] == ["0", "1"]
    left, top, right, bottom = session.gallery.source.objects(0).boxes[0] / SIDE
    assert box_of(page) == pytest.approx([left, top, right - left, bottom - top], abs=0.02)
    assert "token" not in page.url
    legends = page.locator(".legend").all()
    values = [[legend.locator(f".{name}").inner_text() for name in ("low", "high")] for legend in legends]
    assert values[0] == values[1]  # one scale for both
    assert re.fullmatch("cosine \N{MINUS SIGN}?[01][.][0-9]{2}", values[0][0])


def test_a_scale_of_its_own_for_each_run(page):
    page.locator("#scale").select_option("own")
    ready(page)
    highs = page.locator(".legend .high").all_inner_texts()
    lows = page.locator(".legend .low").all_inner_texts()
    assert (lows[0], highs[0]) != (lows[1], highs[1])
    page.locator("#scale").select_option("fixed")
    ready(page)
    assert page.locator(".legend .high").all_inner_texts() == ["1.00", "1.00"]


def test_the_keyboard_moves_and_resizes_the_box(page):
    drag(page, (0.02, 0.02), (0.3, 0.25))
    before, seen = box_of(page), heat(page)
    page.locator("#box").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    ready(page)
    moved = box_of(page)
    assert moved == pytest.approx([before[0] + 0.04, before[1] + 0.02, before[2], before[3]], abs=0.011)
    assert np.abs(heat(page) - seen).mean() > 0.5
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    ready(page)
    assert box_of(page) == pytest.approx([moved[0], moved[1], moved[2] + 0.02, moved[3] - 0.02], abs=0.011)
    for _ in range(60):  # against the edge
        page.keyboard.press("ArrowLeft")
    ready(page)
    assert box_of(page)[0] == 0


def test_tab_reaches_every_control_and_shows_where(page):
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => {
              const e = document.activeElement, host = e.closest("label") ?? e;
              const outlined = [e, host].some((each) => getComputedStyle(each).outlineStyle !== "none");
              return [e.id || e.name || e.className || e.getAttribute("role") || e.tagName, outlined];
            }"""
        )
        if focused[0] == "BODY":
            break
        reached.append(focused)
    names = [name for name, _ in reached]
    for name in (
        "box",
        "layer",
        "by",
        "scale",
        "opacity",
        "heat",
        "smooth",
        "run",
        "picture",
        "option",
        "next",
        "go",
        "file",
    ):
        assert name in names, name
    assert all(outlined for _, outlined in reached), reached


def test_the_gallery_by_keyboard(page):
    page.locator("#gallery [aria-selected=true]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_text("number 1", exact=False).wait_for()
    ready(page)
    assert page.locator("#gallery [aria-selected=true]").get_attribute("data-photo") == "1"
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")  # beyond the page
    page.wait_for_selector("#gallery [data-photo='24']:focus")
    assert page.locator("#page-text").inner_text() == "24\N{EN DASH}47 of 60"


def test_layers_runs_and_neighbours_can_be_switched(page):
    deep = page.get_by_text("layer4", exact=True).first
    before = heat(page)
    deep.click()
    ready(page)
    assert np.abs(heat(page) - before).mean() > 2
    assert "layer4, 4 \N{MULTIPLICATION SIGN} 4 positions" in page.locator(".about").first.inner_text()
    page.locator(".column select").first.select_option("1")
    ready(page)
    np.testing.assert_array_equal(heat(page, 0), heat(page, 1))
    page.locator(".column select").first.select_option("0")
    page.locator("#by").select_option("1")
    ready(page)
    photos = [
        [tile.get_attribute("data-photo") for tile in column.locator(".tile").all()]
        for column in page.locator(".column").all()
    ]
    assert photos[0] == photos[1]


def test_the_heat_map_can_be_hidden(page):
    page.locator("h1").click()
    page.keyboard.press("h")
    assert not page.locator(".own .heat").first.is_visible()
    page.keyboard.press("h")
    assert page.locator(".own .heat").first.is_visible()


def test_a_neighbour_becomes_the_image(page):
    tile = page.locator(".column").first.locator(".tile").nth(2)
    photo = tile.get_attribute("data-photo")
    tile.locator(".picture").click()
    page.get_by_text(f"number {photo}", exact=False).wait_for()
    ready(page)
    assert page.locator(".column").first.locator(".own").get_attribute("data-photo") == photo


def test_a_photo_of_ones_own(page):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)).save(buffer, "PNG")
    page.locator("#file").set_input_files({"name": "<b>.png", "mimeType": "image/png", "buffer": buffer.getvalue()})
    page.wait_for_selector("#gallery [data-photo^=own][aria-selected=true]")
    ready(page)
    assert page.locator("#photo-title").inner_text() == "your photo"
    area = page.locator("#picker").bounding_box()
    assert area["width"] / area["height"] == pytest.approx(1.5, abs=0.02)
    assert page.locator(".column").first.locator(".tile").count() == 7


def test_colours_are_those_of_inferno(page):
    from matplotlib import colormaps

    canvas = page.locator(".legend canvas").first
    found = canvas.evaluate("e => Array.from(e.getContext('2d').getImageData(0, 0, 256, 1).data)")
    expected = np.array([colormaps["inferno"](i, bytes=True) for i in range(256)])
    assert np.abs(np.array(found).reshape(256, 4) - expected).max() <= 8
