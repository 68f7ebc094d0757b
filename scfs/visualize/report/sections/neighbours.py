"""Nearest neighbours of the same photos, by each network."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from scfs.visualize.neighbours import Neighbours, nearest_others
from scfs.visualize.report.evidence import Evidence, Photos, Seen
from scfs.visualize.report.markup import Html, Section, columns, join, tag
from scfs.visualize.report.thumbnails import picture, square

NUM_NEIGHBOURS, SIDE, QUERY_SIDE = 6, 96, 160


class Answers(NamedTuple):
    """The neighbours that one network finds of every query."""

    name: str
    found: Neighbours
    same_class: float | None  # fraction over all photos; None without labels


def neighbour_section(evidence: Evidence) -> Section | None:
    """Neighbours after training beside those of the network before it; meaningless with fewer than three photos."""
    photos = evidence.photos
    if len(photos.indices) < 3:
        return None
    rows = photos.shown
    answers = [_answers(seen, photos, rows) for seen in (*evidence.trained, evidence.before)]
    blocks = [_query(photos, row, number, answers) for number, row in enumerate(rows)]
    intro = (
        f"Each photo on the left with the most similar of {len(photos.indices):,} photos, by the cosine below each. "
        "If training worked, they show the same kind of thing more often than those of the untrained network."
    )
    return Section("Nearest neighbours", join([_score(answers), *blocks]), intro)


def _answers(seen: Seen, photos: Photos, rows: Sequence[int]) -> Answers:
    found = nearest_others(seen.features, rows, NUM_NEIGHBOURS)
    if not photos.source.classes:
        return Answers(seen.name, found, None)
    everyone = nearest_others(seen.features, range(len(photos.indices)), NUM_NEIGHBOURS)
    return Answers(seen.name, found, _same_class(everyone.indices, photos.labels))


def _same_class(indices: Tensor, labels: Tensor) -> float:
    return float((labels[indices] == labels.unsqueeze(1)).float().mean())


def _score(answers: Sequence[Answers]) -> Html:
    if answers[0].same_class is None:
        return Html()
    parts = ", ".join(f"{each.name} {each.same_class:.0%}" for each in answers)
    key = [
        tag("span", tag("i", style="--c:var(--s0)"), "same class"),
        tag("span", tag("i", style="--c:var(--s1)"), "another class"),
    ]
    sentence = f"Neighbours of the same class, over all photos: {parts}."
    return join([tag("p", sentence, class_="big"), tag("div", *key, class_="key")])


def _query(photos: Photos, row: int, number: int, answers: Sequence[Answers]) -> Html:
    caption = photos.caption(row)
    query = tag(
        "figure", picture(square(photos.image(row), QUERY_SIDE), f"query: {caption}"), tag("figcaption", caption)
    )
    found = [tag("div", tag("h4", each.name), _strip(photos, row, number, each.found)) for each in answers]
    return tag("div", query, columns(found, class_="answers"), class_="query")


def _strip(photos: Photos, row: int, number: int, found: Neighbours) -> Html:
    cells = []
    for other, cosine in zip(found.indices[number].tolist(), found.cosines[number].tolist(), strict=True):
        frame = None
        if photos.source.classes:
            frame = "same" if photos.labels[other] == photos.labels[row] else "other"
        image = picture(square(photos.image(other), SIDE), photos.caption(other))
        cells.append(tag("figure", image, tag("figcaption", f"{cosine:.2f}"), class_=frame))
    return tag("div", *cells, class_="strip", style=f"--count:{NUM_NEIGHBOURS}")
