import torch
from torch import nn

from scfs.config import Config
from scfs.data.sources import Source, open_labelled
from scfs.errors import UserError
from scfs.evaluate.features import extract
from scfs.evaluate.knn import HEADLINE_K, knn_accuracy
from scfs.evaluate.scores import Accuracy


class OnlineKnn:
    """k-NN of the teacher while it learns, where the data has labels; the paper's protocol."""

    def __init__(self, config: Config, source: Source, *, workers: int, device: torch.device):
        self.sources: tuple[Source, Source] | None = None
        self.why_not = "the images have no labels" if config.run.knn_every_epochs else "run.knn_every_epochs is 0"
        self.size, self.workers, self.device = config.views.global_size, workers, device
        if source.classes and config.run.knn_every_epochs:
            try:
                self.sources = open_labelled(
                    config.data.source, classes=config.data.classes, max_pixels=config.data.max_pixels
                )
            except UserError as error:  # good enough to train on, not to score
                self.why_not = str(error)

    def __call__(self, backbone: nn.Module) -> Accuracy | None:
        """Top-1 and top-5 with k = 20, or None without labels."""
        if self.sources is None:
            return None
        try:
            train, val = (
                extract(
                    backbone, source, size=self.size, batch_size=128, workers=self.workers, device=self.device
                ).labelled
                for source in self.sources
            )
        except UserError as error:  # in all processes alike; training goes on
            self.sources, self.why_not = None, str(error)
            return None
        return knn_accuracy(train, val, num_classes=len(self.sources[0].classes), ks=(HEADLINE_K,))[HEADLINE_K]
