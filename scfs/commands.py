"""The table of commands. Usage, help, dispatch and shell completion come from it: a new command is a new row."""

from collections.abc import Mapping
from dataclasses import dataclass, field

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Argument:
    """A positional argument. Jobs get a string or a `Path`, and None for an optional one that is not given."""

    name: str
    about: str
    optional: bool = False
    many: bool = False  # the job gets a list
    is_path: bool = False
    choices: tuple[str, ...] = ()
    recipe: str = ""  # the command it is for: it gives values to the settings, which flags override

    @property
    def usage(self) -> str:
        name = "|".join(self.choices) or self.name
        shown = f"{name} ..." if self.many else name
        return f"[{shown}]" if self.optional else shown


@dataclass(frozen=True)
class Command:
    """A row: what `scfs NAME ...` accepts, and what it calls.

    `settings` and `job` are import paths, "module:name", so that help does not wait for torch. The job is called as
    `job(*arguments, settings, console=console, **switches)`.
    """

    name: str
    about: str
    arguments: tuple[Argument, ...] = ()
    settings: str = ""
    job: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)  # other names of settings
    switches: Mapping[str, str] = field(default_factory=dict)  # flags that are not settings, and their help
    named: bool = False  # the job also gets `name`, the recipe's, and `changes`, what flags have changed in it
    recipe_settings: str = ""  # if recipes hold settings other than the command's: the job gets a list of them

    @property
    def usage(self) -> str:
        flags = [*(["[--setting value ...]"] if self.settings else []), *(f"[--{name}]" for name in self.switches)]
        return " ".join(["scfs", self.name, *(argument.usage for argument in self.arguments), *flags])


WEIGHTS = Argument("RUN_OR_WEIGHTS", "a run folder, a weights file, or random:NAME")
SEARCHERS = Argument("RUN_OR_WEIGHTS", "run folders, weights files, or random:NAME", many=True)
RUN = Argument("RUN", "a run folder")
RUNS = Argument("RUN", "run folders", many=True)
FOLDERS = Argument("RUN", "a run folder, or several to show side by side", many=True, is_path=True)
SOURCE = Argument("SOURCE", "a folder of images, or another source")
PHOTOS = Argument("PHOTOS", "a folder of images")
COPIES = Argument("OUT", "the folder of the copies: a new one, or one to continue", is_path=True)
START = Argument(
    "RECIPE", "a recipe's name or .toml file, a run folder, or a folder of photos", True, recipe="pretrain"
)
TUNING = Argument("RECIPE", "a recipe for fine-tuning, by its name or .toml file", True, recipe="finetune")
DETECTION = Argument("RECIPE", "a recipe for detection, by its name or .toml file", True, recipe="detect")
PLANS = Argument("RECIPE", "recipes, by name or .toml file", many=True, recipe="pretrain")
TABLE = Argument("TABLE", "a table of the paper", choices=("modes", "layers", "locals", "backbones"))
PREDICTIONS = Argument("OUT", "a .csv file to write; of a detector, a .json file in COCO's format", True, is_path=True)
FEATURE_FILE = Argument("OUT", "a .npy or .parquet file to write, or a folder of parquet files", True, is_path=True)
MODEL_FILE = Argument(
    "OUT",
    "a .safetensors, .pth, .pt2, .onnx or .pkl file; with --to transformers, a folder",
    is_path=True,
)
NAME = Argument("NAME", "the recipe to print", True)
SHELL = Argument("SHELL", "the shell", choices=SHELLS)
COMMAND = Argument("COMMAND", "the command", True, many=True)
PRETRAIN = {
    "resume": "resume a stopped run exactly where it stopped",
    "dry-run": "estimate the cost of a run and draw example views, without training",
}
RECIPES = "scfs.recipes.catalogue"


def evaluation(name: str, about: str, *more: Argument, aliases: Mapping[str, str] | None = None) -> Command:
    """An evaluation of a backbone, in its own package: scfs/evaluate/NAME with settings.py and job.py."""
    package = f"scfs.evaluate.{name}"
    settings, job = f"{package}.settings:{name.capitalize()}", f"{package}.job:{name}"
    return Command(name, about, (WEIGHTS, *more), settings, job, aliases=aliases or {})


def bench(name: str, about: str) -> Command:
    """A measurement of what training costs."""
    settings, job = f"scfs.bench.settings:Bench{name.capitalize()}", f"scfs.bench.{name}:bench_{name}"
    return Command(f"bench {name}", about, settings=settings, job=job)


