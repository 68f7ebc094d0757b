import pytest

from scfs.data.sources import open_labelled, open_train
from scfs.errors import UserError


def write(path, *lines):
    path.write_bytes(b"\n".join(line.encode() for line in lines) + b"\n")
    return str(path)


def names(source):
    return [source.name(i) for i in range(len(source))]


def test_paths_relative_to_the_lists_folder(photos):
    absolute = str(photos / "cats" / "5.jpg")
    source = open_train(write(photos / "a.txt", "# mine", "dogs/1.jpg", "", "  ", "cats/0.jpg\r", absolute))
    assert names(source) == [str(photos / "dogs" / "1.jpg"), str(photos / "cats" / "0.jpg"), absolute]
    assert source.classes == ()
    assert source.image(2).size == (48, 40)


def test_labels_after_a_tab(photos):
    source = open_train(write(photos / "a.txt", "dogs/1.jpg\tdog", "cats/0.jpg\tcat", "cats/1.jpg\tcat"))
    assert source.classes == ("cat", "dog")
    assert [source.label(i) for i in range(3)] == [1, 0, 0]


def test_numeric_labels_are_sorted_by_number(photos):
    source = open_train(write(photos / "a.txt", "dogs/1.jpg\t10", "cats/0.jpg\t9"))
    assert source.classes == ("9", "10")


def test_every_fifth_of_a_list_is_held_out(photos):
    lines = [f"{name}/{i}.jpg\t{name}" for i in range(6) for name in ("cats", "dogs")]
    train, val = open_labelled(write(photos / "a.txt", *lines))
    assert names(val) == [str(photos / name / "4.jpg") for name in ("cats", "dogs")]
    assert len(train) == 10


def test_a_byte_order_mark_is_not_part_of_the_first_path(photos):
    (photos / "a.txt").write_bytes(b"\xef\xbb\xbfcats/0.jpg\n")
    assert names(open_train(str(photos / "a.txt"))) == [str(photos / "cats" / "0.jpg")]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            ["cats/0.jpg", "cats/9.jpg", "birds/1.jpg"],
            r"2 of the 3 images that .*a.txt names do not exist, the first .*cats/9.jpg",
        ),
        (["cats/0.jpg\tcat", "cats/1.jpg"], "labels some images but not cats/1.jpg"),
        (["# nothing"], "is empty"),
        (["\0"], "is not a text file"),
    ],
)
def test_bad_lists(photos, lines, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        open_train(write(photos / "a.txt", *lines))
    assert "\n" not in str(caught.value)


def test_missing_list(photos):
    with pytest.raises(UserError, match=r"Cannot read list .*none.txt: No such file"):
        open_train(str(photos / "none.txt"))


@pytest.fixture
def cows(photos):
    """A third class, between the others."""
    (photos / "cows").mkdir()
    for i in range(5):
        (photos / "cows" / f"{i}.jpg").write_bytes((photos / "cats" / f"{i}.jpg").read_bytes())
    return photos


def test_a_class_list_chooses_and_orders(cows, tmp_path):
    chosen = write(tmp_path / "classes.txt", "# two of three", "dogs\tman's best friend", "cows")
    source = open_train(str(cows), classes=chosen)
    assert source.classes == ("dogs", "cows")
    for i in range(len(source)):
        assert source.classes[source.label(i)] in source.name(i)
    assert len(source) == 11
    assert source.image(0).size == (48, 40)


def test_a_class_list_for_evaluation(cows, tmp_path):
    chosen = write(tmp_path / "classes.txt", "dogs", "cows")
    train, val = open_labelled(str(cows), classes=chosen)
    assert train.classes == val.classes == ("dogs", "cows")
    assert (len(train), len(val)) == (9, 2)
    assert {val.classes[val.label(i)] for i in range(2)} == {"dogs", "cows"}


def test_a_class_list_over_train_and_val(cows, tmp_path):
    """Classes that only one of them has do not matter if they are not listed."""
    root = tmp_path / "set"
    root.mkdir()
    cows.rename(root / "train")
    (root / "val").mkdir()
    (root / "train" / "cows").rename(root / "val" / "cows")
    (root / "val" / "dogs").mkdir()
    (root / "val" / "cats").mkdir()
    for name in ("dogs", "cats"):
        (root / "train" / name / "0.jpg").rename(root / "val" / name / "0.jpg")
    train, val = open_labelled(str(root), classes=write(tmp_path / "classes.txt", "dogs", "cats"))
    assert (len(train), len(val)) == (10, 2)


def test_a_class_list_over_scenes(tmp_path):
    train, val = open_labelled("scenes:40,20", classes=write(tmp_path / "classes.txt", "ringed star", "dotted disc"))
    assert (len(train), len(val)) == (8, 4)
    assert sorted(train.label(i) for i in range(8)) == [0] * 4 + [1] * 4


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["dogs", "cat"], "names class 'cat', which the data does not have; did you mean 'cats'?"),
        (["dogs", "cows", "dogs"], "names 'dogs' twice"),
        ([""], "is empty"),
    ],
)
@pytest.mark.parametrize("opener", [open_train, open_labelled])
def test_bad_class_lists(cows, tmp_path, opener, lines, sentence):
    with pytest.raises(UserError) as caught:
        opener(str(cows), classes=write(tmp_path / "classes.txt", *lines))
    assert sentence in str(caught.value)


def test_a_class_list_without_labels(photos, tmp_path):
    with pytest.raises(UserError, match="have no labels"):
        open_train(str(photos / "cats"), classes=write(tmp_path / "classes.txt", "cats"))


def test_labels_of_thousands_of_digits(photos):
    numbers = ["9" * 5000, "1"]
    (photos / "list.txt").write_text("".join(f"cats/{i}.jpg\t{number}\n" for i, number in enumerate(numbers)))
    assert open_train(str(photos / "list.txt")).classes == ("1", "9" * 5000)
