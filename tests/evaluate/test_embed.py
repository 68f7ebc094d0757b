import io
import math
import os
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from scfs.backbones import load_backbone
from scfs.console import PlainConsole
from scfs.data.views import centre_view, normalize
from scfs.errors import UserError
from scfs.evaluate.embed import Match, embed, most_similar
from scfs.evaluate.feature_files import write_features
from scfs.evaluate.settings import Embed
from scfs.recipe import check

TARGET = "random:resnet10_half"
FAST = {"size": 32, "workers": 0, "device": "cpu", "batch_size": 5}


def run(data, out=None, target=TARGET, **flags):
    """The matches, and what was printed."""
    printed = io.StringIO()
    found = embed(target, str(data), out, check(Embed, FAST, flags), PlainConsole(file=printed, width=200))
    return found, printed.getvalue()


@torch.no_grad()
def by_hand(path):
    backbone = load_backbone(TARGET).backbone.eval()
    return backbone(normalize(centre_view(Image.open(path), 32))[None])[0][0]


@pytest.mark.parametrize("labelled", [True, False])
def test_features_are_in_the_order_of_their_names(photos, tmp_path, labelled):
    if not labelled:
        (photos / "cats" / "0.jpg").rename(photos / "0.jpg")
    _, printed = run(photos, tmp_path / "f.npy")
    features, names = np.load(tmp_path / "f.npy"), (tmp_path / "f.txt").read_text().splitlines()
    assert (features.dtype, features.shape) == (np.float32, (12, 256))
    assert sorted(names) == sorted(str(path) for path in photos.rglob("*.jpg"))
    for name, feature in zip(names, features, strict=True):
        np.testing.assert_allclose(feature, by_hand(name), rtol=1e-4, atol=1e-5)
    assert f"{tmp_path / 'f.npy'}: 12 x 256 features" in printed


def test_a_train_folder_does_not_hide_the_other_images(photos, tmp_path):
    (photos / "cats").rename(photos / "train")
    run(photos, tmp_path / "f.npy")
    assert len(np.load(tmp_path / "f.npy")) == 12


def test_the_embedded_data(tmp_path):
    run("scenes:4,2", tmp_path / "f.npy")
    assert len(set((tmp_path / "f.txt").read_text().splitlines())) == len(np.load(tmp_path / "f.npy")) == 4


