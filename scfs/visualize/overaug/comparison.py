import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from torch import Tensor

from scfs.data.loader import derive_seed
from scfs.data.sources import Source
from scfs.data.views import MultiCrop, square_view
from scfs.distributed import choose_device
from scfs.evaluate.features import refuse_non_finite
from scfs.evaluate.own_data import choose_data
from scfs.evaluate.tables import metrics_table
from scfs.runs.metric import Metric
from scfs.visualize.overaug.classifier import MapClassifier, name_classes, open_classifier, true_outputs
from scfs.visualize.overaug.comparison_picture import ComparedRow, save_comparison
from scfs.visualize.overaug.images import Crops, crops_of, open_unseen, sampled_images
from scfs.visualize.overaug.probabilities import SAMPLES, Compared, compare, metrics_of, scores, top_classes
from scfs.visualize.overaug.saving import Saver
from scfs.visualize.overaug.settings import Overaug

TRUE, TOP = "true class", "top class of the original"  # what probabilities are of


class Worst(NamedTuple):
    """The view of an image that is the least like it for a classifier."""

    drop: float  # of the reference's probability, from the image to the view
    image: int  # its index
    reference: int
    found: Compared
    number: int  # of the view
    view: Tensor  # (3, h, w)
    box: Tensor  # (4,)


def compare_views(target: str, settings: Overaug, console: Console) -> list[Metric]:
    """Compare local views, their images and the feature augmentations by their class probabilities; draw the worst."""
    start, device = time.perf_counter(), choose_device(settings.device)
    saver = Saver(target, "overaug", settings, console)
    data = choose_data(target, settings.data, console)
    source, classifier = open_unseen(data), open_classifier(target, settings, device, console)
    own_names = classifier.probe.classes  # of a probe: those of the class folders, which a file may rename
    classifier = name_classes(classifier, settings.class_names, source.classes)
    crops = crops_of(target, classifier.backbone, classifier.probe.size)
    if settings.local_scale != "auto":
        crops = crops._replace(local_scale=settings.local_scale)
    outputs = true_outputs(source.classes, own_names) or true_outputs(source.classes, classifier.probe.classes)
    rows, worst = _compare_images(source, classifier, crops, outputs, settings, console)
    metrics = metrics_of(rows)
    reference = TRUE if outputs else TOP
    low, high = crops.local_scale
    count = f"{len(rows)} image{'s' * (len(rows) > 1)}"
    about = f"{count} at {crops.global_size} px, {settings.views} views of area {low:g}-{high:g} each"
    _print(
        f"Over-augmentation on {data.source} of {target}: {about}; probabilities of the {reference}", metrics, console
    )
    protocol = f"{reference}, {crops.global_size} px, views of {crops.local_size} px and area {low:g}-{high:g}"
    saver.record(metrics, data.source, protocol, start=start, device=device)
    drawn = [_drawn(each, source, classifier.probe.classes) for each in worst]
    saver.draw(lambda path: save_comparison(path, drawn, reference=reference))
    return metrics


def _compare_images(
    source: Source, classifier: MapClassifier, crops: Crops, outputs: list[int], settings: Overaug, console: Console
) -> tuple[list[list[float]], list[Worst]]:
    """The scores of every image, and the worst views to draw."""
    classifier.backbone.check_sizes(crops.local_size)
    multi_crop = MultiCrop(**crops._asdict(), num_local_views=settings.views)
    rows, worst = [], list[Worst]()
    for index, image in sampled_images(source, settings.images, console):
        batch = multi_crop(image, derive_seed(settings.seed, index))
        found = compare(classifier, square_view(image, crops.global_size), batch.local_views)
        reference = outputs[source.label(index)] if outputs else int(found.original.argmax())
        rows.append(scores(found, reference))
        number = int(found.views[:, reference].argmin())
        drop = float(found.original[reference] - found.views[number, reference])
        view, box = batch.local_views[number], batch.local_boxes[number]
        worst.append(Worst(drop, index, reference, found, number, view, box))
        worst = worst_of_each_class(worst)[: settings.show]
    refuse_non_finite(sum(not all(map(math.isfinite, row)) for row in rows), len(rows))
    return rows, worst


def worst_of_each_class(worst: Sequence[Worst]) -> list[Worst]:
    """The views whose probability drops most first, but every class once before any is repeated."""
    seen, ranked = Counter[int](), list[tuple[int, Worst]]()
    for each in sorted(worst, key=lambda each: -each.drop):
        ranked.append((seen[each.reference], each))
        seen[each.reference] += 1
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]


def _drawn(worst: Worst, source: Source, classes: list[str]) -> ComparedRow:
    found, number = worst.found, worst.number
    return ComparedRow(
        source.image(worst.image),
        worst.view.movedim(0, -1).numpy(),
        worst.box.tolist(),
        found.attention[number].numpy(),
        [top_classes(each, classes) for each in (found.views[number], found.original, found.augmented[number])],
        classes[worst.reference],
    )


def _print(title: str, metrics: list[Metric], console: Console) -> None:
    console.print(title)
    probabilities, agreements = metrics[: len(SAMPLES)], metrics[len(SAMPLES) :]
    console.print(metrics_table({name: [each] for name, each in zip(SAMPLES, probabilities, strict=True)}))
    console.print(metrics_table({name: [each] for name, each in zip(SAMPLES[::2], agreements, strict=True)}))
