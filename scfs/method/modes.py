from dataclasses import dataclass, replace
from typing import Literal

Contrast = Literal["dino-no-multicrop", "dino", "dino-multilayer", "scfs", "roi-crop", "scfs-no-multicrop"]
Variant = Literal["paper", "released"]
ObjectiveName = Literal["dino", "info-nce", "coding-rate", "vicreg"]
Targets = Literal["teacher", "student"]  # the network that gives the targets
Pass = Literal["global", "local"]  # the student sees its global views in one pass, its local views in another


@dataclass(frozen=True)
class Plan:
    """Which views, targets and terms a contrast mode uses, beside the data term on the pooled features."""

    local_views: bool
    layer_views: tuple[Pass, ...] = ()  # at each layer, these passes meet the teacher's unsearched maps
    targets: Literal["searched", "cropped"] | None = None  # at each layer, the queries meet these teacher maps
    searched_views: int = 2  # how many global views are searched
    search_center: bool = True  # whether the searched logits have a center

    @property
    def queries(self) -> Pass:
        """The student's views that search: the local ones or, without them, the other global view."""
        return "local" if self.local_views else "global"

    @property
    def uses_maps(self) -> bool:
        """Whether any term looks at the search layers; without one there are no search heads."""
        return bool(self.layer_views or self.targets)

    @property
    def needs_local_views(self) -> bool:
        """Whether the mode means nothing without local views."""
        return self.local_views and self.targets is not None


# The rows of the table "Influence of different contrast modes".
PLANS: dict[Contrast, Plan] = {
    "dino-no-multicrop": Plan(local_views=False),
    "dino": Plan(local_views=True),
    "dino-multilayer": Plan(local_views=True, layer_views=("global", "local")),
    "scfs": Plan(local_views=True, targets="searched"),
    "roi-crop": Plan(local_views=True, targets="cropped"),
    "scfs-no-multicrop": Plan(local_views=False, targets="searched"),
}


def plan_of(contrast: Contrast, variant: Variant = "paper") -> Plan:
    """The plan of a contrast mode, as the paper describes it or as the released code computes it.

    The released code searches the first global view only, gives the searched logits no center, and adds a
    global-to-global term on unsearched maps at each layer; it differs only where there is a search.
    """
    plan = PLANS[contrast]
    if variant == "released" and plan.targets is not None:
        return replace(plan, layer_views=("global",), searched_views=1, search_center=False)
    return plan
