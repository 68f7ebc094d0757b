import pytest

from scfs.data.unreadable import UnreadableImages, num_allowed, refuse_unreadable
from scfs.errors import UserError


@pytest.mark.parametrize(
    ("images", "fraction", "allowed"),
    [
        (1_000_000, 0.01, 10_000),
        (2000, 0.01, 20),
        (1000, 0.01, 10),
        (100, 0.01, 10),  # a handful is never fatal
        (100, 0.0, 10),
        (21, 0.01, 10),
        (20, 0.01, 9),  # but half of the images is
        (12, 0.9, 5),
        (1000, 0.9, 499),
        (3, 0.01, 1),
        (2, 0.01, 0),
        (1, 1.0, 0),
        (100, 0.29, 29 - 1),  # 0.29 * 100 is a little less than 29
    ],
)
def test_how_many_are_allowed(images, fraction, allowed):
    assert num_allowed(images, fraction) == allowed


def test_an_epoch_of_a_run(tmp_path):
    path = tmp_path / "unreadable.txt"
    path.write_text("c.jpg\n")
    unreadable = UnreadableImages(8, path=path)  # three are allowed: more would be half
    assert list(unreadable.check(1, ["b.jpg", "a.jpg"])) == [
        f"Unreadable, replaced by the next image: {name}" for name in ("a.jpg", "b.jpg")
    ]
    assert list(unreadable.check(1, ["c.jpg"])) == []  # reported before
    assert list(unreadable.check(2, ["a.jpg", "b.jpg", "c.jpg"])) == []  # another epoch
    assert path.read_text() == "c.jpg\na.jpg\nb.jpg\n"
    with pytest.raises(UserError) as caught:
        list(unreadable.check(2, ["c.jpg"]))
    assert str(caught.value) == (
        f"4 of 8 images cannot be read, more than the 3 allowed (all are listed in {path}); repair or remove them."
    )


def test_the_setting_is_named_where_it_helps(tmp_path):
    unreadable = UnreadableImages(100, max_fraction=0.2, path=tmp_path / "unreadable.txt")
    assert len(list(unreadable.check(1, [f"{i}.jpg" for i in range(20)]))) == 20
    with pytest.raises(UserError, match=r"more than the 20 allowed .*, or raise data.max_unreadable\.$"):
        list(unreadable.check(1, ["20.jpg"]))


def test_up_to_ten_are_listed():
    problems = [f"Cannot read image {i:02d}.jpg: it is empty" for i in range(12)]
    refuse_unreadable(problems[:10], 100)
    with pytest.raises(UserError) as caught:
        refuse_unreadable(problems, 100)
    text = str(caught.value)
    assert text.startswith("12 of 100 images cannot be read, more than the 10 allowed (00.jpg: it is empty; 01.jpg")
    assert text.endswith("09.jpg: it is empty; and 2 more); repair or remove them.")
    with pytest.raises(UserError, match=r"09.jpg: it is empty\); repair"):
        refuse_unreadable(problems[:10], 18)


def test_two_with_the_same_name_both_count():
    refuse_unreadable(["caf?.jpg"], 3)
    with pytest.raises(UserError, match="2 of 3 images"):
        refuse_unreadable(["caf?.jpg"] * 2, 3)
