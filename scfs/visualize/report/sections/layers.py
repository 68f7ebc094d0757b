"""k-NN by layer, where the photos have labels."""

from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.knn.neighbours import HEADLINE_K
from scfs.visualize.report.charts import colour
from scfs.visualize.report.evidence import NUM_TRAIN, NUM_VAL, Evidence
from scfs.visualize.report.markup import Html, Section, join, tag

WIDTH, BAR, GAP, LEFT, RIGHT = 560, 18, 14, 90, 60


def layer_section(evidence: Evidence) -> Section | None:
    """A bar per layer and network, with its interval."""
    networks = [*evidence.trained, evidence.before]
    layers = dict.fromkeys(layer for seen in networks for layer in seen.layer_scores)
    if not layers:
        return None
    height = len(layers) * (BAR * len(networks) + GAP)
    most = max(score.interval[1] for seen in networks for score in seen.layer_scores.values())
    scale, parts, y = (WIDTH - LEFT - RIGHT) / max(most, 0.01), list[Html](), 0.0
    for layer in layers:
        parts.append(tag("text", layer, x=LEFT - 8, y=y + BAR * len(networks) / 2 + 4, text_anchor="end"))
        for number, seen in enumerate(networks):
            if layer in seen.layer_scores:
                parts.append(_bar(seen.layer_scores[layer], y, number, scale))
            y += BAR
        y += GAP
    key = [tag("span", tag("i", style=f"--c:{colour(i)}"), seen.name) for i, seen in enumerate(networks)]
    plot = tag("svg", *parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label="k-NN top-1 by layer")
    drawn = tag("figure", plot, tag("div", *key, class_="key"), class_="chart bar", style=f"max-width:{WIDTH}px")
    intro = (
        f"Top-1 accuracy in % of k-NN (k = {HEADLINE_K}) on the pooled map of each search layer and on the final "
        f"feature, with 95 % intervals: {NUM_VAL} val images at most, against {NUM_TRAIN} train images at most. "
        "scfs knn --layers all scores all images."
    )
    return Section("k-NN by layer", drawn, intro)


def _bar(score: Accuracy, y: float, number: int, scale: float) -> Html:
    low, middle, high = (LEFT + each * scale for each in (score.interval[0], score.top1, score.interval[1]))
    centre = y + BAR / 2
    return join(
        [
            tag("rect", x=LEFT, y=y + 1, width=round(middle - LEFT, 1), height=BAR - 2, style=f"--c:{colour(number)}"),
            tag("line", x1=round(low, 1), x2=round(high, 1), y1=centre, y2=centre),
            tag("text", f"{100 * score.top1:.1f}", x=round(high + 6, 1), y=centre + 4),
        ]
    )
