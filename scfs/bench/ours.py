import torch
from torch import nn

from scfs.config import Config
from scfs.pretraining.auto import resolve
from scfs.pretraining.build import build_learner, build_method
from scfs.pretraining.step import schedule_at
from scfs.view_batch import ViewBatch

CPU = torch.device("cpu")
NUM_IMAGES = 1_281_167  # ImageNet's
LATER_EPOCH = 100  # after all warm-ups, with nothing frozen


class OurStep:
    """Training steps of a mode with the paper's settings, on given views, as `scfs pretrain` takes them."""

    def __init__(
        self,
        batch: ViewBatch,
        *,
        contrast: str,
        variant: str,
        backbone: str,
        out_dim: int = 65536,
        recompute: bool = False,
    ):
        num_images = batch.global_views.shape[1]
        config = Config.model_validate(
            {
                "backbone": {"name": backbone},
                "method": {"contrast": contrast, "variant": variant, "out_dim": out_dim},
                "views": {"global_size": batch.global_views.shape[-1], "local_size": batch.local_views.shape[-1]},
                "optim": {"batch_size": num_images, "final_lr": 0},
                "run": {"gradient_checkpointing": recompute},
            }
        )
        torch.manual_seed(0)
        self.config, _ = resolve(config, NUM_IMAGES, CPU)
        method = build_method(self.config)
        self.batch, self.learner = batch, build_learner(self.config, method, CPU, num_images=NUM_IMAGES)
        self.steps_per_epoch = NUM_IMAGES // num_images

    def __call__(self, turn: int) -> None:
        """One step."""
        step = LATER_EPOCH * self.steps_per_epoch + turn
        self.learner.update([self.batch], schedule_at(self.config, step, self.steps_per_epoch))

    def backbones(self) -> list[nn.Module]:
        """The backbones of student and teacher."""
        return [encoder.backbone for encoder in (self.learner.method.student, self.learner.method.teacher)]


def random_batch(
    num_images: int, *, global_size: int = 224, local_size: int = 96, num_local_views: int = 8
) -> ViewBatch:
    """Views of noise, as they leave the loader: uint8, channels last."""
    generator = torch.Generator().manual_seed(0)

    def noise(views: int, size: int) -> torch.Tensor:
        shape = (views, num_images, size, size, 3)
        return torch.randint(256, shape, dtype=torch.uint8, generator=generator).movedim(-1, 2)

    whole_image = torch.tensor([0.0, 0.0, 1.0, 1.0])
    boxes = [whole_image.expand(views, num_images, 4) for views in (2, num_local_views)]
    flips = [torch.zeros(views, num_images, dtype=torch.bool) for views in (2, num_local_views)]
    return ViewBatch(noise(2, global_size), noise(num_local_views, local_size), *boxes, *flips)
