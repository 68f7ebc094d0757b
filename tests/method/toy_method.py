"""SCFS at toy size, in float64, with student, teacher and centers all different; and the same for the loops."""

import torch
from loops import Given, Maps
from timm.layers import DropPath
from torch import Tensor, nn

from scfs.method.encoder import Encoder
from scfs.method.heads import ProjectionHead, SearchHead
from scfs.method.scfs import SCFS
from scfs.view_batch import ViewBatch

CONTRASTS = ["dino-no-multicrop", "dino", "dino-multilayer", "scfs", "roi-crop", "scfs-no-multicrop"]
WITH_MAPS = ["dino-multilayer", "scfs", "roi-crop", "scfs-no-multicrop"]
CHANNELS = (4, 5, 6)
TEACHER_TEMP = 0.05


class ToyBackbone(nn.Module):
    """Three convolutions; maps of 4x6, 2x3 and 2x3 positions for views of 8x12."""

    def __init__(self, layers=(0, 1, 2), dropout=0.0):
        super().__init__()
        self.layers = layers
        self.dropout, self.drop_path = nn.Dropout(dropout), DropPath(dropout)
        widths = (3, *CHANNELS)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.Tanh())
            for a, b, stride in zip(widths[:-1], widths[1:], (2, 2, 1), strict=True)
        )

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        maps = []
        for stage in self.stages:
            images = self.drop_path(stage(self.dropout(images)))
            maps.append(images)
        return images.mean(dim=(-2, -1)), tuple(maps[i] for i in self.layers)


class StoredBackbone(nn.Module):
    """Returns stored features instead of computed ones: the global views' for views 2 pixels wide, else the local's."""

    def __init__(self, global_features: Maps, local_features: Maps | None = None):
        super().__init__()
        self.features = {2: global_features, 1: local_features}

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        pooled, maps = self.features[images.shape[-1]]
        return pooled.flatten(0, 1), tuple(m.flatten(0, 1) for m in maps)


def make_model(
    contrast="scfs",
    variant="paper",
    *,
    layers=(0, 1, 2),
    data_term=True,
    batch_norm=False,
    dropout=0.0,
    seed=0,
    multilayer=False,
) -> SCFS:
    torch.manual_seed(seed)
    head = ProjectionHead(CHANNELS[-1], 8, hidden_dim=9, bottleneck_dim=4, batch_norm=batch_norm) if data_term else None
    search_layers = layers if contrast in WITH_MAPS else ()
    search_heads = [SearchHead(CHANNELS[i], 5, hidden_dim=7, bottleneck_dim=4) for i in search_layers]
    student = Encoder(ToyBackbone(layers, dropout), head, search_heads)
    names = [f"layer{i}" for i in layers]
    options = {"contrast": contrast, "variant": variant, "multilayer": multilayer}
    model = SCFS(student, layers=names, center_momentum=0.8, **options).double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            shake(parameter)
        for center in model.centers():
            center.value.copy_(0.2 * torch.randn_like(center.value))
    return model


def make_batch(num_images=3, num_local_views=3, *, seed=1, dtype=torch.float64) -> ViewBatch:
    """Random views. The boxes give pairs far apart and pairs that overlap in part or wholly."""
    torch.manual_seed(seed)
    counts = {"global": (2, num_images), "local": (num_local_views, num_images)}
    corners = {kind: 0.6 * torch.rand(*count, 2, dtype=torch.float64) for kind, count in counts.items()}
    sizes = {"global": (0.3, 0.1), "local": (0.1, 0.2)}  # smallest, and how much larger the largest
    boxes = {}
    for kind, corner in corners.items():
        smallest, more = sizes[kind]
        boxes[kind] = torch.cat([corner, corner + smallest + more * torch.rand_like(corner)], dim=-1).to(dtype)
    flips = {kind: torch.rand(count) < 0.5 for kind, count in counts.items()}
    return ViewBatch(
        torch.randn(*counts["global"], 3, 8, 12, dtype=torch.float64).to(dtype),
        torch.randn(*counts["local"], 3, 6, 4, dtype=torch.float64).to(dtype),
        boxes["global"],
        boxes["local"],
        flips["global"],
        flips["local"],
    )


def stored_batch(num_images: int, num_local_views: int) -> ViewBatch:
    """A batch for `StoredBackbone`; boxes and flips are meaningless."""
    return ViewBatch(
        torch.zeros(2, num_images, 3, 2, 2),
        torch.zeros(num_local_views, num_images, 3, 1, 1),
        torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(2, num_images, 4),
        torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(num_local_views, num_images, 4),
        torch.zeros(2, num_images, dtype=torch.bool),
        torch.zeros(num_local_views, num_images, dtype=torch.bool),
    )


def given_of(model: SCFS, batch: ViewBatch) -> Given:
    """What the loops need: each kind of view in its own backbone pass, with gradients for the student."""

    def maps_of(backbone: nn.Module, views: Tensor) -> Maps:
        pooled, maps = backbone(views.flatten(0, 1))
        return Maps(pooled.unflatten(0, views.shape[:2]), [m.unflatten(0, views.shape[:2]) for m in maps])

    with torch.no_grad():
        teacher = maps_of(model.teacher.backbone, batch.global_views)
    return Given(
        student_global=maps_of(model.student.backbone, batch.global_views),
        student_local=maps_of(model.student.backbone, batch.local_views) if len(batch.local_views) else None,
        teacher_global=teacher,
        student_weights=dict(model.student.named_parameters()),
        teacher_weights=dict(model.teacher.named_parameters()),
        centers=centers_of(model),
        layers=model.layers,
        global_boxes=batch.global_boxes.tolist(),
        local_boxes=batch.local_boxes.tolist(),
        global_flips=batch.global_flips.tolist(),
        student_temp=model.objective.student_temp,
        teacher_temp=TEACHER_TEMP,
        center_momentum=0.8,
    )


def centers_of(model: SCFS) -> dict[str, list[float]]:
    centers = dict(zip(model.layers, model.search_centers, strict=False))  # no search centers without search heads
    if model.center is not None:
        centers["head"] = model.center
    return {name: center.value.tolist() for name, center in centers.items()}


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def tensor(nested):
    return torch.tensor(nested, dtype=torch.float64)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


def randomised(module):
    """In float64, with no weight left at an initial 0 or 1."""
    module = module.double().train()
    with torch.no_grad():
        for parameter in module.parameters():
            shake(parameter)
    return module


def shake(parameter):
    """Far enough that images differ in the logits: DINO's small weights and no biases would make them all the same."""
    width = parameter[0].numel() if parameter.ndim > 1 else 12
    parameter.add_(torch.randn_like(parameter) * (2.0 if parameter.ndim > 1 else 1.0) / width**0.5)
