"""Seconds of a training step per image, of our detectors and of torchvision's, with a ResNet-50 on one core.

    python benchmarks/detectors.py --size 256 --images 2 --rounds 3

The detectors take turns in every round, so that a busy machine slows all of them alike; the median of the rounds is
shown. torchvision has no C4 detector: its Faster R-CNN with a feature pyramid stands beside ours.
"""

import argparse
import statistics
import time

import torch
from torchvision.models import detection

from scfs.backbones import Backbone
from scfs.data.annotated_loader import AnnotatedBatch, AnnotatedImage
from scfs.evaluate.detect.learner import DetectorLearner, as_target
from scfs.evaluate.detect.models import DetectorSpec, build_detector
from scfs.markdown import markdown_table

CPU, NUM_CLASSES = torch.device("cpu"), 20


def make_images(count: int, size: int) -> list[AnnotatedImage]:
    """Noise with two objects each."""
    masks = torch.zeros(2, size, size, dtype=torch.uint8)
    masks[0, size // 8 : size // 2, size // 8 : size // 2] = 1
    masks[1, size // 2 : -size // 8, size // 3 : -size // 8] = 1
    boxes = torch.tensor(
        [[size // 8, size // 8, size // 2, size // 2], [size // 3, size // 2, size - size // 8, size - size // 8]]
    ).float()
    pixels = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8)
    return [AnnotatedImage(each, boxes, torch.tensor([0, 1]), masks) for each in pixels]


def ours(name: str, size: int, precision: str):
    spec = DetectorSpec(name, NUM_CLASSES, channels=256, sizes=(size,), max_size=2 * size, regions=512)
    learner = DetectorLearner(
        build_detector(Backbone("resnet50"), spec),
        schedule=lambda _: 1e-4,
        weight_decay=1e-4,
        clip_norm=None,
        precision=precision,
        device=CPU,
        seed=0,
    )
    return lambda images, step: learner.step([AnnotatedBatch(images, [])], step)


def theirs(name: str, size: int):
    build = getattr(detection, name)
    module = build(
        weights=None, weights_backbone=None, num_classes=1 + NUM_CLASSES, min_size=size, max_size=2 * size
    ).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)

    def step(images, number):
        torch.manual_seed(number)
        losses = module([each.image.float() / 255 for each in images], [as_target(each, CPU) for each in images])
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256, help="side of the images")
    parser.add_argument("--images", type=int, default=2, help="per step")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    steps = {
        "Mask R-CNN FPN": ours("mask-rcnn-fpn", args.size, "float32"),
        "Mask R-CNN FPN, bfloat16": ours("mask-rcnn-fpn", args.size, "bfloat16"),
        "torchvision's maskrcnn_resnet50_fpn_v2": theirs("maskrcnn_resnet50_fpn_v2", args.size),
        "Faster R-CNN C4": ours("faster-rcnn-c4", args.size, "float32"),
        "Faster R-CNN C4, bfloat16": ours("faster-rcnn-c4", args.size, "bfloat16"),
        "torchvision's fasterrcnn_resnet50_fpn_v2": theirs("fasterrcnn_resnet50_fpn_v2", args.size),
    }
    images = make_images(args.images, args.size)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(1 + args.rounds):
        for name, step in steps.items():
            start = time.process_time()
            step(images, number)
            if number:  # the first is a warm-up
                seconds[name].append((time.process_time() - start) / args.images)
    rows = [[name, f"{statistics.median(each):.2f}"] for name, each in seconds.items()]
    print(f"ResNet-50, {args.size} px, {args.images} images per step, one core")
    print(markdown_table(["detector", "seconds per image"], rows))


if __name__ == "__main__":
    main()
