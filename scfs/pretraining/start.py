import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from scfs.backbones import Backbone
from scfs.config import Config
from scfs.data.locations import absolute_path, absolute_source, image_record
from scfs.data.sources import Source
from scfs.distributed import gather, on_rank_zero
from scfs.errors import UserError
from scfs.pretraining.step import PretrainLearner
from scfs.runs import checkpoint, layout
from scfs.runs.auto_choices import read_auto_choices
from scfs.runs.backbone_record import as_content
from scfs.runs.resume import flat, saved_state

FREE_SECTION = "run"  # folder, hardware, logging: these settings may change on resume
FREE_SETTINGS = {"data.workers", "data.max_unreadable"}
LOCATIONS = {"data.source": absolute_source, "data.classes": absolute_path, "backbone.init": absolute_path}
MOVABLE = {"data.source", "data.classes"}  # may change on resume if the images are the same


def is_free(setting: str) -> bool:
    """Whether a setting may change on resume."""
    return setting in FREE_SETTINGS or setting.startswith(f"{FREE_SECTION}.")


def comparable(setting: str, value: Any) -> Any:
    """A value for comparison on resume: relative paths, as older runs have them, equal absolute ones."""
    return LOCATIONS[setting](value) if setting in LOCATIONS else value


def with_absolute_paths(config: Config) -> Config:
    """The settings with absolute paths, so that a run finds its images and weights from any working directory."""
    values = config.model_dump()
    for setting in LOCATIONS:
        section, name = setting.split(".")
        values[section][name] = comparable(setting, values[section][name])
    return Config.model_validate(values)


def with_epochs_of(config: Config, folder: Path) -> Config:
    """The settings with the number of epochs that the run in a folder has, if they have a time instead."""
    choice = next((each for each in read_auto_choices(folder) if each.setting == "optim.epochs"), None)
    if config.optim.seconds is None:
        return config
    if choice is None or choice.given != config.optim.epochs:
        before = "a number of epochs" if choice is None else choice.given
        raise UserError(
            f"{folder} was started with {before}, not optim.epochs = '{config.optim.epochs}'; resume it with scfs "
            f"pretrain {shlex.quote(str(folder))} --resume, or start another run folder."
        )
    return config.model_copy(update={"optim": config.optim.model_copy(update={"epochs": choice.value})})


def find_checkpoint(
    folder: Path, config: Config, source: Source, warn: Callable[[str], object]
) -> dict[str, Any] | None:
    """The last checkpoint of a run folder, if any; its settings and images must match, but these may have moved.

    `warn` is told if the last one is damaged and the one before it is used.
    """
    saved = saved_state(
        folder / layout.LAST,
        config.model_dump(mode="json"),
        is_free=lambda setting: is_free(setting) or setting in MOVABLE,
        otherwise="start another run folder",
        defaults=Config().model_dump(mode="json"),
        comparable=comparable,
        warn=warn,
    )
    if saved is not None:
        _refuse_other_images(folder, saved, config, source)
    return saved


def _refuse_other_images(folder: Path, saved: dict[str, Any], config: Config, source: Source) -> None:
    ours, moved = image_record(source), moved_from(saved, config)
    advice = "to resume exactly, or start another run (scfs pretrain RECIPE --init RUN starts from its weights)"
    if saved.get("images", ours["images"]) != ours["images"]:
        raise UserError(
            f"{folder} was trained on {saved['images']} images, and the data now has {ours['images']}; restore the old "
            f"ones {advice}."
        )
    # Older runs have no names: their images may move, but their class list must not.
    is_same = saved["image_names"] == ours["image_names"] if "image_names" in saved else "data.classes" not in moved
    if moved and not is_same:
        raise UserError(
            f"{folder} was trained on as many images as {config.data.source} has, but their names or classes differ; "
            f"give the same images {advice}."
        )


def moved_from(saved: dict[str, Any], config: Config) -> dict[str, str]:
    """Where the images and the class list of a checkpoint were, by setting, if they are elsewhere now."""
    before, now = (dict(flat(values)) for values in (saved["settings"], config.model_dump(mode="json")))
    return {
        setting: str(before[setting])
        for setting in sorted(MOVABLE & before.keys())
        if comparable(setting, before[setting]) != comparable(setting, now[setting])
    }


def refuse_different_settings(config: Config) -> None:
    """Check that all processes were given the same settings."""
    first, *others = (dict(flat(theirs)) for theirs in gather(config.model_dump(mode="json")))
    for rank, theirs in enumerate(others, start=1):
        for name, value in first.items():
            if theirs[name] != value:
                raise UserError(
                    f"Processes 0 and {rank} were given different settings ({name} = {value!r} and {theirs[name]!r}); "
                    "start all with the same recipe and flags."
                )


def save(path: Path, step: int, config: Config, images: dict[str, Any], learner: PretrainLearner) -> None:
    """Save all that resuming needs in one file. Randomness is a function of (seed, step), so none is stored.

    images: the `image_record` of the source.
    """
    method, size = learner.method, config.views.global_size
    networks = {"teacher": method.teacher, "student": method.student}
    records = {name: cast(Backbone, encoder.backbone).record(size) for name, encoder in networks.items()}
    content = {
        "step": step,
        **images,
        "settings": config.model_dump(mode="json"),
        **learner.state_dict(),
        **as_content(records),
    }
    write = checkpoint.save_and_keep if path.name == layout.LAST else checkpoint.save
    on_rank_zero(lambda: write(path, content))
