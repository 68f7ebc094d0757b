"""`scfs detect`, from weights to a recorded result."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from stopping import stopping_at

from scfs.backbones import load_backbone
from scfs.data.annotated_loader import AnnotatedDataset, flipped
from scfs.data.scene_source import SceneSource
from scfs.data.sources import open_annotated
from scfs.errors import UserError
from scfs.evaluate.detect.detections import encode_masks
from scfs.evaluate.detect.learner import DetectorLearner
from scfs.evaluate.detect.plan import resolve_spec
from scfs.evaluate.detect.settings import Detect
from scfs.evaluate.detect.training import plan_training
from scfs.runs.layout import read_metrics
from scfs.runs.results import read_results
from scfs.training import loop
from scfs.training.schedules import stepped

SHARED = Path(__file__).parents[4] / "shared" / "data"
QUICK = ("--workers", 0, "--channels", 16, "--regions", 8, "--batch_size", 2, "--sizes", 64, "--steps", 3)
SCENES = ("--data", "scenes:6,4", *QUICK)


@pytest.fixture
def coco_scenes(tmp_path):
    """Four scenes in COCO's layout; the same ones for training and for evaluation."""
    source, root = SceneSource("train", 4), tmp_path / "coco"
    (root / "annotations").mkdir(parents=True)
    images, annotations = [], []
    for index in range(len(source)):
        width, height = source.image_size(index)
        images.append({"id": 10 + index, "file_name": f"{index}.png", "width": width, "height": height})
        [x0, y0, x1, y1], [label] = source.objects(index).boxes[0].tolist(), source.objects(index).labels.tolist()
        [mask] = encode_masks(source.masks(index))
        annotations.append(
            {
                "id": 100 + index,
                "image_id": 10 + index,
                "category_id": 2 * label + 1,  # with gaps
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "area": float(np.sum(source.masks(index))),
                "iscrowd": 0,
                "segmentation": {"size": mask["size"], "counts": mask["counts"].decode()},
            }
        )
    categories = [{"id": 2 * label + 1, "name": name} for label, name in enumerate(source.object_classes)]
    for split in ("train2017", "val2017"):
        (root / split).mkdir()
        for index in range(len(source)):
            source.image(index).save(root / split / f"{index}.png")
        content = {"images": images, "annotations": annotations, "categories": categories}
        (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return root


def values(folder):
    return {metric.name: metric.value for metric in read_results(folder)[-1].metrics}


def test_a_handful_of_scenes_is_learned_by_heart(scfs, coco_scenes, tmp_path):
    size = ("--workers", 0, "--channels", 32, "--regions", 16, "--batch_size", 4, "--sizes", 96)
    schedule = ("--steps", 110, "--lr", 0.2, "--drops", 0.8, "--warmup_steps", 10, "--clip_norm", 10)
    target, out = ("detect", "random:resnet10_half", "--data", f"coco:{coco_scenes}"), tmp_path / "out"
    code, _, err = scfs(*target, *size, *schedule, "--precision", "bfloat16", "--out", out)
    assert code == 0, err
    found = values(out)
    assert found["box AP50"] >= 0.9
    assert found["mask AP50"] >= 0.9


def test_a_run_becomes_a_detector_whose_backbone_every_command_takes(scfs, trained, photos, tmp_path):
    code, out, err = scfs("detect", trained, *SCENES)
    assert code == 0, err
    assert "Training mask-rcnn-fpn for 10 classes" in out
    folder = trained / "detect"
    [result] = read_results(trained)
    assert (result.evaluation, result.protocol) == ("detect", "mask-rcnn-fpn, 64 px, 3 steps")
    assert [metric.name for metric in result.metrics][::3] == ["box AP", "mask AP"]
    assert [row["step"] for row in read_metrics(folder)] == [1, 2, 3]
    assert not (folder / "state.pt").exists()
    before, after = (load_backbone(str(run)).backbone.state_dict() for run in (trained, folder))
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    for command in (("knn", folder, "--data", photos, "--k", 2), ("export", folder, tmp_path / "b.safetensors")):
        code, _, err = scfs(*command)
        assert code == 0, err


def test_a_stopped_training_resumes_bit_for_bit(scfs, coco_scenes, tmp_path, monkeypatch, steps_of):
    command, steps = ("detect", "random:resnet10_half", *SCENES, "--accumulate", 2), steps_of(DetectorLearner)
    assert scfs(*command, "--out", tmp_path / "whole")[0] == 0
    steps_of_whole = [*steps]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "Interrupt", stopping_at(2))
        code, _, err = scfs(*command, "--out", tmp_path / "parts")
        assert (code, "Stopped after step 2" in err) == (130, True)
    other_classes = ("--data", f"coco:{coco_scenes}", *QUICK, "--accumulate", 2, "--out", tmp_path / "parts")
    code, _, err = scfs("detect", "random:resnet10_half", *other_classes)
    assert (code, "does not hold the same unfinished work" in err) == (2, True)
    steps.clear()
    assert scfs(*command, "--out", tmp_path / "parts")[0] == 0
    assert steps == steps_of_whole[2:] != []
    whole, parts = (
        torch.load(tmp_path / name / "last.pt", weights_only=True)["detector"]["tensors"] for name in ("whole", "parts")
    )
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    losses = [[row["loss"] for row in read_metrics(tmp_path / name)] for name in ("whole", "parts")]
    assert losses[0] == losses[1]