ROWS = (
    Command(
        "pretrain",
        "Pre-train a backbone on unlabelled images.",
        (START,),
        settings="scfs.config:Config",
        job="scfs.pretraining.command:pretrain_or_preview",
        aliases={"init": "backbone.init"},
        switches=PRETRAIN,
        named=True,
    ),
    evaluation("knn", "Score a backbone by its nearest neighbours."),
    evaluation("linear", "Score a backbone by linear classifiers on its frozen features, and save the best."),
    evaluation("segment", "Score the maps of a frozen backbone by the class of every pixel."),
    evaluation(
        "finetune",
        "Score a backbone by fine-tuning it with all or some labels, and save the network.",
        TUNING,
        aliases={"from": "start"},
    ),
    evaluation(
        "detect",
        "Score a backbone by training a detector of boxes and masks from it, and save the detector.",
        DETECTION,
        aliases={"from": "start"},
    ),
    Command(
        "attend",
        "Draw where the feature search of one or several backbones looks in images, or score it by masks.",
        (SEARCHERS,),
        settings="scfs.visualize.attend.settings:Attend",
        job="scfs.visualize.attend.job:attend_and_draw",
    ),
    Command(
        "predict",
        "Predict classes with what linear or finetune saved, or objects with what detect saved.",
        (RUN, SOURCE, PREDICTIONS),
        settings="scfs.evaluate.settings:Predict",
        job="scfs.evaluate.predict:predict",
    ),
    Command(
        "ablate",
        "Train and score the rows of one of the paper's tables.",
        (TABLE, PLANS),
        settings="scfs.ablate.settings:Ablate",
        job="scfs.ablate.job:ablate",
        recipe_settings="scfs.config:Config",
    ),
    Command("compare", "Compare the scores of runs.", (RUNS,), job="scfs.evaluate.compare:compare"),
    Command(
        "embed",
        "Write the features of every image, or print the images most similar to one.",
        (WEIGHTS, SOURCE, FEATURE_FILE),
        settings="scfs.evaluate.settings:Embed",
        job="scfs.evaluate.embed:embed",
    ),
    Command(
        "export",
        "Write a backbone for timm, torchvision, torch alone, detectron2, ONNX or transformers.",
        (WEIGHTS, MODEL_FILE),
        settings="scfs.evaluate.settings:Export",
        job="scfs.exporting:export_and_print",
    ),
    Command(
        "check-data",
        "Decode every image of a source, and report what is damaged, oversized, tiny, duplicate or skipped.",
        (SOURCE,),
        settings="scfs.data_check.settings:CheckData",
        job="scfs.data_check.job:check_data",
    ),
    Command(
        "resize-data",
        "Write smaller copies of the images of a folder: large photos take longer to decode than to train on.",
        (PHOTOS, COPIES),
        settings="scfs.data_resize.settings:ResizeData",
        job="scfs.data_resize.job:resize_data",
    ),
    Command(
        "report",
        "Write an HTML page of what a run learned, or several runs side by side.",
        (FOLDERS,),
        settings="scfs.visualize.settings:Report",
        job="scfs.visualize.report.job:report",
    ),
    Command(
        "explore",
        "Serve a page on this machine that shows what the feature search looks at, for boxes that you draw.",
        (SEARCHERS,),
        settings="scfs.visualize.explore.settings:Explore",
        job="scfs.visualize.explore.job:explore",
    ),
    Command(
        "overaug",
        "Show class probabilities of over-augmented views (the paper's Fig. 1), or suggest crop scales (--audit).",
        (WEIGHTS,),
        settings="scfs.visualize.overaug.settings:Overaug",
        job="scfs.visualize.overaug.job:overaug",
    ),
    bench("step", "Compare the time of training steps with peers."),
    bench("data", "Compare the time of the view paths."),
    bench("memory", "Measure memory and time of training steps, each in its own process."),
    bench("growth", "Time training steps by number of views, batch size and resolution."),
    Command("recipes", "List the recipes, or print one to save and edit.", (NAME,), job=f"{RECIPES}:show"),
    Command("completion", "Print a completion script for a shell.", (SHELL,), job="scfs.completion:show"),
    Command("help", "Show the help of a command.", (COMMAND,), job="scfs.cli:show_help"),
)
COMMANDS: dict[str, Command] = {row.name: row for row in ROWS}
