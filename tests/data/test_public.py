"""Public data sets: tiny files in the published layouts, and real ones where they are beside the project."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision import datasets

from scfs.data.sources import open_labelled, open_train
from scfs.errors import UserError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def beside(name):
    return pytest.mark.skipif(not (SHARED / name).is_dir(), reason="no such data beside the project")


def photo(path, color=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 16), (color, 80, 160)).save(path, "JPEG")


def names(source):
    return [Path(source.name(i)).name for i in range(len(source))]


@pytest.fixture(params=["CIFAR10", "CIFAR100"])
def cifar(request, tmp_path, monkeypatch):
    """The published files, each with four images, with torchvision's checksums patched to match."""
    kind = getattr(datasets, request.param)
    folder, random = tmp_path / "download" / kind.base_folder, np.random.default_rng(0)
    folder.mkdir(parents=True)
    hundred = request.param == "CIFAR100"

    def write(name, values):
        (folder / name).write_bytes(pickle.dumps(values))
        return [name, hashlib.md5((folder / name).read_bytes()).hexdigest()]

    def batch(name):
        labels = {"fine_labels": [3, 0, 99, 7]} if hundred else {"labels": [3, 0, 9, 7]}
        return write(name, {"data": random.integers(0, 256, (4, 3072), dtype=np.uint8), **labels})

    classes = [f"class {i}" for i in range(100 if hundred else 10)]
    meta = kind.meta["filename"], write(kind.meta["filename"], {kind.meta["key"]: classes})[1]
    monkeypatch.setattr(kind, "train_list", [batch(name) for name, _ in kind.train_list])
    monkeypatch.setattr(kind, "test_list", [batch(name) for name, _ in kind.test_list])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "filename": meta[0], "md5": meta[1]})
    return request.param.lower(), folder


def test_cifar(cifar):
    kind, folder = cifar
    for root in (folder, folder.parent):
        train, val = open_labelled(f"{kind}:{root}")
        assert (len(train), len(val)) == (4 if kind == "cifar100" else 20, 4)
        assert len(train.classes) == (100 if kind == "cifar100" else 10)
        assert [val.label(i) for i in range(4)] == [3, 0, 99 if kind == "cifar100" else 9, 7]
        assert val.name(2) == f"{kind}/val/2"
    first = next(iter(sorted(folder.glob("test*"))))
    pixels = pickle.loads(first.read_bytes())["data"][1].reshape(3, 32, 32).transpose(1, 2, 0)
    assert np.array_equal(np.asarray(pickle.loads(pickle.dumps(val)).image(1)), pixels)
    assert len(open_train(f"{kind}:{folder}")) == len(train)


@pytest.mark.parametrize("damage", ["cut", "gone", "meta"])
def test_damaged_cifar(cifar, damage):
    kind, folder = cifar
    path = folder / getattr(datasets, kind.upper()).train_list[0][0]
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-5])
    elif damage == "gone":
        path.unlink()
    else:
        (folder / getattr(datasets, kind.upper()).meta["filename"]).write_bytes(b"")
    with pytest.raises(UserError, match="is not the whole CIFAR") as caught:
        open_train(f"{kind}:{folder.parent}")
    assert "\n" not in str(caught.value)


def test_cifar_that_is_not_as_published(tmp_path):
    """Unpatched, torchvision checks the published checksums."""
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps({}))
    with pytest.raises(UserError, match="is not the whole CIFAR10"):
        open_train(f"cifar10:{tmp_path}")


@pytest.mark.parametrize("size", ["", "-320", "-160", None])
def test_imagenette(tmp_path, size):
    root = tmp_path if size is None else tmp_path / f"imagenette2{size}"
    for split, count in (("train", 3), ("val", 2)):
        for wnid in ("n01440764", "n03888257"):
            for i in range(count):
                photo(root / split / wnid / f"{wnid}_{i}.JPEG")
    (root / "noisy_imagenette.csv").touch()
    train, val = open_labelled(f"imagenette:{tmp_path}")
    assert (len(train), len(val)) == (6, 4)
    assert train.classes == ("n01440764", "n03888257")
    assert len(open_train(f"imagenette:{root}")) == 6


