"""Maps of the search layers in colours, by their first three principal components."""

from scfs.visualize.report.evidence import Evidence, Seen
from scfs.visualize.report.markup import Html, Section, columns, join, tag
from scfs.visualize.report.thumbnails import colour_map, fitted, picture

PHOTO_SIDE = 224


def component_section(evidence: Evidence) -> Section:
    """The maps of each photo, by the network before training and by each run's."""
    networks = [evidence.before, *evidence.trained]
    blocks = []
    for number, found in enumerate(evidence.before.searched):
        photo = tag("figure", picture(fitted(found.image, PHOTO_SIDE), "photo"))
        maps = [_maps(seen, number, found.image.size) for seen in networks]
        blocks.append(tag("div", photo, columns(maps, class_="answers"), class_="maps"))
    intro = (
        "Each position of a layer's map, coloured by its first three principal components over all photos: equal "
        "colours in a column are similar features. Things of one kind should share a colour in every photo."
    )
    return Section("Feature maps in colours", join(blocks), intro)


def _maps(seen: Seen, number: int, size: tuple[int, int]) -> Html:
    style = f"aspect-ratio:{size[0]}/{size[1]}"
    cells = [
        tag(
            "figure",
            picture(colour_map(colours[number]), f"{seen.name} at {layer}", lossless=True, style=style),
            tag("figcaption", layer),
        )
        for layer, colours in seen.colours.items()
    ]
    strip = tag("div", *cells, class_="strip", style=f"--count:{len(cells)}")
    return tag("div", tag("h4", seen.name), strip)
