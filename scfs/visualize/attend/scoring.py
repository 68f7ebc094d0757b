"""The score of attention on images with masks."""

from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from scfs.data.decode import Unreadable
from scfs.data.loader import derive_seed
from scfs.data.sources import AnnotatedSource
from scfs.data.unreadable import refuse_unreadable
from scfs.errors import UserError
from scfs.evaluate.resampling import mean_with_interval
from scfs.runs.metric import Metric
from scfs.visualize.attend.localization import Localization, distance_map, localization, on_grid
from scfs.visualize.attend.truth import KINDS, KnownQuery, known_queries
from scfs.visualize.attention import Searcher, attend

GEOMETRY, CHANCE = "distance from the box", "chance"
MEASURES = ("AUROC", "pointing")

Scores = dict[tuple[str, str], list[Localization]]  # of the queries of an image, by row and kind


class AttentionScore:
    """Collects the scores of images: a row for each layer, one for plain geometry and one for chance."""

    def __init__(self, searcher: Searcher, *, count: int, area: float, seed: int):
        self.searcher, self.count, self.area, self.seed = searcher, count, area, seed
        self.images: list[Scores] = []

    def read(self, source: AnnotatedSource, console: Console) -> list[str]:
        """Score every image of a source with masks; returns the problems of those that cannot be read."""
        problems = []
        with Progress(console=console, transient=True) as progress:
            for index in progress.track(range(len(source)), description="images"):
                try:
                    image = source.image(index)
                except Unreadable as error:
                    problems.append(str(error))
                    continue
                masks, seed = source.masks(index), derive_seed(self.seed, index)
                assert masks is not None
                queries = known_queries(source.objects(index), masks, count=self.count, area=self.area, seed=seed)
                if queries:
                    self.images.append(score_image(self.searcher, image, queries))
        refuse_unreadable(problems, len(source))
        return problems

    def rows(self) -> dict[str, list[Metric]]:
        """Metrics by row and kind of query: means over images, each the mean of its queries, with 95 % intervals."""
        kinds = [kind for kind in KINDS if any((CHANCE, kind) in scores for scores in self.images)]
        if not kinds:
            raise UserError(
                f"No box of {self.area:g} of an image's area lies on an object or on the background alone; "
                "give another --scale, or other images."
            )
        names = (*self.searcher.layers, GEOMETRY, CHANCE)
        return {
            f"{name} {kind}": [self._metric(name, kind, measure) for measure in MEASURES]
            for kind in kinds
            for name in names
        }

    def num_queries(self) -> Mapping[str, int]:
        """How many queries of each kind were scored."""
        return {kind: sum(len(scores.get((CHANCE, kind), [])) for scores in self.images) for kind in KINDS}

    def _metric(self, row: str, kind: str, measure: str) -> Metric:
        column = MEASURES.index(measure)
        queries = [scores[row, kind] for scores in self.images if (row, kind) in scores]  # of each image
        means = [float(np.mean([each[column] for each in found])) for found in queries]
        return Metric(f"{row} {kind} {measure}", *mean_with_interval(means))


def score_image(searcher: Searcher, image: Image.Image, queries: Sequence[KnownQuery]) -> Scores:
    """Scores of the attention of queries on the image they were cut from, of plain geometry, and of chance."""
    crops = searcher.queries([image.crop(query.box) for query in queries])
    maps = {layer: on_grid(found[:, 0]) for layer, found in attend(crops, searcher.keys([image])).items()}
    maps[GEOMETRY] = np.stack([distance_map(query.box, image.size) for query in queries])
    maps[CHANCE] = np.zeros_like(maps[GEOMETRY])  # all positions are equal: ties
    scores: Scores = {}
    for row, values in maps.items():
        for query, value in zip(queries, values, strict=True):
            scores.setdefault((row, query.kind), []).append(localization(value, query.region, query.counted))
    return scores
