"""Write golden_paper.npz: stored inputs, and what the plain loops make of them in every mode of the paper's variant.

    python tests/method/make_golden_paper.py

To be run again only when METHOD.md changes. The stream of `RandomState` is the same in every version of numpy.
"""

from pathlib import Path

import numpy as np
import torch
from loops import Given, Maps
from loops_modes import contrast_losses
from torch import Tensor

PATH = Path(__file__).parent / "golden_paper.npz"
CONTRASTS = ["dino-no-multicrop", "dino", "dino-multilayer", "scfs", "roi-crop", "scfs-no-multicrop"]
LAYERS = ["layer3", "layer4"]
IMAGES, LOCAL_VIEWS = 3, 2
CHANNELS, GLOBAL_SIZES, LOCAL_SIZES = (4, 6), ((3, 4), (2, 3)), ((2, 3), (1, 2))
HIDDEN, BOTTLENECK, OUT, SEARCH_OUT = 5, 3, 7, 6
GRADIENTS = ["head.mlp.2.weight", "head.last.weight", "search_heads.0.mix.weight", "search_heads.1.mlp.0.weight"]


def head_shapes() -> dict[str, tuple[int, ...]]:
    """The projection head's weights, under the names of ProjectionHead."""
    widths = [CHANNELS[-1], HIDDEN, HIDDEN, BOTTLENECK]
    shapes: dict[str, tuple[int, ...]] = {"last.weight": (OUT, BOTTLENECK)}
    for i in range(3):
        shapes |= {f"mlp.{2 * i}.weight": (widths[i + 1], widths[i]), f"mlp.{2 * i}.bias": (widths[i + 1],)}
    return shapes


def search_head_shapes(channels: int) -> dict[str, tuple[int, ...]]:
    """A search head's weights, under the names of SearchHead."""
    shapes: dict[str, tuple[int, ...]] = {
        "reduce.weight": (BOTTLENECK, channels, 1, 1),
        "mix.weight": (BOTTLENECK, BOTTLENECK, 3, 3),
        "expand.weight": (channels, BOTTLENECK, 1, 1),
        "mlp.0.weight": (HIDDEN, channels),
        "mlp.0.bias": (HIDDEN,),
        "mlp.3.weight": (SEARCH_OUT, HIDDEN),
        "mlp.3.bias": (SEARCH_OUT,),
    }
    widths = {"reduce_norm": BOTTLENECK, "mix_norm": BOTTLENECK, "expand_norm": channels}
    for norm, width in (widths | {"mlp.1": HIDDEN, "mlp.4": SEARCH_OUT}).items():
        shapes |= {f"{norm}.weight": (width,), f"{norm}.bias": (width,)}
    return shapes


def draw_inputs() -> dict[str, np.ndarray]:
    random = np.random.RandomState(2023)
    shapes = {f"head.{name}": shape for name, shape in head_shapes().items()}
    for i, channels in enumerate(CHANNELS):
        shapes |= {f"search_heads.{i}.{name}": shape for name, shape in search_head_shapes(channels).items()}
    arrays = {f"weights.{who}.{n}": 0.5 * random.randn(*s) for who in ("student", "teacher") for n, s in shapes.items()}
    for kind, views, sizes in (
        ("student_global", 2, GLOBAL_SIZES),
        ("student_local", LOCAL_VIEWS, LOCAL_SIZES),
        ("teacher_global", 2, GLOBAL_SIZES),
    ):
        arrays[f"in.{kind}.pooled"] = random.randn(views, IMAGES, CHANNELS[-1])
        for layer, channels, size in zip(LAYERS, CHANNELS, sizes, strict=True):
            arrays[f"in.{kind}.{layer}"] = random.randn(views, IMAGES, channels, *size)
    arrays["in.center.head"] = 0.3 * random.randn(OUT)
    for layer in LAYERS:
        arrays[f"in.center.{layer}"] = 0.3 * random.randn(SEARCH_OUT)
    for kind, views, extent in (("global", 2, 0.5), ("local", LOCAL_VIEWS, 0.3)):
        corners = 0.5 * random.rand(views, IMAGES, 2)
        arrays[f"in.{kind}_boxes"] = np.concatenate([corners, corners + extent * (0.6 + 0.4 * random.rand(2))], axis=-1)
        arrays[f"in.{kind}_flips"] = random.rand(views, IMAGES) < 0.5
    consts = {"student_temp": 0.1, "teacher_temp": 0.06, "center_momentum": 0.9}
    return arrays | {f"const.{name}": np.array(value) for name, value in consts.items()}


def leaf(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array).clone().requires_grad_()


def given_of(arrays: dict[str, np.ndarray]) -> Given:
    """The stored inputs for the loops; the student's features and weights are leaves."""

    def maps_of(kind: str) -> Maps:
        return Maps(leaf(arrays[f"in.{kind}.pooled"]), [leaf(arrays[f"in.{kind}.{layer}"]) for layer in LAYERS])

    def weights_of(who: str) -> dict[str, Tensor]:
        prefix = f"weights.{who}."
        return {name.removeprefix(prefix): leaf(a) for name, a in arrays.items() if name.startswith(prefix)}

    return Given(
        student_global=maps_of("student_global"),
        student_local=maps_of("student_local"),
        teacher_global=maps_of("teacher_global"),
        student_weights=weights_of("student"),
        teacher_weights=weights_of("teacher"),
        centers={name: arrays[f"in.center.{name}"].tolist() for name in ["head", *LAYERS]},
        layers=LAYERS,
        global_boxes=arrays["in.global_boxes"].tolist(),
        local_boxes=arrays["in.local_boxes"].tolist(),
        global_flips=arrays["in.global_flips"].tolist(),
        **{name: float(arrays[f"const.{name}"]) for name in ("student_temp", "teacher_temp", "center_momentum")},
    )


def gradient_leaves(given: Given) -> dict[str, Tensor]:
    """Whose gradients are stored, by name."""
    leaves = {name: given.student_weights[name] for name in GRADIENTS}
    for kind, features in (("student_global", given.student_global), ("student_local", given.student_local)):
        assert features is not None
        leaves[f"{kind}.pooled"] = features.pooled
        leaves |= {f"{kind}.{layer}": maps for layer, maps in zip(LAYERS, features.maps, strict=True)}
    return leaves


def results(contrast: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Losses, gradients (absent where there is none) and centers of one mode."""
    given = given_of(arrays)
    losses, centers = contrast_losses(contrast, "paper", given)
    torch.stack(list(losses.values())).sum().backward()
    found = {f"loss.{name}": loss.detach().numpy() for name, loss in losses.items()}
    found |= {f"grad.{n}": x.grad.numpy() for n, x in gradient_leaves(given).items() if x.grad is not None}
    found |= {f"center.{name}": np.array(center) for name, center in centers.items()}
    return {f"out.{contrast}.{name}": array for name, array in found.items()}


def make_arrays() -> dict[str, np.ndarray]:
    arrays = draw_inputs()
    for contrast in CONTRASTS:
        arrays |= results(contrast, arrays)
    return arrays


if __name__ == "__main__":
    np.savez_compressed(PATH, **make_arrays())
    print(f"{PATH}: {PATH.stat().st_size / 1000:.0f} kB")
