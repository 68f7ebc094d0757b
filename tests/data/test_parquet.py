import io
import json
import multiprocessing
import pickle

import pytest
from PIL import Image

from scfs.data import parquet
from scfs.data.decode import Fault, Unreadable
from scfs.data.sources import open_labelled, open_train
from scfs.errors import UserError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

NAMES = ["cat", "dog", "cow"]


def png(number):
    buffer = io.BytesIO()
    Image.new("RGB", (6, 4), (number, 50, 200)).save(buffer, "PNG")
    return buffer.getvalue()


def write(path, numbers, *, image="image", label="label", names=NAMES, struct=True, first=0, rows=2):
    """As `datasets` writes them: a struct of bytes and path, class names in the schema's metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = [png(first + i) for i in range(len(numbers))]
    images = [{"bytes": b, "path": f"{i}.png"} for i, b in enumerate(data)] if struct else data
    columns = {"id": list(range(len(numbers))), image: images}
    columns |= {label: pa.array(numbers, pa.int64())} if label else {}
    table = pa.table(columns)
    if names:
        features = {image: {"_type": "Image"}, label: {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=rows)
    return path


def reds(source):
    return [source.image(i).getpixel((0, 0))[0] for i in range(len(source))]


@pytest.fixture
def dataset(tmp_path):
    """The layout of a data set's repository, with row groups of two rows."""
    root = tmp_path / "set"
    write(root / "data" / "train-00000-of-00002.parquet", [0, 1, 2, 0, 1])
    write(root / "data" / "train-00001-of-00002.parquet", [2, 2, 1], first=5)
    write(root / "data" / "validation-00000-of-00001.parquet", [1, 0], first=100)
    write(root / "data" / "test-00000-of-00001.parquet", [-1, -1, -1], first=200)
    (root / "README.md").touch()
    return root


def test_a_data_sets_repository(dataset):
    train, val = open_labelled(str(dataset))
    assert train.classes == val.classes == tuple(NAMES)
    assert reds(train) == reds(open_train(str(dataset))) == list(range(8))
    assert reds(val) == [100, 101]
    assert [train.label(i) for i in range(8)] == [0, 1, 2, 0, 1, 2, 2, 1]
    assert [val.label(i) for i in range(2)] == [1, 0]
    assert train.name(0) == f"{dataset}/data/train-00000-of-00002.parquet/0"
    assert train.name(6) == f"{dataset}/data/train-00001-of-00002.parquet/1"


@pytest.mark.parametrize("labels", [[-1, -1, -1], [0, -1, 2]])
def test_hidden_labels_of_a_test_split_do_not_hide_those_of_train(dataset, caplog, labels):
    """Every fifth train image is then for evaluation."""
    next((dataset / "data").glob("validation-*")).unlink()
    write(dataset / "data" / "test-00000-of-00001.parquet", labels, first=200)
    write(dataset / "data" / "train-00000-of-00002.parquet", [0, 1, 2] * 5)
    write(dataset / "data" / "train-00001-of-00002.parquet", [0, 1, 2], first=15)
    train, val = open_labelled(str(dataset))
    assert train.classes == val.classes == tuple(NAMES)
    assert sorted(reds(train) + reds(val)) == list(range(18))
    assert reds(val) == [12, 13, 14]
    assert caplog.messages == ["Labels of the val images are hidden: evaluations take every fifth train image instead."]


def test_any_order_of_access(dataset):
    source = open_train(str(dataset))
    for i in (7, 0, 4, 5, 3, 6, 1, 2, 2, 7):
        assert source.image(i).getpixel((0, 0))[0] == i


@pytest.mark.parametrize(
    "pattern", ["data/*.parquet", "data/train-{00000..00001}-of-00002.parquet", "**/train-*.parquet"]
)
def test_patterns(dataset, pattern):
    assert len(open_train(str(dataset / pattern))) == 8


def test_one_file_and_its_held_out_fifth(tmp_path):
    path = write(tmp_path / "a.parquet", [0, 1] * 5)
    train, val = open_labelled(str(path))
    assert reds(val) == [8, 9]
    assert len(train) == 8


@pytest.mark.parametrize("folder", ["", "train"])
def test_files_in_a_folder(tmp_path, folder):
    write(tmp_path / "set" / folder / "0000.parquet", [0, 1])
    assert reds(open_train(str(tmp_path / "set"))) == [0, 1]


def test_plain_bytes_and_numbered_classes(tmp_path):
    source = open_train(str(write(tmp_path / "a.parquet", [7, 3], image="img", names=None, struct=False)))
    assert reds(source) == [0, 1]
    assert source.classes == ("3", "7")
    assert source.label(0) == 1


def test_other_column_names_from_metadata(tmp_path):
    source = open_train(str(write(tmp_path / "a.parquet", [2, 0], image="photo", label="fine_label")))
    assert reds(source) == [0, 1]
    assert (source.classes, source.label(0)) == (tuple(NAMES), 2)


