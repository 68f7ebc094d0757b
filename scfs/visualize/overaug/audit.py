import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from scfs.backbones import Backbone, load_backbone
from scfs.config import DataSettings
from scfs.data.loader import derive_seed
from scfs.data.sources import AnnotatedSource, Source, has_objects, open_annotated, open_train
from scfs.data.views import square_view
from scfs.distributed import choose_device
from scfs.errors import UserError
from scfs.evaluate.features import refuse_non_finite
from scfs.evaluate.own_data import choose_data
from scfs.evaluate.resampling import Values, interval, resampled_means
from scfs.evaluate.target import show_report
from scfs.runs.metric import Metric
from scfs.visualize.overaug.advice import GLOBAL_LEVEL, LOCAL_LEVEL, advise
from scfs.visualize.overaug.audit_picture import EMPTY, GLOBAL, LOCAL, Curve, save_audit
from scfs.visualize.overaug.images import Crops, crops_of, flags_of_new_local_views, sampled_images
from scfs.visualize.overaug.saving import Saver
from scfs.visualize.overaug.settings import Overaug
from scfs.visualize.overaug.similarity import Audit, ViewsOfScales, collect, draw_views, unit_features

COSINE, FRACTION = "cosine similarity of features", "fraction of views in %"


def audit_scales(target: str, settings: Overaug, console: Console) -> list[Metric]:
    """Measure how similar views of every crop scale are to their image, draw it, and suggest scales for training."""
    start, device = time.perf_counter(), choose_device(settings.device)
    saver = Saver(target, "overaug_audit", settings, console)
    data = choose_data(target, settings.data, console)
    source, masks = _open(data, console)
    loaded = load_backbone(target, name=settings.backbone or None, network=settings.network, seed=settings.seed)
    show_report(loaded, console)
    size = loaded.evaluated_size(settings.size)
    crops = crops_of(target, loaded.backbone, size)
    loaded.backbone.check_sizes(crops.local_size)
    audit = _audit(loaded.backbone.to(device).eval(), source, masks, crops, settings, console)
    new_local_views = flags_of_new_local_views(target, crops.local_size)
    advice = advise(audit, random=target.startswith("random:"), new_local_views=new_local_views)
    about = f"{len(audit.empty)} images at {size} px, local views of {crops.local_size} px"
    console.print(f"Crop scales of {data.source} by {target}: {about}")
    if new_local_views:
        console.print(
            "The run was trained without local views; the audit draws some of half the side of its global ones."
        )
    panels = _panels(audit)
    protocol = f"{size} px, local views of {crops.local_size} px"
    saver.record(advice.metrics, data.source, protocol, start=start, device=device, details=_details(audit, panels))
    scales = {"local_scale": advice.local_scale, "global_scale": advice.global_scale}
    ranges = {name: scale for name, scale in scales.items() if scale is not None}
    levels = {LOCAL_LEVEL: LOCAL, GLOBAL_LEVEL: GLOBAL}
    if audit.knows_objects:
        levels |= {1 - LOCAL_LEVEL: LOCAL, 1 - GLOBAL_LEVEL: GLOBAL}
    saver.draw(lambda path: save_audit(path, audit.scales, panels, levels=levels, ranges=ranges))
    for metric in advice.metrics:
        console.print(f"{metric} of the image, 95 % interval {metric.shown_interval()}")
    console.print(advice.sentence)
    return advice.metrics


def _open(data: DataSettings, console: Console) -> tuple[Source, AnnotatedSource | None]:
    """The images to train on, and the same with masks if there are any."""
    if not has_objects(data.source):
        return open_train(data.source, classes=data.classes, max_pixels=data.max_pixels), None
    annotated, _ = open_annotated(data.source, max_pixels=data.max_pixels)
    for note in annotated.notes:
        console.print(note)
    return annotated, annotated if annotated.has_masks else None


def _audit(
    backbone: Backbone,
    source: Source,
    masks: AnnotatedSource | None,
    crops: Crops,
    settings: Overaug,
    console: Console,
) -> Audit:
    indices, wholes = [], []
    for index, image in sampled_images(source, settings.images, console):
        indices.append(index)
        wholes.append(unit_features(backbone, square_view(image, crops.global_size)[None]))
    if len(indices) < 2:
        raise UserError("An audit compares images with each other; give two or more with --data and --images.")
    features = torch.cat(wholes)  # (I, C)
    refuse_non_finite(int((~features.isfinite()).any(dim=1).sum()), len(features))

    def views() -> Iterator[tuple[ViewsOfScales, NDArray[np.bool_] | None]]:
        for index in track(indices, "views", console=console, transient=True, disable=not console.is_terminal):
            seed = derive_seed(settings.seed, index)
            drawn = draw_views(source.image(index), crops, num_local_views=settings.views, seed=seed)
            yield drawn, None if masks is None else _object_pixels(masks, index)

    return collect(views(), backbone, features)


def _object_pixels(source: AnnotatedSource, index: int) -> NDArray[np.bool_] | None:
    """The pixels (H, W) of any object of an image, crowds too; None if the source has no masks."""
    masks = source.masks(index)
    return None if masks is None else np.logical_or.reduce(masks, axis=0)


def _panels(audit: Audit) -> dict[str, list[Curve]]:
    """Cosines, and fractions in per cent."""
    local, global_ = audit.local, audit.global_
    cosines = [
        _curve("global views, own image", GLOBAL, global_.own),
        _curve("global views, other images", GLOBAL, global_.other, style=":"),
        _curve("local views, own image", LOCAL, local.own),
        _curve("local views, other images", LOCAL, local.other, style=":"),
    ]
    fractions = [
        _curve("global views closer to their own image", GLOBAL, 100 * global_.closer),
        _curve("local views closer to their own image", LOCAL, 100 * local.closer),
    ]
    if audit.knows_objects:
        fractions.append(_curve("views without any object", EMPTY, 100 * audit.empty))
    return {COSINE: cosines, FRACTION: fractions}


def _curve(name: str, colour: str, values: Values, style: str = "-") -> Curve:
    return Curve(name, colour, np.nanmean(values, axis=0), interval(resampled_means(values)), style)


def _details(audit: Audit, panels: dict[str, list[Curve]]) -> dict[str, Any]:
    """The curves, for `results.json`."""
    return {"scales": audit.scales} | {
        panel: {
            curve.name: {"values": curve.values.round(4).tolist(), "intervals": curve.bounds.round(4).tolist()}
            for curve in curves
        }
        for panel, curves in panels.items()
    }
