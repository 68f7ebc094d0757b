from typing import TypeVar

from rich.console import Console

from scfs.data.sources import has_objects, open_train
from scfs.errors import UserError
from scfs.evaluate.settings import Evaluation, Target
from scfs.recipe import read_toml
from scfs.runs.layout import SETTINGS
from scfs.runs.results import run_of

AnyEvaluation = TypeVar("AnyEvaluation", bound=Evaluation)
AnyTarget = TypeVar("AnyTarget", bound=Target)


def with_data(target: str, settings: AnyEvaluation, console: Console) -> AnyEvaluation:
    """The settings with the run's own images where none are given; these need labels. Weights alone have no images."""
    source, classes = ("", "") if settings.data else own_data(target)
    if not source:
        return settings
    classes = settings.classes or classes
    try:
        has_labels = bool(open_train(source, classes=classes).classes)
    except UserError as error:
        reason = str(error).partition(";")[0].rstrip(".")
        raise UserError(f"{reason}, where the images of {target} were; give labelled images with --data.") from None
    if not has_labels:
        raise UserError(
            f"{target} was trained on {source}, which has no labels; give labelled images with --data, such as a "
            "folder of class folders."
        )
    show_own(source, console)
    return settings.model_copy(update={"data": source, "classes": classes})


def with_annotated_data(target: str, settings: AnyTarget, console: Console) -> AnyTarget:
    """The settings with the run's own images where none are given; these need boxes."""
    if settings.data:
        return settings
    source, _ = own_data(target)
    if not has_objects(source):
        where = f"{source}, which has no boxes" if source else "images that are not known"
        raise UserError(f"{target} was trained on {where}; give images with --data: scenes, voc:DIR or coco:DIR.")
    show_own(source, console)
    return settings.model_copy(update={"data": source})


def own_data(target: str) -> tuple[str, str]:
    """The source of the images that a run was trained on, and its class list; empty for weights alone."""
    run = run_of(target)
    values = {} if run is None else read_toml(run / SETTINGS)
    for task in ("finetune", "detect"):
        if task in values:
            return values[task].get("data", ""), values[task].get("classes", "")
    data = values.get("data", {})
    return data.get("source", ""), data.get("classes", "")


def show_own(source: str, console: Console) -> None:
    """Print that a run's own images are used."""
    console.print(f"No --data given: using the run's own images, {source}.", highlight=False, soft_wrap=True)