def test_the_column_called_image_comes_first(tmp_path):
    table = pa.table({"mask": [png(9)], "image": [png(5)], "img": [png(7)]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert reds(open_train(str(tmp_path / "a.parquet"))) == [5]


@pytest.mark.parametrize(("numbers", "label"), [([0, None], "label"), ([0, -1], "label"), ([0, 1], "")])
def test_without_labels(tmp_path, numbers, label):
    path = write(tmp_path / "a.parquet", numbers, label=label, names=None)
    assert open_train(str(path)).classes == ()
    with pytest.raises(UserError, match="have no labels"):
        open_labelled(str(path))


def test_bad_rows_are_unreadable(tmp_path):
    images = [
        {"bytes": None, "path": "far.png"},
        None,
        {"bytes": b"no image", "path": ""},
        {"bytes": png(3), "path": ""},
    ]
    pq.write_table(pa.table({"image": images}), tmp_path / "a.parquet")
    source = open_train(str(tmp_path / "a.parquet"))
    for i, reason in enumerate(["no bytes", "no bytes", "not an image"]):
        with pytest.raises(Unreadable, match=reason) as caught:
            source.image(i)
        assert caught.value.name == f"{tmp_path}/a.parquet/{i}"
    assert source.image(3).getpixel((0, 0))[0] == 3


def test_a_damaged_row_group_is_unreadable(tmp_path):
    path = write(tmp_path / "a.parquet", [0, 1, 2, 0])
    column = pq.read_metadata(path).row_group(1).column(1)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 40] = b"\xff" * 40
    path.write_bytes(data)
    source = open_train(str(path))
    assert source.image(0).size == (6, 4)
    with pytest.raises(Unreadable):
        source.image(3)


@pytest.mark.parametrize("content", [b"", b"no parquet", None])
def test_damaged_files(dataset, content):
    path = dataset / "data" / "train-00001-of-00002.parquet"
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    with pytest.raises(UserError, match=r"Cannot read parquet file .*train-00001-of-00002.parquet: ") as caught:
        open_train(str(dataset))
    assert "\n" not in str(caught.value)


def test_no_image_column(tmp_path):
    pq.write_table(pa.table({"text": ["a"], "label": [1]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"has no column of images \(it has text, label\); give one with bytes"):
        open_train(str(tmp_path / "a.parquet"))


def test_files_with_different_columns(dataset):
    write(dataset / "data" / "train-00001-of-00002.parquet", [1], image="photo")
    with pytest.raises(UserError, match=r"train-00001-of-00002.parquet has no image column 'image'"):
        open_train(str(dataset))


def test_no_rows(tmp_path):
    path = write(tmp_path / "a.parquet", [0])
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(UserError, match="has no rows"):
        open_train(str(path))


def test_without_pyarrow(dataset, monkeypatch):
    monkeypatch.setattr("scfs.extras.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"Reading parquet files needs pyarrow: pip install 'scfs\[parquet\]'"):
        open_train(str(dataset))


def test_sources_survive_pickling(dataset):
    source = open_train(str(dataset))
    source.image(0)
    assert reds(pickle.loads(pickle.dumps(source))) == list(range(8))


def test_a_forked_process_opens_its_own_files(dataset):
    source = open_train(str(dataset))
    source.image(3)  # opens a file and caches a row group
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(reds, (source,)) == list(range(8))


def test_row_groups_are_cached(dataset):
    source = open_train(str(dataset))
    parquet._row_group.cache_clear()
    reds(source)
    assert parquet._row_group.cache_info().misses == 5
    assert parquet._row_group.cache_info().hits == 3


def test_equal_images_that_expand_to_gigabytes(tmp_path, monkeypatch):
    """A dictionary stores them once; no more of them than allowed is in memory at a time."""
    monkeypatch.setattr(parquet, "MIN_LIMIT", 2**20)
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"image": pa.array([bytes(10_000)] * 3000, pa.binary())}), path, compression="zstd")
    assert path.stat().st_size < 2000
    source = open_train(str(path))
    before = pa.total_allocated_bytes()
    for index in (0, 1, 2999):
        with pytest.raises(Unreadable, match="row group expands to more than 1,048,576 bytes") as error:
            source.image(index)
        assert error.value.fault is Fault.TOO_LARGE
    assert pa.total_allocated_bytes() - before < 2**22


def test_a_row_group_that_compresses_too_well_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "MIN_LIMIT", 2**20)
    path = tmp_path / "bomb.parquet"
    images = pa.array([bytes([i % 256]) * 100_000 for i in range(100)], pa.binary())
    pq.write_table(pa.table({"image": images}), path, compression="zstd", use_dictionary=False)
    source = open_train(str(path))
    monkeypatch.setattr(parquet, "BATCH", None)  # reading would fail
    with pytest.raises(Unreadable, match="row group expands to more than"):
        source.image(0)


def test_more_rows_than_a_file_can_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "MIN_ROWS", 1000)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"image": pa.array([b"x"] * 5000, pa.binary())}), path)
    with pytest.raises(UserError, match="its 5000 rows cannot all hold images"):
        open_train(str(path))


@pytest.mark.parametrize("names", [7, "cat", [1, 2, 3], {"a": 1}])
def test_absurd_class_names(tmp_path, names):
    path = write(tmp_path / "a.parquet", [0, 1, 2], names=names)
    assert len(open_train(str(path)).classes) == 3


def test_labels_of_more_than_64_bits(tmp_path):
    table = pa.table({"image": [png(1)], "label": pa.array([2**64 - 1], pa.uint64())})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match="Cannot read parquet file"):
        open_train(str(tmp_path / "a.parquet"))
