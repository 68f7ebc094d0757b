from dataclasses import dataclass, replace
from typing import Literal

Contrast = Literal["dino-no-multicrop", "dino", "dino-multilayer", "scfs", "roi-crop", "scfs-no-multicrop"]
Variant = Literal["paper", "released"]
ObjectiveName = Literal["dino", "info-nce", "coding-rate", "vicreg"]
Targets = Literal["teacher", "student"]  # the network that computes the targets
Pass = Literal["global", "local"]  # the student's forward passes: one of all global views, one of all local views


@dataclass(frozen=True)
class Plan:
    """The views a contrast mode uses and its terms at each search layer, in addition to the data term."""

    local_views: bool
    layer_views: tuple[Pass, ...] = ()  # contrasted with the teacher's unsearched maps
    targets: Literal["searched", "cropped"] | None = None  # teacher maps that the queries are contrasted with
    searched_views: int = 2  # number of global views that are searched
    search_center: bool = True  # whether the logits of searched maps are centered

    @property
    def queries(self) -> Pass:
        """The student's views that act as queries: the local ones or, without them, the other global view."""
        return "local" if self.local_views else "global"

    @property
    def uses_maps(self) -> bool:
        """Whether any term uses the maps; otherwise there are no search heads."""
        return bool(self.layer_views or self.targets)

    @property
    def needs_local_views(self) -> bool:
        """Whether the mode is undefined without local views."""
        return self.local_views and self.targets is not None


# The rows of the paper's table "Influence of different contrast modes".
PLANS: dict[Contrast, Plan] = {
    "dino-no-multicrop": Plan(local_views=False),
    "dino": Plan(local_views=True),
    "dino-multilayer": Plan(local_views=True, layer_views=("global", "local")),
    "scfs": Plan(local_views=True, targets="searched"),
    "roi-crop": Plan(local_views=True, targets="cropped"),
    "scfs-no-multicrop": Plan(local_views=False, targets="searched"),
}


def plan_of(contrast: Contrast, variant: Variant = "paper", *, multilayer: bool = False) -> Plan:
    """The plan of a contrast mode, as in the paper or as in its released code.

    The released code searches the first global view only, does not center the logits of searched maps, and adds a
    global-to-global term on unsearched maps at each layer. multilayer: add the terms of DINO w ML, which contrast all
    views on unsearched maps. Modes without a search are the same with all of these.
    """
    plan = PLANS[contrast]
    if plan.targets is None:
        return plan
    if variant == "released":
        plan = replace(plan, layer_views=("global",), searched_views=1, search_center=False)
    if multilayer:
        plan = replace(plan, layer_views=("global", "local") if plan.local_views else ("global",))
    return plan
