import numpy as np
import torch
from torch import nn

from scfs.config import Config
from scfs.data.order import fixed_sample
from scfs.data.same_images import refuse_different_images
from scfs.data.selection import Subset
from scfs.data.sources import Source, open_labelled
from scfs.distributed import gather, on_rank_zero
from scfs.errors import UserError, WorkerDiedError
from scfs.evaluate.features import Extracted, effective_rank, extract, whole
from scfs.evaluate.knn.neighbours import HEADLINE_K, knn_accuracy
from scfs.runs.metric import Metric

SAMPLE = 2048  # images to compute the rank of features from
RANK = "RankMe"


class OnlineScore:
    """Scores the teacher during training, every `run.knn_every_epochs` epochs.

    The effective rank of its features of a fixed sample (RankMe) needs no labels; if the data has labels, k-NN with
    the paper's protocol.
    """

    def __init__(self, config: Config, source: Source, *, workers: int, device: torch.device):
        self.enabled = int(config.run.knn_every_epochs) > 0
        self.sources: tuple[Source, Source] | None = None
        self.skip_reason = "the images have no labels" if self.enabled else "run.knn_every_epochs is 0"
        self.size, self.workers, self.device = config.views.global_size, workers, device
        chosen = fixed_sample(config.seed, len(source), SAMPLE)
        self.sample = Subset(source, chosen, np.zeros(len(chosen), np.int32), ())
        if source.classes and self.enabled:
            self._open_labelled(config)

    def _open_labelled(self, config: Config) -> None:
        """Open the labelled images, unless some process cannot: what suffices for training may not for scoring."""
        data, sources, problem = config.data, None, ""
        try:
            sources = open_labelled(data.source, classes=data.classes, max_pixels=data.max_pixels)
        except UserError as error:
            problem = str(error)
        if problems := [each for each in gather(problem) if each]:
            self.skip_reason = problems[0]
        elif sources is not None:
            refuse_different_images(*sources)
            self.sources = sources

    def __call__(self, backbone: nn.Module) -> list[Metric]:
        """RankMe and, if there are labels, k-NN top-1 and, of more than five classes, top-5 with k = 20."""
        if not self.enabled:
            return []
        try:
            features = whole(self._features(backbone, self.sample)).labelled.features
            rank_me = on_rank_zero(lambda: effective_rank(features))
            metrics = [Metric(RANK, rank_me, unit="")]
            if self.sources is not None:
                train, val = (self._features(backbone, source) for source in self.sources)
                num_classes = len(self.sources[0].classes)
                scores = knn_accuracy(train.labelled, val.labelled, num_classes=num_classes, indices=train.indices)
                metrics += scores[HEADLINE_K].metrics("k-NN ", num_classes=num_classes)
        except WorkerDiedError:
            raise
        except UserError as error:  # the same in all processes; training continues
            self.enabled, self.sources, self.skip_reason = False, None, str(error)
            return []
        return metrics

    def _features(self, backbone: nn.Module, source: Source) -> Extracted:
        return extract(backbone, source, size=self.size, batch_size=128, workers=self.workers, device=self.device)
