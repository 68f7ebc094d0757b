from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from scfs.backbones import Backbone, fingerprint, load_backbone, load_head
from scfs.data.lists import read_names
from scfs.data.views import normalize
from scfs.errors import UserError
from scfs.evaluate.linear.probe_file import Probe
from scfs.evaluate.trained_classifier import find_classifier
from scfs.runs.results import run_of
from scfs.visualize.overaug.settings import Overaug

# B images, C channels, H W (h w) map height and width, K classes


@dataclass(frozen=True)
class MapClassifier:
    """A linear classifier on the pooled deepest map of a network, which may be changed before it is pooled."""

    backbone: Backbone
    probe: Probe

    @property
    def _channels_last(self) -> bool:
        return getattr(self.backbone.net, "output_fmt", "") == "NHWC"

    @torch.no_grad()
    def maps(self, images: Tensor) -> Tensor:
        """The maps (B, C, h, w) that enter the network's head, of uint8 images (B, 3, H, W)."""
        net: Any = self.backbone.net
        maps: Tensor = net.forward_features(normalize(images.to(next(net.parameters()).device)))
        return maps.movedim(-1, 1) if self._channels_last else maps

    @torch.no_grad()
    def probabilities(self, maps: Tensor) -> Tensor:
        """Class probabilities (B, K) of maps (B, C, h, w): the network pools them as in any classification."""
        net: Any = self.backbone.net
        pooled = net.forward_head(maps.movedim(1, -1) if self._channels_last else maps, pre_logits=True)
        return self.probe(pooled.float()).cpu()

    def with_classes(self, names: list[str]) -> "MapClassifier":
        """The same classifier with other names of its classes."""
        return MapClassifier(self.backbone, self.probe._replace(classes=names))


def open_classifier(target: str, settings: Overaug, device: torch.device, console: Console) -> MapClassifier:
    """The newest probe of a run, or the classifier in another project's file of weights.

    A file has no names for its classes: they are "class 0", "class 1", ...
    """
    if run_of(target) is not None:
        trained = find_classifier(target, network=settings.network)
        console.print(str(trained))
        backbone, probe = trained.backbone, trained.probe
    else:
        backbone, probe = _read_file(target, settings, console)
    size = probe.size if settings.size == "auto" else settings.size
    backbone.check_sizes(size)
    _check_pooling(backbone, size)
    probe = probe._replace(weight=probe.weight.to(device), bias=probe.bias.to(device), size=size)
    return MapClassifier(backbone.to(device).eval(), probe)


def _read_file(target: str, settings: Overaug, console: Console) -> tuple[Backbone, Probe]:
    if target.startswith("random:"):
        raise UserError(f"{target} has no classifier; give a run with a probe of scfs linear, or add --audit.")
    loaded = load_backbone(target, name=settings.backbone or None, network=settings.network)
    weight, bias = load_head(target, loaded.backbone, network=settings.network)
    names = [f"class {label}" for label in range(len(bias))]
    about = f"Classifier: '{loaded.backbone.name}' with {len(bias)} classes, all of {target}."
    console.print(about)
    size = loaded.evaluated_size("auto")
    return loaded.backbone, Probe(weight, bias, names, size, blocks=0, weights=fingerprint(loaded.backbone))


def _check_pooling(backbone: Backbone, size: int) -> None:
    """Refuse networks whose head does not pool a map, such as those with a class token."""
    with torch.device("meta"):
        twin: Any = Backbone(backbone.name).eval().net
        is_map = twin.forward_features(torch.empty(1, 3, size, size)).ndim == 4
    if not is_map:
        raise UserError(
            f"Backbone '{backbone.name}' does not pool a map but tokens, which a feature augmentation cannot replace; "
            "use a ResNet, ConvNeXt or Swin, or add --audit, which takes any backbone."
        )


def name_classes(classifier: MapClassifier, file: str, data_classes: tuple[str, ...]) -> MapClassifier:
    """The classifier with the names in a file or, if it has none of its own and as many classes as the data, theirs."""
    count = len(classifier.probe.classes)
    if file:
        names = read_names(Path(file).expanduser())
        if len(names) != count:
            raise UserError(
                f"{file} names {len(names)} classes and the classifier has {count}; give one name per line."
            )
        return classifier.with_classes(list(names))
    unnamed = classifier.probe.classes == [f"class {label}" for label in range(count)]
    return classifier.with_classes(list(data_classes)) if unnamed and len(data_classes) == count else classifier


def true_outputs(data_classes: tuple[str, ...], classes: list[str]) -> list[int]:
    """The classifier's output for each class of the data, by name; empty unless it has all of them."""
    outputs = {name: output for output, name in enumerate(classes)}
    return [outputs[name] for name in data_classes] if {*data_classes} <= {*outputs} else []
