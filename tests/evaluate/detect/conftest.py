import json

import numpy as np
import pytest

from scfs.data.scene_source import SceneSource
from scfs.evaluate.detect.detections import encode_masks


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