def test_parquet(photos, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    run(photos, tmp_path / "f.parquet")
    run(photos, tmp_path / "f.npy")
    table = parquet.read_table(tmp_path / "f.parquet")
    assert str(table.schema.field("feature").type.value_type) == "float"
    assert table["path"].to_pylist() == (tmp_path / "f.txt").read_text().splitlines()
    np.testing.assert_array_equal(np.array(table["feature"].to_pylist(), np.float32), np.load(tmp_path / "f.npy"))


def test_parquet_in_several_row_groups(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("scfs.evaluate.feature_files.ROWS", 2)
    features = torch.arange(15.0).reshape(5, 3)
    write_features(tmp_path / "f.parquet", list("abcde"), features)
    table = parquet.read_table(tmp_path / "f.parquet")
    assert table["path"].to_pylist() == list("abcde")
    assert table["feature"].to_pylist() == features.tolist()


def test_parquet_without_pyarrow(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"needs pyarrow: pip install 'scfs\[parquet\]'"):
        run(photos, tmp_path / "f.parquet")


def test_most_similar_equals_loops():
    generator = torch.Generator().manual_seed(0)
    features, query = torch.randn(9, 4, generator=generator), torch.randn(4, generator=generator)
    names = [f"{i}.jpg" for i in range(9)]
    expected = []
    for name, feature in zip(names, features.tolist(), strict=True):
        dot = sum(a * b for a, b in zip(feature, query.tolist(), strict=True))
        length = math.sqrt(sum(a * a for a in feature)) * math.sqrt(sum(a * a for a in query.tolist()))
        expected.append(Match(dot / length, name))
    expected.sort(reverse=True)
    for k, count in ((3, 3), (100, 9)):
        found = most_similar(features, names, query, k)
        assert [match.name for match in found] == [match.name for match in expected[:count]]
        assert [match.cosine for match in found] == pytest.approx(
            [match.cosine for match in expected[:count]], abs=1e-6
        )


def test_a_query_finds_itself(photos, tmp_path):
    query = photos / "dogs" / "3.jpg"
    found, printed = run(photos, query=str(query), nearest="3")
    assert len(found) == 3
    assert found[0].name == str(query)
    assert found[0].cosine == pytest.approx(1, abs=1e-5)
    assert printed.split()[:2] == ["1.0000", str(query)]
    assert not list(tmp_path.glob("*.npy"))
    again, _ = run(photos, tmp_path / "f.npy", query=str(query), nearest="3")
    assert again == found
    assert (tmp_path / "f.npy").exists()


@pytest.mark.parametrize(
    ("out", "options", "reason"),
    [
        ("f.csv", {}, "name it .npy or .parquet"),
        ("nowhere/f.npy", {}, "Cannot write .*No such file"),
        (None, {}, "needs a file to write, or --query"),
        (None, {"query": "a.jpg"}, "go together"),
        ("f.npy", {"nearest": "3"}, "go together"),
        (None, {"query": "nowhere.jpg", "nearest": "1"}, "Cannot read image nowhere.jpg.*give --query an image"),
        ("f.npy", {"target": "nowhere"}, "Nothing at nowhere"),
        ("f.npy", {"target": "random:vit_tiny_patch16_224", "size": "40"}, "cannot take images of 40 x 40"),
        ("f.npy", {"sise": "3"}, "Did you mean 'size'"),
    ],
)
def test_bad_input_is_refused_before_computing(photos, tmp_path, monkeypatch, out, options, reason):
    monkeypatch.setattr("scfs.evaluate.embed.extract_readable", lambda *_, **__: pytest.fail("computed"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=reason):
        run(photos, out and tmp_path / out, **options)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["f.npy", "f.txt"])
def test_nothing_is_overwritten(photos, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match=f"{name} exists and is not overwritten"):
        run(photos, tmp_path / "f.npy")
    assert (tmp_path / name).read_text() == "mine"


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.save", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_features(tmp_path / "f.npy", ["a"], torch.ones(1, 2))
    assert list(tmp_path.iterdir()) == []


def test_unreadable_images_are_left_out_and_listed_however_many(photos, tmp_path):
    for path in photos.glob("cats/*.jpg"):
        path.write_bytes(b"no image")
    _, printed = run(photos, tmp_path / "f.npy")
    assert printed.splitlines()[-1].startswith("Unreadable, left out: ")
    assert printed.count("Unreadable, left out: ") == 6
    assert len(np.load(tmp_path / "f.npy")) == len((tmp_path / "f.txt").read_text().splitlines()) == 6
    for path in photos.glob("dogs/*.jpg"):
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match=r"None of the 12 images can be read, the first: .*0.jpg"):
        run(photos, tmp_path / "g.npy")
    assert not list(tmp_path.glob("g.*"))


def test_a_single_photo(photos, tmp_path):
    path = photos / "cats" / "0.jpg"
    run(path, tmp_path / "f.npy")
    assert (tmp_path / "f.txt").read_text() == f"{path}\n"
    np.testing.assert_allclose(np.load(tmp_path / "f.npy")[0], by_hand(path), rtol=1e-4, atol=1e-5)


def test_the_command(scfs, photos, tmp_path):
    code, out, _ = scfs("embed", TARGET, photos, tmp_path / "f.npy", "--size", 32, "--workers", 0, "--device", "cpu")
    assert code == 0
    assert "f.npy: 12 x 256 features" in out
    code, _, err = scfs("embed", TARGET, photos, tmp_path / "f.npy")
    assert (code, err.count("\n")) == (2, 1)


def test_unusual_file_names(photos, tmp_path):
    unusual = photos / os.fsdecode(b"caf\xe9 [red].jpg")
    (photos / "cats" / "0.jpg").rename(unusual)
    _, printed = run(photos, tmp_path / "f.npy", query=str(unusual), nearest="1")
    assert os.fsencode(unusual) in (tmp_path / "f.txt").read_bytes().splitlines()
    assert "caf\N{REPLACEMENT CHARACTER} [red].jpg" in printed
    unusual.rename(photos / "two\nlines.jpg")
    with pytest.raises(UserError, match="has a line break"):
        run(photos, tmp_path / "g.npy")
