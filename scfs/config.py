from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from scfs.errors import UserError
from scfs.method.modes import Contrast, ObjectiveName, Plan, Targets, Variant, plan_of
from scfs.setting_types import (
    Auto,
    Count,
    CropScale,
    Epochs,
    Fraction,
    NewPath,
    Positive,
    PrecisionName,
    Seed,
    Settings,
    Side,
    Temperature,
    Time,
    as_names,
    seconds_of,
)

DINO_OUT_DIM, CENTER_MOMENTUM = 65536, 0.9  # the paper's


class DataSettings(Settings):
    """Where the images come from."""

    source: str = Field(
        "",
        description="folder, list (.txt), tar shards, parquet, cifar10:DIR, cifar100:DIR, imagenette:DIR, cub:DIR, "
        "cars:DIR, aircraft:DIR, pets:DIR, voc:DIR, coco:DIR, or scenes (the embedded data; scenes:TRAIN,VAL sizes it)",
    )
    classes: str = Field("", description="file naming the class folders to use, one per line; empty: all")
    max_megapixels: Positive = Field(100, description="larger images count as unreadable")
    max_unreadable: Fraction = Field(
        0.01,
        description="unreadable images above which a run stops, as a fraction; ten are allowed, unless they are half",
    )
    workers: Count | Auto = Field(
        "auto", description="data loader workers; auto: one per core, at most 8; without a GPU one per 4 cores"
    )

    @property
    def max_pixels(self) -> int:
        return self.max_megapixels * 1_000_000


class BackboneSettings(Settings):
    """The network to pre-train."""

    name: str = Field(
        "resnet50",
        description="a timm model, or a reduced one for CPUs: resnet10_quarter, resnet10_half, resnet18_half, resnet10",
    )
    layers: Annotated[tuple[str, ...] | Auto, BeforeValidator(as_names)] = Field(
        "auto",
        description="search layers, shallow to deep; auto: the last three stages; of a ViT, 1/2, 3/4 and all of it",
    )
    init: str = Field(
        "", description="initial weights: a run, or a weights file of timm, torchvision, DINO, MoCo, SCFS"
    )
    drop_path: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="drop path rate, student only")


