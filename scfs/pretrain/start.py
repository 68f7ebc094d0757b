from pathlib import Path
from typing import Any, cast

from rich.console import Console

from scfs.backbones import Backbone
from scfs.config import Config
from scfs.distributed import gather, on_rank_zero
from scfs.errors import UserError
from scfs.pretrain.auto import Choice
from scfs.pretrain.step import PretrainLearner
from scfs.runs import checkpoint, layout
from scfs.runs.backbone_record import as_content
from scfs.runs.resume import flat, saved_state

FREE_SECTION = "run"  # where, how and how often is said; these settings may change on resuming
FREE_SETTINGS = {"data.workers", "data.max_unreadable"}


def is_free(setting: str) -> bool:
    """Whether a setting may change on resuming."""
    return setting in FREE_SETTINGS or setting.startswith(f"{FREE_SECTION}.")


def find_checkpoint(folder: Path, config: Config, num_images: int) -> dict[str, Any] | None:
    """The last state of the run in a folder, if there is one; it must be of the same settings and images."""
    saved = saved_state(
        folder / layout.LAST,
        config.model_dump(mode="json"),
        is_free=is_free,
        otherwise="start another run folder",
        defaults=Config().model_dump(mode="json"),
    )
    if saved is not None and saved.get("images", num_images) != num_images:
        raise UserError(
            f"{folder} was trained on {saved['images']} images, and the data now has {num_images}; bring the old ones "
            "back to go on exactly, or start another run (scfs pretrain RECIPE --init goes on from its weights)."
        )
    return saved


def refuse_differing(config: Config) -> None:
    """All processes must have been given the same settings."""
    first, *others = (dict(flat(theirs)) for theirs in gather(config.model_dump(mode="json")))
    for rank, theirs in enumerate(others, start=1):
        for name, value in first.items():
            if theirs[name] != value:
                raise UserError(
                    f"Processes 0 and {rank} were given different settings ({name} = {value!r} and {theirs[name]!r}); "
                    "start all with the same recipe and flags."
                )


def save(path: Path, step: int, config: Config, num_images: int, learner: PretrainLearner) -> None:
    """Everything a run needs to go on, in one file. All randomness is a function of (seed, step): none is stored."""
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


def announce(console: Console, config: Config, choices: list[Choice], facts: dict[str, Any]) -> None:
    """Say once what is going to run: resolved settings, what `auto` became, and on what machine."""
    for section, values in config.model_dump(mode="json").items():
        shown = values if isinstance(values, dict) else {"": values}
        line = "  ".join(f"{name} {_brief(value)}".strip() for name, value in shown.items())
        console.print(f"{section:9} {line}", soft_wrap=True, highlight=False, markup=False, style="dim")
    for choice in choices:
        console.print(
            f"auto: {choice.setting} = {_brief(choice.value)} ({choice.reason})", soft_wrap=True, highlight=False
        )
    for name, value in facts.items():
        console.print(f"{name}: {value}", soft_wrap=True, highlight=False, markup=False)


def _brief(value: Any) -> str:
    return ",".join(str(part) for part in value) if isinstance(value, list | tuple) else str(value)
