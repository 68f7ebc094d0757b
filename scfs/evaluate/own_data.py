"""Which images a command uses: those it is given, or else those that the run was trained on."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rich.console import Console

from scfs.config import DataSettings
from scfs.data.sources import Source, has_objects, is_segmented, open_train
from scfs.errors import UserError
from scfs.evaluate.settings import Evaluation
from scfs.recipe import check, read_toml
from scfs.runs.layout import SETTINGS
from scfs.runs.results import run_of

AnyEvaluation = TypeVar("AnyEvaluation", bound=Evaluation)


class Needs(NamedTuple):
    """What a command needs of the images it uses."""

    what: str
    remedy: str  # if a run's own images do not have it
    are_met: Callable[[DataSettings], bool]


def _open_train(data: DataSettings) -> Source:
    return open_train(data.source, classes=data.classes)


_ANNOTATED = "give images with --data: scenes, voc:DIR or coco:DIR"
IMAGES = Needs("images", "give images with --data", lambda data: len(_open_train(data)) > 0)
LABELS = Needs(
    "labels",
    "give labelled images with --data, such as a folder of class folders",
    lambda data: len(_open_train(data).classes) > 0,
)
BOXES = Needs("boxes", _ANNOTATED, lambda data: has_objects(data.source))
LABEL_MAPS = Needs("label maps", _ANNOTATED, lambda data: is_segmented(data.source))


def choose_data(target: str, given: str, console: Console, *, classes: str = "", needs: Needs = IMAGES) -> DataSettings:
    """The images that are given or, if none are, the run's own, with its class list unless `classes` is another.

    The run's limit of pixels applies to both.
    """
    own = own_data(target)
    if given:
        return own.model_copy(update={"source": given, "classes": classes})
    if not own.source:
        raise UserError(f"{target} is not a run with its own images; {needs.remedy}.")
    own = own.model_copy(update={"classes": classes or own.classes})
    try:
        are_met = needs.are_met(own)
    except UserError as error:
        reason = str(error).partition(";")[0].rstrip(".")
        raise UserError(f"{reason}, where the images of {target} were; {needs.remedy}.") from None
    if not are_met:
        raise UserError(f"{target} was trained on {own.source}, which has no {needs.what}; {needs.remedy}.")
    note = f"No --data given: using the run's own images, {own.source}."
    console.print(note)
    return own


def with_data(target: str, settings: AnyEvaluation, console: Console) -> AnyEvaluation:
    """The settings with the run's own images where none are given; these need labels. Weights alone have no images."""
    if not settings.data and not own_data(target).source:
        return settings
    data = choose_data(target, settings.data, console, classes=settings.classes, needs=LABELS)
    return settings.model_copy(update={"data": data.source, "classes": data.classes})


def own_data(target: str) -> DataSettings:
    """The images that a run was trained on, its class list and its limit of pixels; weights alone have no source."""
    run = run_of(target)
    values = {} if run is None else read_toml(run / SETTINGS)
    data = values.get("data", {})
    for task in ("finetune", "detect"):
        if task in values:
            data |= {"source": values[task].get("data", ""), "classes": values[task].get("classes", "")}
    return check(DataSettings, {name: data[name] for name in ("source", "classes", "max_megapixels") if name in data})