class MethodSettings(Settings):
    """What is contrasted, and the heads, losses and constants."""

    contrast: Contrast = Field("scfs", description="contrast mode, a row of the paper's table")
    variant: Variant = Field("paper", description="as in the paper, or as in its released code")
    multilayer: bool = Field(
        False, description="in modes with a search, contrast unsearched maps too, as dino-multilayer does"
    )
    data_term: bool = Field(True, description="contrast pooled features too (the paper's L_d)")
    objective: ObjectiveName = Field("dino", description="loss of the data term; dino: the paper's self-distillation")
    search_objective: ObjectiveName | Literal["same"] = Field("same", description="loss of the terms at the layers")
    search_weight: Annotated[float, Field(ge=0)] = Field(1.0, description="weight of the terms at the layers")
    targets: Targets = Field("teacher", description="network that computes the targets; student: as in SimCLR")
    out_dim: Positive | Auto = Field(DINO_OUT_DIM, description="outputs of the data head (objective dino only)")
    hidden_dim: Positive = Field(2048, description="hidden width of the data head")
    bottleneck_dim: Positive = Field(
        256, description="width before the data head's last layer; with objectives other than dino, outputs of the head"
    )
    batch_norm: bool = Field(False, description="batch norm in the data head (objective dino only)")
    search_head: Literal["residual", "pooled"] = Field(
        "residual", description="search heads; residual: the paper's; pooled: without the residual block, far cheaper"
    )
    search_out_dim: Positive = Field(256, description="outputs of the search heads")
    search_hidden_dim: Positive = Field(2048, description="hidden width of the search heads")
    search_bottleneck_dim: Positive = Field(256, description="channels inside the search heads' residual block")
    student_temp: Temperature = Field(0.1, description="temperature of the student's softmax (objective dino only)")
    teacher_temp: Temperature | Auto = Field(0.07, description="teacher temperature after its warm-up")
    teacher_temp_start: Temperature = Field(0.04, description="teacher temperature at the first step")
    teacher_temp_warmup_epochs: Count | Auto = Field(50, description="epochs of linear temperature warm-up")
    centering: Literal["center", "sinkhorn"] = Field(
        "center", description="how outputs are balanced (objective dino only); sinkhorn: as in SwAV and DINOv2"
    )
    center_momentum: Fraction = Field(CENTER_MOMENTUM, description="momentum of the center (objective dino only)")
    info_nce_temp: Temperature = Field(0.1, description="temperature of objective info-nce")
    momentum: Fraction | Auto = Field(0.996, description="teacher momentum at the start")
    final_momentum: Fraction | Literal["same"] = Field(1.0, description="teacher momentum at the end of a cosine")
    freeze_last_layer_epochs: Count = Field(1, description="epochs in which the data head's last layer is frozen")

    @model_validator(mode="after")
    def _fits_objective(self) -> "MethodSettings":
        """Refuse incompatible settings."""
        if self.objective != "dino" and self.out_dim not in (DINO_OUT_DIM, "auto"):
            raise UserError(
                f"method.out_dim {self.out_dim} is the number of outputs of objective dino; objective "
                f"'{self.objective}' has none: omit it (method.bottleneck_dim is the width of its head's output)."
            )
        if self.objective != "dino" and self.batch_norm:
            raise UserError(
                f"method.batch_norm = true is for objective dino; the head of '{self.objective}' always has "
                "batch norms: omit it."
            )
        if "dino" not in self.objectives and self.centering != "center":
            raise UserError(
                f"method.centering '{self.centering}' applies to objective dino, not to '{self.objective}'; omit it."
            )
        if self.centering == "sinkhorn" and self.center_momentum != CENTER_MOMENTUM:
            raise UserError(
                f"method.center_momentum {self.center_momentum:g} needs a center, and method.centering 'sinkhorn' has "
                "none; omit one of them."
            )
        searches_dino = self.plan.targets is not None and self.layer_objective == "dino"
        if self.centering == "sinkhorn" and searches_dino and not self.plan.search_center:
            raise UserError(
                f"method.variant '{self.variant}' does not center the logits of searched maps, and method.centering "
                "'sinkhorn' would balance them; omit one of them."
            )
        if self.targets == "student" and "dino" in self.objectives:
            raise UserError(
                "method.targets = 'student' leaves objective dino without a teacher, and it would collapse; "
                "choose method.objective 'info-nce', 'coding-rate' or 'vicreg', or targets 'teacher'."
            )
        if self.targets == "student" and self.momentum == 1 and self.final_momentum in (1, "same"):
            raise UserError(
                "method.momentum = 1 keeps the teacher, which is evaluated and exported, at its initial weights; "
                "lower it."
            )
        return self

    @property
    def objectives(self) -> list[ObjectiveName]:
        """The objectives of the terms in use."""
        return [*[self.objective] * self.data_term, *[self.layer_objective] * self.plan.uses_maps]

    @property
    def layer_objective(self) -> ObjectiveName:
        """The objective of the terms at the layers."""
        return self.objective if self.search_objective == "same" else self.search_objective

    @property
    def plan(self) -> Plan:
        return plan_of(self.contrast, self.variant, multilayer=self.multilayer)

    def num_outputs(self, term: str) -> int | None:
        """K of the softmax of a term, such as "view" or "search/layer3", from resolved settings; None without one."""
        is_layer = "/" in term
        if (self.layer_objective if is_layer else self.objective) != "dino":
            return None
        return self.search_out_dim if is_layer else int(self.out_dim)


