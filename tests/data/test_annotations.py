"""Boxes and masks of scenes, VOC and COCO through one interface. Tiny files in the published layouts."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scfs.data import json_stream
from scfs.data.annotations import with_objects
from scfs.data.decode import Unreadable
from scfs.data.json_stream import stream_lists
from scfs.data.scenes import render_scene
from scfs.data.sources import open_annotated, open_train
from scfs.errors import UserError

SHARED = Path(__file__).parents[3] / "shared" / "data"
WIDTH, HEIGHT = 20, 16


def photo(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (WIDTH, HEIGHT), (9, 80, 160)).save(path, "JPEG")


def names(source):
    return [Path(source.name(i)).name for i in range(len(source))]


def test_scenes():
    train, val = open_annotated("scenes:12,7")
    assert (len(train), len(val), train.has_masks) == (12, 7, True)
    for index in (3, 6):
        scene, objects = render_scene(0, "val", index), pickle.loads(pickle.dumps(val)).objects(index)
        assert np.array_equal(objects.boxes, scene.boxes)
        assert np.array_equal(val.masks(index), scene.masks)
        assert objects.labels.tolist() == [val.label(index)] == [scene.label]
        assert objects.areas.tolist() == [scene.masks.sum()]
        assert val.image(index).size == val.image_size(index)
        assert np.array_equal(np.asarray(val.image(index)), scene.image)
    assert train.object_classes == train.classes


# VOC


def voc_object(name, box, difficult=0, extra=""):
    sides = "".join(f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return f"<object><name>{name}</name><difficult>{difficult}</difficult>{extra}<bndbox>{sides}</bndbox></object>"


def voc_image(year, name, *objects, size=f"<size><width>{WIDTH}</width><height>{HEIGHT}</height></size>"):
    photo(year / "JPEGImages" / f"{name}.jpg")
    (year / "Annotations").mkdir(exist_ok=True)
    text = f"<annotation><filename>{name}.jpg</filename>{size}{''.join(objects)}</annotation>"
    (year / "Annotations" / f"{name}.xml").write_text(text)


def voc_lists(year, **lists):
    main = year / "ImageSets" / "Main"
    main.mkdir(parents=True, exist_ok=True)
    for split, ids in lists.items():
        (main / f"{split}.txt").write_text("".join(f"{i}\n" for i in ids))


@pytest.fixture
def voc(tmp_path):
    old, new = (tmp_path / "VOCdevkit" / year for year in ("VOC2007", "VOC2012"))
    head = "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>"
    voc_image(old, "000005", voc_object("person", (1, 1, WIDTH, HEIGHT), extra=head), voc_object("cat", (3, 4, 3, 5)))
    voc_image(old, "000007")
    voc_image(old, "000009", voc_object("dog", (2, 3, 9, 10), difficult=1))
    voc_image(new, "2008_000008", voc_object("tvmonitor", ("4.5", 5, 12, 14)))
    voc_lists(old, trainval=["000005", "000007"], train=["000005"], val=["000007"], test=["000009"])
    voc_lists(new, trainval=["2008_000008"], train=["2008_000008"], val=[], test=["2008_000001"])  # never published
    return tmp_path / "VOCdevkit"


def test_voc(voc):
    for folder in (voc, voc.parent):
        train, val = open_annotated(f"voc:{folder}")
        assert names(train) == ["000005.jpg", "000007.jpg", "2008_000008.jpg"]
        assert names(val) == ["000009.jpg"]
    people = train.objects(0)
    # From 1-based pixels, the last included, to edges: the whole image, and one pixel by two.
    assert people.boxes.tolist() == [[0, 0, WIDTH, HEIGHT], [2, 3, 3, 5]]
    assert [train.object_classes[label] for label in people.labels] == ["person", "cat"]
    assert people.areas.tolist() == [WIDTH * HEIGHT, 2]
    assert people.boxes.dtype == np.float32
    assert train.objects(2).boxes.tolist() == [[3.5, 4, 12, 14]]
    assert train.objects(2).labels.tolist() == [19]
    assert (len(train.objects(1)), train.objects(1).boxes.shape) == (0, (0, 4))
    assert val.objects(0).difficult.tolist() == [True]
    assert (val.objects(0).crowd.tolist(), val.masks(0), val.has_masks, val.notes) == ([False], None, False, ())
    assert names(with_objects(train)) == ["000005.jpg", "2008_000008.jpg"]
    assert with_objects(train).objects(1).labels.tolist() == [19]
    assert train.image(0).size == train.image_size(0) == (WIDTH, HEIGHT)


def test_voc_without_test_images(voc):
    train, val = open_annotated(f"voc:{voc / 'VOC2007'}")
    assert (names(train), names(val)) == (["000005.jpg", "000007.jpg"], ["000009.jpg"])
    (voc / "VOC2007" / "Annotations" / "000009.xml").unlink()  # as in a year whose test images are not published
    train, val = open_annotated(f"voc:{voc / 'VOC2007'}")
    assert (names(train), names(val)) == (["000005.jpg"], ["000007.jpg"])
    with pytest.raises(UserError, match="No val images in ImageSets/Main"):
        open_annotated(f"voc:{voc / 'VOC2012'}")


def test_later_voc_years_repeat_images(voc):
    voc_image(voc / "VOC2011", "2008_000008")
    voc_lists(voc / "VOC2011", trainval=["2008_000008"])
    train, _ = open_annotated(f"voc:{voc}")
    assert names(train) == ["000005.jpg", "000007.jpg", "2008_000008.jpg"]
    assert len(train.objects(2)) == 1


def test_voc_boxes_outside_the_image(voc):
    beyond, outside, twisted = (-5, 3, 90, 90), (50, 50, 60, 60), (9, 9, 3, 12)
    voc_image(voc / "VOC2007", "000007", *(voc_object("bird", box) for box in (beyond, outside, twisted)))
    train, _ = open_annotated(f"voc:{voc}")
    assert train.objects(1).boxes.tolist() == [[0, 2, WIDTH, HEIGHT]]
    assert len(train.notes) == 2
    assert "Left out 2 objects with an empty box (the first: in " in train.notes[0]
    assert "Clipped the boxes of 1 object to the image (the first" in train.notes[1]
    assert "000007.xml" in train.notes[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "Cannot read annotations .*000007.xml: No such file"),
        ("<annotation><object>", "000007.xml is not XML, or it is cut short"),
        ("", "000007.xml is not XML"),
        (f"<annotation>{voc_object('unicorn', (1, 1, 2, 2))}</annotation>", "class 'unicorn', which is not one of"),
        (f"<annotation>{voc_object('cat', ('a', 1, 2, 2))}</annotation>", "without a box of four numbers"),
        ("<annotation><object><name>cat</name></object></annotation>", "without a box of four numbers"),
    ],
)
def test_bad_voc_annotations(voc, text, reason):
    path = voc / "VOC2007" / "Annotations" / "000007.xml"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(UserError, match=reason) as caught:
        open_annotated(f"voc:{voc}")
    assert "\n" not in str(caught.value)


def test_missing_and_wrong_voc_sizes(voc):
    voc_image(voc / "VOC2007", "000007", voc_object("cat", (1, 1, 90, 90)), size="")
    voc_image(voc / "VOC2007", "000005", size="<size><width>16</width><height>20</height></size>")
    train, _ = open_annotated(f"voc:{voc}")
    assert train.objects(1).boxes.tolist() == [[0, 0, WIDTH, HEIGHT]]
    with pytest.raises(Unreadable, match="it is 20 x 16 pixels and its annotations are for 16 x 20"):
        train.image(0)


# COCO


def annotation(number, image, category, box, **more):
    return {"id": number, "image_id": image, "category_id": category, "bbox": box, "iscrowd": 0, **more}


SQUARE = [[2, 2, 6, 2, 6, 5, 2, 5]]
CROWD = {"size": [HEIGHT, WIDTH], "counts": [HEIGHT, 2 * HEIGHT, (WIDTH - 3) * HEIGHT]}  # columns 1 and 2


def coco_json():
    return {
        "info": {"year": 2017},
        "annotations": [  # before what they refer to: any order is fine
            annotation(7, 42, 90, [2, 2, 4, 3], area=11.5, segmentation=SQUARE),
            annotation(5, 9, 1, [1, 0, 2, HEIGHT], area=32, segmentation=CROWD, iscrowd=1),
            annotation(6, 42, 1, [0.5, 1.25, 3, 2], area=6, segmentation=[*SQUARE, [9, 9, 12, 9, 12, 12]]),
        ],
        "images": [
            {"id": number, "file_name": f"{number:012d}.jpg", "width": WIDTH, "height": HEIGHT}
            for number in (42, 9, 11)
        ],
        "categories": [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}, {"id": 3, "name": "car"}],
    }


@pytest.fixture
def coco(tmp_path):
    (tmp_path / "annotations").mkdir()
    for split in ("train2017", "val2017"):
        for number in (9, 11, 42):
            photo(tmp_path / split / f"{number:012d}.jpg")
        (tmp_path / "annotations" / f"instances_{split}.json").write_text(json.dumps(coco_json(), indent=1))
    return tmp_path


def rewrite(coco, **changes):
    (coco / "annotations" / "instances_train2017.json").write_text(json.dumps(coco_json() | changes))


def test_coco(coco):
    for folder in (coco, coco / "train2017"):
        train, val = open_annotated(f"coco:{folder}")
        assert names(train) == names(val) == [f"{number:012d}.jpg" for number in (9, 11, 42)]
    assert [train.image_id(i) for i in range(3)] == [9, 11, 42]
    assert (train.object_classes, train.category_ids) == (("person", "car", "toothbrush"), (1, 3, 90))
    crowd, none, two = (pickle.loads(pickle.dumps(train)).objects(i) for i in range(3))
    assert (crowd.crowd.tolist(), two.crowd.tolist(), len(none)) == ([True], [False, False], 0)
    assert two.boxes.tolist() == [[2, 2, 6, 5], [0.5, 1.25, 3.5, 3.25]]
    assert (two.labels.tolist(), two.ids.tolist(), two.areas.tolist()) == ([2, 0], [7, 6], [11.5, 6])
    masks = train.masks(2)
    assert (masks.shape, masks.dtype) == ((2, HEIGHT, WIDTH), np.bool_)
    assert np.argwhere(masks[0]).tolist() == [[y, x] for y in (2, 3, 4) for x in (2, 3, 4, 5)]
    assert masks[1, 9:12, 9:12].sum() == masks[1].sum() - 12 > 0
    assert np.flatnonzero(train.masks(0)[0].any(axis=0)).tolist() == [1, 2]
    assert train.masks(1).shape == (0, HEIGHT, WIDTH)
    assert names(with_objects(train)) == ["000000000042.jpg"]
    assert (train.notes, train.has_masks) == ((), True)
    assert open_train(f"coco:{coco}").classes == ()


def test_boxes_without_masks(coco):
    entries = [annotation(1, 9, 1, [1, 1, 4, 3]), annotation(2, 9, 3, [1, 1, 4, 3], segmentation=[])]
    rewrite(coco, annotations=entries)
    train, _ = open_annotated(f"coco:{coco}")
    assert (train.has_masks, train.masks(0), train.objects(0).areas.tolist()) == (False, None, [12, 12])


@pytest.mark.parametrize(
    ("entry", "note"),
    [
        (annotation(8, 7777, 1, [1, 1, 2, 2], segmentation=SQUARE), "Left out 1 object of an image that is not listed"),
        (annotation(8, 9, 1, [1, 1, 0, 2], segmentation=SQUARE), "Left out 1 object with an empty box"),
        (annotation(8, 9, 1, [99, 1, 2, 2], segmentation=SQUARE), "Left out 1 object with an empty box"),
        (annotation(8, 9, 1, [1, 1, 2, 2]), "Left out 1 object without a segmentation"),
        (
            annotation(8, 9, 1, [1, 1, 2, 2], segmentation="cut"),
            "Left out 1 object with a segmentation that is neither",
        ),
        (
            annotation(8, 9, 1, [1, 1, 2, 2], segmentation={"size": [2, 2], "counts": [4]}),
            "Left out 1 object with RLE of",
        ),
    ],
)
def test_objects_are_left_out(coco, entry, note):
    rewrite(coco, annotations=[entry, *coco_json()["annotations"]])
    train, _ = open_annotated(f"coco:{coco}")
    assert [train.objects(i).ids.tolist() for i in range(3)] == [[5], [], [7, 6]]
    assert len(train.masks(2)) == 2
    [found] = train.notes
    assert note in found
    assert "(the first: annotation 8)." in found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"annotations": [annotation(8, 9, 77, [1, 1, 2, 2])]},
            "Annotation 8 in .* has category 77, which the file does not",
        ),
        ({"annotations": [{"id": 8, "image_id": 9}]}, "An entry of 'annotations' in .*with id 8"),
        ({"annotations": [annotation(8, 9, 1, [1, 1, 2])]}, "An entry of 'annotations' in .*with id 8"),
        ({"annotations": ["x"]}, "An entry of 'annotations' in .*without an id"),
        ({"annotations": [annotation(8, 9, 1, [1, 1, 2, None])]}, "An entry of 'annotations' in .*with id 8"),
        ({"images": []}, "lists no images"),
        ({"categories": 3}, "lists no categories"),
        ({"categories": [{"id": 1, "name": "a"}] * 2}, "gives the same id to two of its categories"),
        ({"images": [{"id": 9, "file_name": "no.jpg", "width": 3, "height": 2}]}, "do not exist, the first .*no.jpg"),
        ({"categories": [{"id": 90, "name": "brush"}, *coco_json()["categories"][1:]]}, "categories of .* differ"),
    ],
)
def test_bad_coco_annotations(coco, changes, reason):
    rewrite(coco, **changes)
    with pytest.raises(UserError, match=reason) as caught:
        open_annotated(f"coco:{coco}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("chunk", [1, 7, 100, 1 << 20])
def test_a_file_is_read_in_pieces_or_refused(coco, chunk, monkeypatch):
    monkeypatch.setattr(json_stream, "CHUNK", chunk)
    path = coco / "annotations" / "instances_val2017.json"
    whole = path.read_text()
    kinds = {"annotations", "images"}
    expected = [(kind, entry) for kind in ("annotations", "images") for entry in coco_json()[kind]]
    assert list(stream_lists(path, kinds)) == expected
    for length in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        path.write_text(whole[:length])
        with pytest.raises(UserError, match="is not a JSON object, or it is cut short"):
            list(stream_lists(path, kinds))
    for text in ("[1]", '{"a" 1}', '{"images": [1 2]}', "\ufeff{}"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match="is not a JSON object"):
            list(stream_lists(path, kinds))


def test_coco_without_annotations(coco):
    (coco / "annotations" / "instances_val2017.json").unlink()
    with pytest.raises(UserError, match=r"No annotations/instances_val2017.json under .*annotations_trainval2017.zip"):
        open_annotated(f"coco:{coco}")


@pytest.mark.parametrize("source", ["somewhere", "cifar10:somewhere", "vco:somewhere", ""])
def test_sources_without_annotations(source):
    with pytest.raises(UserError, match="has no boxes or masks; give scenes, voc:FOLDER or coco:FOLDER"):
        open_annotated(source)


@pytest.mark.skipif(not (SHARED / "coco_tiny").is_dir(), reason="no such data beside the project")
def test_real_coco():
    train, val = open_annotated(f"coco:{SHARED / 'coco_tiny'}")
    assert [len(train), len(val), len(with_objects(train))] == [294, 188, 292]
    assert sum(len(train.objects(i)) for i in range(len(train))) == 2518
    assert sum(train.objects(i).crowd.sum() for i in range(len(train))) == 25
    assert train.notes == val.notes == ()
    areas = [
        (mask.sum(), area)
        for i in range(0, 188, 9)
        for mask, area in zip(val.masks(i), val.objects(i).areas, strict=True)
    ]
    assert np.median([abs(ours - theirs) / theirs for ours, theirs in areas]) < 0.1


@pytest.mark.skipif(not (SHARED / "voc_tiny").is_dir(), reason="no such data beside the project")
def test_real_voc():
    train, val = open_annotated(f"voc:{SHARED / 'voc_tiny'}")
    assert [len(train), len(val)] == [231, 154]
    assert sum(len(source.objects(i)) for source in (train, val) for i in range(len(source))) == 2084
    assert train.notes == val.notes == ()
