from pathlib import Path
from typing import Any, cast

from scfs.backbones import Backbone
from scfs.config import Config
from scfs.data.locations import absolute_path, absolute_source
from scfs.distributed import gather, on_rank_zero
from scfs.errors import UserError
from scfs.pretraining.step import PretrainLearner
from scfs.runs import checkpoint, layout
from scfs.runs.backbone_record import as_content
from scfs.runs.resume import flat, saved_state

FREE_SECTION = "run"  # folder, hardware, logging: these settings may change on resume
FREE_SETTINGS = {"data.workers", "data.max_unreadable"}


def is_free(setting: str) -> bool:
    """Whether a setting may change on resume."""
    return setting in FREE_SETTINGS or setting.startswith(f"{FREE_SECTION}.")


def comparable(setting: str, value: Any) -> Any:
    """A value for comparison on resume: relative paths of the data, as older runs have them, equal absolute ones."""
    make_absolute = {"data.source": absolute_source, "data.classes": absolute_path}.get(setting)
    return value if make_absolute is None else make_absolute(value)


def find_checkpoint(folder: Path, config: Config, num_images: int) -> dict[str, Any] | None:
    """The last checkpoint of a run folder, if any; its settings and number of images must match."""
    saved = saved_state(
        folder / layout.LAST,
        config.model_dump(mode="json"),
        is_free=is_free,
        otherwise="start another run folder",
        defaults=Config().model_dump(mode="json"),
        comparable=comparable,
    )
    if saved is not None and saved.get("images", num_images) != num_images:
        raise UserError(
            f"{folder} was trained on {saved['images']} images, and the data now has {num_images}; restore the old "
            "ones to resume exactly, or start another run (scfs pretrain RECIPE --init RUN starts from its weights)."
        )
    return saved


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


def save(path: Path, step: int, config: Config, num_images: int, learner: PretrainLearner) -> None:
    """Save all that resuming needs in one file. Randomness is a function of (seed, step), so none is stored."""
    method, size = learner.method, config.views.global_size
    networks = {"teacher": method.teacher, "student": method.student}
    records = {name: cast(Backbone, encoder.backbone).record(size) for name, encoder in networks.items()}
    content = {
        "step": step,
        "images": num_images,
        "settings": config.model_dump(mode="json"),
        **learner.state_dict(),
        **as_content(records),
    }
    on_rank_zero(lambda: checkpoint.save(path, content))
