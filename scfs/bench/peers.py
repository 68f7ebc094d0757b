"""Other libraries' code for the same work, composed as in their documentation."""

import io
from random import Random

import torch
from PIL import Image, ImageFilter
from torch import Tensor, nn
from torchvision import transforms as T

from scfs.backbones import Backbone
from scfs.errors import UserError
from scfs.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from scfs.view_batch import ViewBatch


class TorchvisionViews:
    """The usual way to make views: torchvision's random transforms on a PIL image, composed as in DINO."""

    def __init__(self, *, global_size: int, local_size: int, num_local_views: int):
        bicubic = T.InterpolationMode.BICUBIC
        colours = [
            T.RandomHorizontalFlip(p=0.5),
            T.RandomApply([T.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)], p=0.8),
            T.RandomGrayscale(p=0.2),
        ]
        floats = [T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
        large = T.RandomResizedCrop(global_size, scale=(0.14, 1.0), interpolation=bicubic)
        small = T.RandomResizedCrop(local_size, scale=(0.05, 0.14), interpolation=bicubic)
        solarize = T.RandomSolarize(128, p=0.2)
        local = T.Compose([small, *colours, T.RandomApply([_blur], p=0.5), *floats])
        self.transforms = [
            T.Compose([large, *colours, _blur, *floats]),
            T.Compose([large, *colours, T.RandomApply([_blur], p=0.1), solarize, *floats]),
            *[local] * num_local_views,
        ]

    def __call__(self, encoded: bytes, seed: int) -> list[Tensor]:
        """Views of an encoded image."""
        torch.manual_seed(seed)
        image = Image.open(io.BytesIO(encoded)).convert("RGB")
        return [transform(image) for transform in self.transforms]


def _blur(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(Random(int(torch.randint(2**31, ()))).uniform(0.1, 2.0)))


class LightlyDino:
    """A DINO step with lightly's head, loss and moving average, view by view as in its documentation."""

    def __init__(self, backbone: str, *, out_dim: int):
        try:
            from lightly.loss import DINOLoss
            from lightly.models.modules import DINOProjectionHead
            from lightly.models.utils import update_momentum
        except ImportError:
            raise UserError(
                "lightly is not installed; pip install --no-deps -r benchmarks/requirements.txt, or omit --peers."
            ) from None

        def network() -> nn.Module:
            features = Backbone(backbone)
            head = DINOProjectionHead(features.num_features, output_dim=out_dim)
            return nn.Sequential(features.net, head).to(memory_format=torch.channels_last)

        self.student, self.teacher = network(), network().requires_grad_(False)
        self.loss, self.update_momentum = DINOLoss(output_dim=out_dim), update_momentum
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)

    def __call__(self, batch: ViewBatch) -> None:
        """One step on views that are floats."""
        self.update_momentum(self.student, self.teacher, m=0.996)
        global_views, local_views = list(batch.global_views), list(batch.local_views)
        with torch.no_grad():
            teacher_out = [self.teacher(views) for views in global_views]
        student_out = [self.student(views) for views in (*global_views, *local_views)]
        loss = self.loss(teacher_out, student_out, epoch=0)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
