"""Attention before and after training, with scales that all networks share."""

from collections.abc import Sequence

from scfs.visualize.attention import SearchedImage
from scfs.visualize.overlays import Scale, gradient, overlay, shared_scale
from scfs.visualize.report.evidence import Evidence, Seen
from scfs.visualize.report.markup import Html, Section, join, tag
from scfs.visualize.report.thumbnails import fitted, framed, picture, square, with_boxes

SIDE, PHOTO_SIDE, CROP_SIDE = 128, 224, 64


def attention_section(evidence: Evidence) -> Section:
    """Each query on its own photo at every search layer, by the network before training and by each run's."""
    networks = [evidence.before, *evidence.trained]
    scales = _scales(networks)
    blocks = [_photo(number, networks, scales) for number in range(len(evidence.before.searched))]
    intro = (
        "A crop of each photo (framed) searches the whole photo: bright where features are similar to it, by cosine. "
        "Each layer has one scale for all photos and networks, so that brightness can be compared. After training, "
        "the map should follow the thing in the crop, not be bright everywhere."
    )
    return Section("Attention before and after", join([_legend(scales), *blocks]), intro)


def _scales(networks: Sequence[Seen]) -> dict[str, Scale]:
    """By layer; networks of other architectures have other layers."""
    layers = dict.fromkeys(layer for seen in networks for layer in seen.searched[0].maps)
    return {
        layer: shared_scale(found.maps[layer] for seen in networks for found in seen.searched if layer in found.maps)
        for layer in layers
    }


def _legend(scales: dict[str, Scale]) -> Html:
    bars = [
        tag(
            "span",
            tag("b", layer),
            tag("span", f"{scale.low:.2f}"),
            tag("i", style=f"background:{gradient()}"),
            tag("span", f"{scale.high:.2f}"),
            class_="scale",
        )
        for layer, scale in scales.items()
    ]
    return tag("div", *bars, class_="scales")


def _photo(number: int, networks: Sequence[Seen], scales: dict[str, Scale]) -> Html:
    found = networks[0].searched[number]
    width, height = found.image.size
    boxes = [(x0 / width, y0 / height, x1 / width, y1 / height) for x0, y0, x1, y1 in found.boxes]
    photo = tag("figure", picture(with_boxes(found.image, boxes, PHOTO_SIDE), "photo with its queries"))
    queries = [
        tag(
            "div",
            _query_title(found, query),
            *(_row(seen.name, seen.searched[number], query, scales) for seen in networks),
        )
        for query in range(len(found.queries))
    ]
    return tag("div", photo, tag("div", *queries, class_="pair"), class_="maps")


def _query_title(found: SearchedImage, query: int) -> Html:
    style = f"{framed(query)};width:3.2rem;height:3.2rem"
    crop = picture(square(found.queries[query], CROP_SIDE), f"query {query + 1}", style=style)
    layers = [tag("span", layer) for layer in found.maps]
    names = tag("div", *layers, class_="strip names", style=f"--count:{len(layers)}")
    return tag("div", crop, names, class_="row")


def _row(name: str, found: SearchedImage, query: int, scales: dict[str, Scale]) -> Html:
    image = fitted(found.image, SIDE)
    maps = [
        tag("figure", picture(overlay(image, maps[query], scales[layer]), f"attention of {name} at {layer}"))
        for layer, maps in found.maps.items()
    ]
    return tag(
        "div",
        tag("span", name, class_="name"),
        tag("div", *maps, class_="strip", style=f"--count:{len(maps)}"),
        class_="row",
    )