def test_the_largest_of_several_imagenettes(tmp_path):
    for size, count in (("", 1), ("-160", 2)):
        for split in ("train", "val"):
            for i in range(count):
                photo(tmp_path / f"imagenette2{size}" / split / "n01440764" / f"{i}.JPEG")
    assert len(open_train(f"imagenette:{tmp_path}")) == 1


@pytest.fixture
def voc(tmp_path):
    """Two years; test images are not for training, and the lists per class do not count."""
    for year, ids in (("VOC2007", ["000005", "000007", "000009"]), ("VOC2012", ["2007_000027", "2008_000008"])):
        folder = tmp_path / "VOCdevkit" / year
        for i in ids:
            photo(folder / "JPEGImages" / f"{i}.jpg")
        main = folder / "ImageSets" / "Main"
        main.mkdir(parents=True)
        (main / "trainval.txt").write_text("".join(f"{i}\n" for i in ids[:2]))
        (main / "test.txt").write_text("".join(f"{i}\n" for i in ids[2:]))
        (main / "cat_trainval.txt").write_text("".join(f"{i} -1\n" for i in ids))
    return tmp_path / "VOCdevkit"


def test_voc(voc):
    expected = ["000005.jpg", "000007.jpg", "2007_000027.jpg", "2008_000008.jpg"]
    for root in (voc, voc.parent):
        source = open_train(f"voc:{root}")
        assert names(source) == expected
        assert source.classes == ()
        assert source.image(3).size == (20, 16)
    assert names(open_train(f"voc:{voc / 'VOC2012'}")) == expected[2:]


def test_voc_without_trainval(voc):
    main = voc / "VOC2007" / "ImageSets" / "Main"
    (main / "trainval.txt").rename(main / "train.txt")
    (main / "val.txt").write_text("000009\n")
    assert names(open_train(f"voc:{voc / 'VOC2007'}")) == ["000005.jpg", "000007.jpg", "000009.jpg"]


def test_voc_with_a_missing_image(voc):
    (voc / "VOC2012" / "JPEGImages" / "2008_000008.jpg").unlink()
    with pytest.raises(UserError, match=r"1 of the 4 images that .* do not exist, the first .*2008_000008.jpg"):
        open_train(f"voc:{voc}")


@pytest.mark.parametrize("layout", ["train2017", "images/train2017"])
def test_coco(tmp_path, layout):
    for i in (25, 9):
        photo(tmp_path / layout / f"{i:012d}.jpg")
        photo(tmp_path / layout.replace("train", "val") / f"{i:012d}.jpg")
    for root in (tmp_path, tmp_path / layout):
        source = open_train(f"coco:{root}")
        assert names(source) == ["000000000009.jpg", "000000000025.jpg"]
        assert source.classes == ()


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("cifar10", "No CIFAR10 under .*expected the published folder cifar-10-batches-py"),
        ("cifar100", "No CIFAR100 under .*expected the published folder cifar-100-python"),
        ("imagenette", "No Imagenette under"),
        ("voc", "No PASCAL VOC under"),
        ("coco", "No COCO under"),
    ],
)
def test_missing_data_sets(tmp_path, kind, sentence):
    with pytest.raises(UserError, match=sentence):
        open_train(f"{kind}:{tmp_path}")
    with pytest.raises(UserError, match=rf"No folder at .*nowhere; write {kind}:FOLDER"):
        open_train(f"{kind}:{tmp_path / 'nowhere'}")
    with pytest.raises(UserError, match=f"write {kind}:FOLDER"):
        open_train(f"{kind}:")


@pytest.mark.parametrize("kind", ["voc", "coco"])
def test_no_labels(voc, kind):
    photo(voc / "train2017" / "1.jpg")
    with pytest.raises(UserError, match="have no labels"):
        open_labelled(f"{kind}:{voc}")


@beside("voc_tiny")
def test_real_voc_layout():
    source = open_train(f"voc:{SHARED / 'voc_tiny'}")
    assert len(source) == 231
    assert max(source.image(7).size) <= 400


@beside("coco_tiny")
def test_real_coco_layout():
    source = open_train(f"coco:{SHARED / 'coco_tiny'}")
    assert len(source) == 294
    assert source.image(293).mode == "RGB"


@beside("imagenette96")
def test_real_imagenette_layout():
    train, val = open_labelled(f"imagenette:{SHARED / 'imagenette96'}")
    assert (len(train), len(val), len(train.classes)) == (9469, 3925, 10)
