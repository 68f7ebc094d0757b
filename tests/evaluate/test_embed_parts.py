import io
import json

import numpy as np
import pytest

from scfs.console import PlainConsole
from scfs.errors import UserError
from scfs.evaluate import embed_parts
from scfs.evaluate.embed import embed
from scfs.evaluate.settings import Embed
from scfs.recipe import check

parquet = pytest.importorskip("pyarrow.parquet")

TARGET = "random:resnet10_half"
FAST = {"size": 32, "workers": 0, "device": "cpu", "batch_size": 2}
FILES = ["part-000000000-000000005.parquet", "part-000000005-000000010.parquet", "part-000000010-000000012.parquet"]


@pytest.fixture(autouse=True)
def _five_images_per_file(monkeypatch):
    monkeypatch.setattr(embed_parts, "PART", 5)


def run(data, out, **flags):
    printed = io.StringIO()
    embed(TARGET, str(data), out, check(Embed, FAST, flags), PlainConsole(file=printed, width=300))
    return printed.getvalue()


def content(folder):
    table = parquet.read_table(folder)  # the whole folder, without the manifest
    return table["path"].to_pylist(), np.array(table["feature"].to_pylist(), np.float32)


def test_a_folder_has_what_one_file_has(photos, tmp_path):
    printed = run(photos, tmp_path / "out")
    assert "3 of 3 files written, with the features of 12 images at 32 px" in printed
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == ["_manifest.json", *FILES]
    run(photos, tmp_path / "f.npy")
    names, features = content(tmp_path / "out")
    assert names == (tmp_path / "f.txt").read_text().splitlines()
    np.testing.assert_allclose(features, np.load(tmp_path / "f.npy"), rtol=1e-4, atol=1e-6)


def test_a_stopped_command_continues(photos, tmp_path, monkeypatch):
    write = embed_parts.write_features

    def stop_at_the_second(path, *content):
        if path.name == FILES[1]:
            raise KeyboardInterrupt
        write(path, *content)

    out = tmp_path / "out"
    monkeypatch.setattr(embed_parts, "write_features", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run(photos, out)
    assert sorted(path.name for path in out.glob("part-*")) == FILES[:1]
    first = (out / FILES[0]).stat().st_mtime_ns
    monkeypatch.setattr(embed_parts, "write_features", write)
    assert "2 of 3 files written, with the features of 7 images" in run(photos, out)
    assert (out / FILES[0]).stat().st_mtime_ns == first
    run(photos, tmp_path / "at_once")
    for found, expected in zip(content(out), content(tmp_path / "at_once"), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert "0 of 3 files written" in run(photos, out)


def test_other_settings_are_refused(photos, tmp_path):
    out = tmp_path / "out"
    run(photos, out)
    before = {path: path.read_bytes() for path in out.glob("[!.]*")}
    for flags, reason in (({"size": "64"}, "size was 32, now 64"), ({"seed": "1"}, "weights was")):
        with pytest.raises(UserError, match=f"holds features with other settings .{reason}.*another folder"):
            run(photos, out, **flags)
    (photos / "cats" / "0.jpg").rename(photos / "cats" / "renamed.jpg")
    with pytest.raises(UserError, match="image_names was"):
        run(photos, out)
    assert {path: path.read_bytes() for path in out.glob("[!.]*")} == before
    assert json.loads((out / "_manifest.json").read_text())["images"] == 12


def test_folders_that_cannot_be_used(photos, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("mine")
    with pytest.raises(UserError, match="mine has other files; choose a new or an empty folder"):
        run(photos, tmp_path / "mine")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file exists and is not overwritten"):
        run(photos, tmp_path / "file")
    with pytest.raises(UserError, match=r"Cannot write .*No such file"):
        run(photos, tmp_path / "nowhere" / "out")
    with pytest.raises(UserError, match="--query cannot be answered while"):
        run(photos, tmp_path / "out", query=str(photos / "cats" / "0.jpg"), nearest="1")
    assert not (tmp_path / "out").exists()


def test_unreadable_images_are_left_out_and_a_file_without_images_is_tried_again(photos, tmp_path):
    for path in [*photos.glob("dogs/[45].jpg"), photos / "cats" / "0.jpg"]:
        path.write_bytes(b"no image")
    printed = run(photos, tmp_path / "out")
    assert printed.count("Unreadable, left out: ") == 3
    assert len(content(tmp_path / "out")[0]) == 9
    assert not (tmp_path / "out" / FILES[2]).exists()
    (photos / "dogs" / "4.jpg").write_bytes((photos / "dogs" / "1.jpg").read_bytes())
    assert "1 of 3 files written, with the features of 1 images" in run(photos, tmp_path / "out")
    for path in photos.rglob("*.jpg"):
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match="None of 12 images can be read"):
        run(photos, tmp_path / "none")
