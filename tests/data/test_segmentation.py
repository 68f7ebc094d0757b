"""Label maps of scenes, COCO and VOC through one interface."""

import json
import pickle

import numpy as np
import pytest
from PIL import Image

from scfs.data.annotations import Objects
from scfs.data.decode import Unreadable
from scfs.data.scenes import render_scene
from scfs.data.segmentation import VOID, paint, read_segmented
from scfs.data.sources import open_segmented
from scfs.errors import UserError
from tests.data.test_annotations import HEIGHT, SHARED, SQUARE, WIDTH, annotation, names, photo


def objects(labels, crowd):
    count = len(labels)
    return Objects(
        boxes=np.zeros((count, 4), np.float32),
        labels=np.array(labels),
        crowd=np.array(crowd, np.bool_),
        difficult=np.zeros(count, np.bool_),
        areas=np.zeros(count, np.float32),
        ids=np.arange(count),
    )


def test_small_objects_are_painted_over_large_ones_and_crowds_are_void():
    masks = np.zeros((4, 4, 5), np.bool_)
    masks[0, 1, 1] = masks[1, :3, :3] = masks[2] = masks[3, 1:4, 2:4] = True  # 1, 9, 20 and 6 pixels
    masks[2, 3] = False  # 15
    painted = paint(masks, objects([4, 0, 7, 2], [False, False, False, True]))
    assert painted.dtype == np.uint8
    assert painted.tolist() == [
        [1, 1, 1, 8, 8],
        [1, 5, VOID, VOID, 8],
        [1, 1, VOID, VOID, 8],
        [0, 0, VOID, VOID, 0],
    ]
    assert paint(np.zeros((0, 2, 3), np.bool_), objects([], [])).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_scenes():
    train, val = open_segmented("scenes:12,7")
    assert (len(train), len(val)) == (12, 7)
    assert train.classes == val.classes
    assert (train.classes[0], len(train.classes)) == ("background", 11)
    scene, (image, label_map) = render_scene(0, "val", 3), read_segmented(pickle.loads(pickle.dumps(val)), 3)
    assert np.array_equal(np.asarray(image), scene.image)
    assert np.array_equal(label_map, np.where(scene.masks[0], scene.label + 1, 0))


# COCO

SMALL, STRIP = [[3, 3, 5, 3, 5, 4, 3, 4]], {"size": [HEIGHT, WIDTH], "counts": [0, 2 * HEIGHT, (WIDTH - 2) * HEIGHT]}
CATEGORIES = [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}]


@pytest.fixture
def coco(tmp_path):
    (tmp_path / "annotations").mkdir()
    content = {
        "images": [{"id": 9, "file_name": "9.jpg", "width": WIDTH, "height": HEIGHT}],
        "categories": CATEGORIES,
        "annotations": [
            annotation(1, 9, 1, [3, 3, 2, 1], segmentation=SMALL),
            annotation(2, 9, 90, [2, 2, 4, 3], segmentation=SQUARE),
            annotation(3, 9, 1, [0, 0, 2, HEIGHT], segmentation=STRIP, iscrowd=1),
        ],
    }
    for split in ("train2017", "val2017"):
        photo(tmp_path / split / "9.jpg")
        write_coco(tmp_path, split, content)
    return tmp_path, content


def write_coco(folder, split, content):
    (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))


def test_coco(coco):
    train, val = open_segmented(f"coco:{coco[0]}")
    assert train.classes == val.classes == ("background", "person", "toothbrush")
    _, painted = read_segmented(train, 0)
    expected = np.zeros((HEIGHT, WIDTH), np.uint8)
    expected[:, :2], expected[2:5, 2:6], expected[3, 3:5] = VOID, 2, 1
    assert np.array_equal(painted, expected)


def test_coco_that_cannot_be_painted(coco):
    folder, content = coco
    write_coco(folder, "train2017", content | {"annotations": [annotation(1, 9, 1, [3, 3, 2, 1])]})
    with pytest.raises(UserError, match=r"The objects of .*train2017, have no masks to paint label maps from; give"):
        open_segmented(f"coco:{folder}")
    many = [{"id": number, "name": f"class {number}"} for number in range(255)]
    for split in ("train2017", "val2017"):
        write_coco(folder, split, content | {"categories": many})
    with pytest.raises(UserError, match="has 255 classes; label maps have at most 254"):
        open_segmented(f"coco:{folder}")


# VOC


def voc_image(year, name, label_map):
    photo(year / "JPEGImages" / f"{name}.jpg")
    (year / "SegmentationClass").mkdir(exist_ok=True)
    image = Image.fromarray(np.array(label_map, np.uint8)).convert("P")
    image.putpalette([0, 0, 0, 128, 0, 0] + [7] * 762)
    image.putdata(np.array(label_map).ravel().tolist())
    image.save(year / "SegmentationClass" / f"{name}.png")