def test_scratch_differs_from_weights_and_is_recorded_apart(scfs, trained):
    code, out, err = scfs("detect", trained, *SCENES, "--from", "scratch")
    assert code == 0, err
    assert "from scratch" in out
    assert read_results(trained) == []
    [result] = read_results(trained / "detect")
    assert "from scratch" in result.protocol


def test_flipping_keeps_boxes_on_their_masks():
    train, _ = open_annotated("scenes:20,1")
    dataset = AnnotatedDataset(train, 0, with_masks=True)
    samples = [dataset[0, index][0] for index in range(20)]
    originals = [torch.from_numpy(train.pixels[index]).movedim(-1, 0) for index in range(20)]
    straight = [torch.equal(each.image, original) for each, original in zip(samples, originals, strict=True)]
    assert 3 < sum(straight) < 17
    for sample in (*samples, *map(flipped, samples)):
        [mask], [[x0, y0, x1, y1]] = sample.masks, sample.boxes.tolist()
        columns, rows = mask.any(0).nonzero(), mask.any(1).nonzero()
        assert [x0, y0, x1, y1] == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_crowds_are_not_trained_on():
    train, _ = open_annotated("scenes:2,1")
    objects = train.objects(0)
    train.objects = lambda _: type(objects)(**{**vars(objects), "crowd": ~objects.crowd})
    sample, _ = AnnotatedDataset(train, 0, with_masks=True)[0, 0]
    assert len(sample.boxes) == len(sample.labels) == len(sample.masks) == 0


def test_the_rate_warms_up_and_falls_by_ten():
    rates = [stepped(step, start=1.0, drops=[6, 8], warmup_steps=4) for step in range(10)]
    assert rates == pytest.approx([0.001, 0.25075, 0.5005, 0.75025, 1, 1, 0.1, 0.1, 0.01, 0.01])


def test_auto_follows_the_data_and_the_backbone():
    train, _ = open_annotated("scenes:3,1")
    thin, wide = (load_backbone(f"random:{name}").backbone for name in ("resnet10_half", "resnet50"))
    spec = resolve_spec(Detect(data="scenes"), train, thin)
    assert (spec.name, spec.channels, spec.regions) == ("mask-rcnn-fpn", 64, 128)
    assert (spec.sizes[0], spec.sizes[-1]) == (128, 216)  # 3/5 and 5/3 of 128, as 480 and 800 are of COCO's 480
    spec = resolve_spec(Detect(data="scenes", sizes=(64, 96)), train, wide)
    assert (spec.channels, spec.regions, spec.sizes) == (256, 512, (64, 96))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--data", "scenes:6,4", "--drops", 0.5, 0.2), "drops 0.5, 0.2 must go from small to large"),
        (("--data", "scenes:6,4", "--sizes", 96, 64), "sizes 96, 64 must go from small to large"),
        (("--data", "scenes:6,4", "--batch_size", 4, "--accumulate", 3), "not divisible by accumulate 3"),
        (("--data", "photos"), "'photos' has no boxes or masks"),
        ((), "give images with --data: scenes, voc:DIR or coco:DIR"),
        (("--data", "scenes:6,4", "--lr", 1e9, *QUICK), "lower --lr, raise --warmup_steps, or set --clip_norm"),
    ],
)
def test_bad_input_is_one_sentence(scfs, tmp_path, flags, message):
    code, _, err = scfs("detect", "random:resnet10_half", "--out", tmp_path / "out", *flags)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_images_with_objects_are_counted_before_anything_is_written(scfs, coco_scenes, tmp_path):
    path = coco_scenes / "annotations" / "instances_train2017.json"
    content = json.loads(path.read_text())
    for annotation in content["annotations"]:
        annotation["iscrowd"] = 1
    path.write_text(json.dumps(content))
    code, _, err = scfs("detect", "random:resnet10_half", "--data", f"coco:{coco_scenes}", "--out", tmp_path / "out")
    assert (code, f"No train image of coco:{coco_scenes} has an object" in err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_fewer_images_than_processes_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert plan_training(Detect(data="scenes"), 6).batch_size == 4
    with pytest.raises(UserError, match="3 images cannot be split over 4 processes; start fewer"):
        plan_training(Detect(data="scenes"), 3)


def test_masks_are_refused_where_there_are_none(scfs, tmp_path):
    if not (SHARED / "voc_tiny").exists():
        pytest.skip("no voc_tiny")
    flags = ("--data", f"voc:{SHARED / 'voc_tiny'}", "--detector", "mask-rcnn-fpn", "--out", tmp_path / "out")
    code, _, err = scfs("detect", "random:resnet10_half", *flags)
    assert (code, "has no masks" in err) == (2, True)


@pytest.mark.parametrize(
    ("data", "detector", "names"),
    [
        ("voc:voc_tiny", "faster-rcnn-c4", ["AP", "AP50", "AP75", "AP (area)", "AP50 (area)", "AP75 (area)"]),
        ("coco:coco_tiny", "auto", [f"{kind} {name}" for kind in ("box", "mask") for name in ("AP", "AP50", "AP75")]),
    ],
)
def test_public_data_sets_are_trained_on_and_scored(scfs, tmp_path, data, detector, names):
    kind, _, folder = data.partition(":")
    if not (SHARED / folder).exists():
        pytest.skip(f"no {folder}")
    flags = ("--data", f"{kind}:{SHARED / folder}", "--detector", detector, *QUICK, "--out", tmp_path / "out")
    code, _, err = scfs("detect", "random:resnet10_half", *flags)
    assert code == 0, err
    assert list(values(tmp_path / "out")) == names
    assert all(0 <= value < 0.2 for value in values(tmp_path / "out").values())