class ViewSettings(Settings):
    """How views are made."""

    global_size: Side = Field(224, description="side of the two global views, in pixels")
    local_size: Side = Field(96, description="side of the local views, in pixels")
    num_local_views: Count = Field(8, description="local views of an image, where the contrast mode uses them")
    global_scale: CropScale | Auto = Field("auto", description="area of global crops; auto: 0.14-1, released 0.25-1")
    local_scale: CropScale | Auto = Field(
        "auto", description="area of local crops; auto: 0.05-0.14, released 0.05-0.25"
    )
    blur: Annotated[float, Field(ge=0, le=1)] | Auto = Field(
        1.0, description="blur radii relative to the paper's, 0.1 to 2 pixels; auto: 0 (no blur) for small views"
    )
    path: Literal["fast", "reference"] = Field(
        "fast", description="how views are rendered; reference: by torchvision on PIL images"
    )
    colours: Literal["loader", "device"] = Field(
        "loader", description="where views are coloured and blurred; device: in batches, if data loading is too slow"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "ViewSettings":
        for name in ("global_scale", "local_scale"):
            scale = getattr(self, name)
            if scale != "auto" and scale[0] > scale[1]:
                raise UserError(f"views.{name} {scale} must be ascending: the smallest area, then the largest.")
        return self


class OptimSettings(Settings):
    """How the student is optimized."""

    name: Literal["sgd", "adamw", "lars", "muon"] = Field("sgd", description="optimizer")
    epochs: Epochs | Time = Field(
        200, description="passes over the images; or a time, such as 30min or 1.5h: as many as fit on this machine"
    )
    batch_size: Positive = Field(256, description="images per optimizer step, over all processes")
    accumulate: Positive = Field(1, description="gradient accumulation: micro-batches per step in each process")
    precision: PrecisionName | Auto = Field(
        "float32",
        description="arithmetic; half precision by autocast; auto: bfloat16 where it is native",
    )
    lr: Annotated[float, Field(gt=0)] = Field(0.1, description="peak learning rate for a batch of 256, scaled linearly")
    backbone_lr_scale: Annotated[float, Field(gt=0, le=1)] | Auto = Field(
        1.0, description="learning rate of the backbone relative to that of the heads; auto: lower with backbone.init"
    )
    # Differs from the paper: the paper gives neither a final rate nor clipping; these are the released code's.
    final_lr: Annotated[float, Field(ge=0)] = Field(0.0048, description="final learning rate, not scaled")
    warmup_epochs: Annotated[float, Field(ge=0)] | Auto = Field(10, description="epochs of linear warm-up")
    weight_decay: Annotated[float, Field(ge=0)] = Field(1e-4, description="weight decay, except on biases and norms")
    final_weight_decay: Annotated[float, Field(ge=0)] | Literal["same"] = Field(
        "same", description="weight decay at the end of a cosine"
    )
    clip: Literal["off", "per-tensor", "total"] = Field("per-tensor", description="what clip_norm bounds")
    clip_norm: Annotated[float, Field(gt=0)] = Field(3.0, description="largest norm of a gradient; see clip")

    @property
    def peak_lr(self) -> float:
        return self.lr * self.batch_size / 256

    @property
    def num_epochs(self) -> int:
        """The epochs of resolved settings."""
        return int(self.epochs)

    @property
    def seconds(self) -> float | None:
        """The time to train for, if epochs are given as a time."""
        return seconds_of(self.epochs) if isinstance(self.epochs, str) else None


class RunSettings(Settings):
    """Folder, hardware, logging and checkpoints; nothing that changes what is learned."""

    folder: NewPath = Field("auto", description="run folder; auto: runs/RECIPE, or the next free number after it")
    device: str = Field("auto", description="cpu, cuda, cuda:1, ...; auto: cuda if available")
    threads: Positive | Auto = Field(
        "auto", description="CPU threads; auto: OMP_NUM_THREADS, or the cores divided by the processes on the machine"
    )
    channels_last: bool = Field(True, description="memory layout of images and convolutions")
    gradient_checkpointing: bool = Field(False, description="less memory, about a quarter more time, the same results")
    compile: bool = Field(False, description="torch.compile the backbones; the first steps take minutes")
    loggers: Annotated[tuple[Literal["wandb", "mlflow"], ...], BeforeValidator(as_names)] = Field(
        (), description="also log to these (optional dependencies)"
    )
    on_collapse: Literal["warn", "stop"] = Field("warn", description="what to do at a sign of collapse")
    log_every_steps: Positive = Field(10, description="steps between lines of the log")
    knn_every_epochs: Count | Auto = Field(
        10,
        description="epochs between online RankMe and k-NN, also done at the start and the end; 0: never; "
        "auto: a tenth of the run",
    )
    checkpoint_every_steps: Positive | Auto = Field(
        "auto",
        description="steps between checkpoints, and one before each evaluation; auto: an epoch, or several if short",
    )
    keep_every_epochs: Count | Auto = Field(
        0, description="epochs between checkpoints that are kept; 0: only the last is; auto: a quarter of the run"
    )


class Config(Settings):
    """All settings of a pre-training run. Defaults are the paper's 200 epochs on ImageNet."""

    seed: Seed = Field(0, description="seed of weights, order and views")
    data: DataSettings = DataSettings()
    backbone: BackboneSettings = BackboneSettings()
    method: MethodSettings = MethodSettings()
    views: ViewSettings = ViewSettings()
    optim: OptimSettings = OptimSettings()
    run: RunSettings = RunSettings()

    @model_validator(mode="after")
    def _consistent(self) -> "Config":
        method, plan, optim = self.method, self.method.plan, self.optim
        if plan.needs_local_views and self.views.num_local_views == 0:
            raise UserError(
                f"Contrast '{method.contrast}' needs local views but views.num_local_views is 0; "
                "give it some or choose 'dino-no-multicrop' or 'scfs-no-multicrop'."
            )
        if not method.data_term and not plan.uses_maps:
            raise UserError(
                f"Contrast '{method.contrast}' has only the data term; method.data_term = false leaves no loss."
            )
        if plan.uses_maps and not self.backbone.layers:
            raise UserError(
                f"backbone.layers is empty but contrast '{method.contrast}' works on search layers; name one."
            )
        if self.run.compile and self.run.gradient_checkpointing:
            raise UserError(
                "run.compile and run.gradient_checkpointing do not work together: torch cannot compile blocks that are "
                "computed again; omit one of them."
            )
        contrasting = [name for name in method.objectives if name != "dino"]
        if contrasting and optim.batch_size // optim.accumulate < 2:
            raise UserError(
                f"Objective '{contrasting[0]}' contrasts the images of a batch and needs two or more at a time; raise "
                "optim.batch_size or lower optim.accumulate."
            )
        fewest = self.num_local_views if plan.local_views else plan.searched_views
        if optim.batch_size // optim.accumulate * fewest == 1:
            raise UserError(
                "One image with one view per pass leaves batch norms nothing to average; raise optim.batch_size or "
                "lower optim.accumulate."
            )
        if optim.final_lr > optim.peak_lr:
            raise UserError(
                f"optim.final_lr {optim.final_lr:g} is above the peak learning rate {optim.peak_lr:g} "
                "(optim.lr x batch_size / 256); lower it."
            )
        if isinstance(optim.epochs, int) and optim.warmup_epochs != "auto" and optim.warmup_epochs > optim.epochs:
            raise UserError(
                f"optim.warmup_epochs {optim.warmup_epochs:g} exceeds optim.epochs {optim.epochs}; lower it, or set it "
                "to auto."
            )
        return self

    @property
    def num_local_views(self) -> int:
        """How many local views the contrast mode uses."""
        return self.views.num_local_views if self.method.plan.local_views else 0

    @property
    def crops(self) -> dict[str, Any]:
        """The arguments of `MultiCrop`, from resolved settings."""
        return {**self.views.model_dump(), "num_local_views": self.num_local_views}