def voc_lists(year, **lists):
    folder = year / "ImageSets" / "Segmentation"
    folder.mkdir(parents=True, exist_ok=True)
    for split, ids in lists.items():
        (folder / f"{split}.txt").write_text("".join(f"{i}\n" for i in ids))


@pytest.fixture
def voc(tmp_path):
    year, rows = tmp_path / "VOCdevkit" / "VOC2007", np.zeros((HEIGHT, WIDTH), np.uint8)
    rows[2:4], rows[4:6], rows[-1] = 15, VOID, 20
    for name in ("000005", "000007", "000009"):
        voc_image(year, name, rows)
        rows = rows[::-1].copy()
    voc_lists(year, trainval=["000005", "000007"], train=["000005"], val=["000007"], test=["000009"])
    return year


def test_voc(voc):
    for folder in (voc, voc.parent, voc.parent.parent):
        train, val = open_segmented(f"voc:{folder}")
        assert (names(train), names(val)) == (["000005.jpg", "000007.jpg"], ["000009.jpg"])
    assert (train.classes[0], train.classes[15], len(train.classes)) == ("background", "person", 21)
    image, label_map = read_segmented(pickle.loads(pickle.dumps(train)), 0)
    assert image.size == (WIDTH, HEIGHT)
    assert label_map[:, 0].tolist() == [0, 0, 15, 15, VOID, VOID, *[0] * (HEIGHT - 7), 20]
    assert train.label_map(1)[:, 0].tolist() == label_map[::-1, 0].tolist()


def test_voc_without_test_maps(voc):
    """As in a year whose test images have no published maps."""
    (voc / "SegmentationClass" / "000009.png").unlink()
    train, val = open_segmented(f"voc:{voc}")
    assert (names(train), names(val)) == (["000005.jpg"], ["000007.jpg"])


def test_grey_maps_are_read_too(voc):
    path = voc / "SegmentationClass" / "000009.png"
    Image.fromarray(np.full((HEIGHT, WIDTH), 3, np.uint8)).save(path)
    assert {*open_segmented(f"voc:{voc}")[1].label_map(0).ravel().tolist()} == {3}


@pytest.mark.parametrize(
    ("pixels", "reason"),
    [
        (np.full((HEIGHT, WIDTH), 21, np.uint8), "has class 21; classes are 0 to 20, and 255 is void"),
        (np.zeros((HEIGHT, WIDTH, 3), np.uint8), "its pixels are RGB, not indices of a palette"),
        (np.zeros((WIDTH, HEIGHT), np.uint8), "it is 20 x 16 pixels and its label map is 16 x 20"),
        (None, "the file is cut short"),
    ],
)
def test_bad_voc_maps(voc, pixels, reason):
    path = voc / "SegmentationClass" / "000009.png"
    if pixels is None:
        path.write_bytes(path.read_bytes()[:60])
    else:
        Image.fromarray(pixels).save(path)
    _, val = open_segmented(f"voc:{voc}")
    with pytest.raises(Unreadable, match=reason):
        read_segmented(val, 0)


def test_missing_voc_maps(voc):
    (voc / "SegmentationClass" / "000007.png").unlink()
    with pytest.raises(UserError, match=r"1 of the 2 images that ImageSets/Segmentation names .*000007.png; restore"):
        open_segmented(f"voc:{voc}")
    (voc / "ImageSets" / "Segmentation").rename(voc / "ImageSets" / "Main")
    with pytest.raises(UserError, match="expected VOCdevkit/VOC2007 or another year with ImageSets/Segmentation"):
        open_segmented(f"voc:{voc}")


@pytest.mark.parametrize("source", ["somewhere", "cifar10:somewhere", "vco:somewhere", ""])
def test_sources_without_label_maps(source):
    with pytest.raises(UserError, match="has no label maps; give scenes, voc:FOLDER or coco:FOLDER"):
        open_segmented(source)


@pytest.mark.skipif(not (SHARED / "voc_tiny").is_dir(), reason="no such data beside the project")
def test_real_voc_and_coco():
    """The same photos: VOC's maps were painted from COCO's masks by others, objects of other classes left out."""
    (_, coco), (train, voc) = (open_segmented(f"{kind}:{SHARED / kind}_tiny") for kind in ("coco", "voc"))
    assert (len(train), len(voc)) == (231, 154)
    index_of, person = {name: i for i, name in enumerate(names(coco))}, coco.classes.index("person")
    found = []
    for i, name in enumerate(names(voc)):
        ours = coco.label_map(index_of[f"{int(name[:-4]):012d}.jpg"])
        found.append(voc.label_map(i)[ours == person])
    pixels = np.concatenate(found)
    assert len(pixels) > 500_000
    assert (pixels == voc.classes.index("person")).mean() > 0.999
