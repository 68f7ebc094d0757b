"""The paper's equations as plain loops: slow, in float64, and sharing no code with scfs.method.

What has no gradient (the teacher, the search) is Python floats in nested lists; the student's side is torch, so that
gradients can be compared too. Weights come under the names of the modules' state dicts.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# G global views, N local views, V any views, B images per process,
# C channels, H W (h w) map height and width, K head outputs

Nested = list[Any]  # floats in lists in lists


class Maps(NamedTuple):
    pooled: Tensor  # (V, B, C)
    maps: list[Tensor]  # one (V, B, C, H, W) per search layer


class Given(NamedTuple):
    student_global: Maps
    student_local: Maps | None
    teacher_global: Maps
    student_weights: dict[str, Tensor]  # named as in an Encoder: "head.last.weight", "search_heads.0.mix.weight" ...
    teacher_weights: dict[str, Tensor]
    centers: dict[str, list[float]]  # "head" and the layers' names
    layers: list[str]
    global_boxes: Nested  # (G, B, 4) x0 y0 x1 y1
    local_boxes: Nested  # (N, B, 4)
    global_flips: Nested  # (G, B)
    student_temp: float
    teacher_temp: float
    center_momentum: float


# --- Search (Eqs. 7-9) and its stand-in, the region of interest


def attention(query_map: Nested, key_map: Nested) -> Nested:
    """Cosine of the query's spatial mean with each position of the key: (C, h, w), (C, H, W) -> (H, W)."""
    query = [sum(sum(row) for row in plane) / (len(plane) * len(plane[0])) for plane in query_map]
    query_length = math.sqrt(sum(value * value for value in query))
    result = []
    for y in range(len(key_map[0])):
        row = []
        for x in range(len(key_map[0][0])):
            dot = sum(query[c] * key_map[c][y][x] for c in range(len(query)))
            key_length = math.sqrt(sum(key_map[c][y][x] ** 2 for c in range(len(query))))
            row.append(dot / (query_length * key_length))
        result.append(row)
    return result


def attended(weights: Nested, key_map: Nested) -> Nested:
    """(H, W), (C, H, W) -> (C, H, W): every channel times the weight at its position."""
    return [
        [[weights[y][x] * plane[y][x] for x in range(len(plane[0]))] for y in range(len(plane))] for plane in key_map
    ]


def box_in_view(box: list[float], view: list[float], flip: bool) -> tuple[list[float], float]:
    """A box clipped to a view, in the view's coordinates from 0 to 1, and the fraction of its area inside."""
    x0, x1 = (min(max(x, view[0]), view[2]) for x in (box[0], box[2]))
    y0, y1 = (min(max(y, view[1]), view[3]) for y in (box[1], box[3]))
    inside = (x1 - x0) * (y1 - y0) / ((box[2] - box[0]) * (box[3] - box[1]))
    left, right = ((x - view[0]) / (view[2] - view[0]) for x in (x0, x1))
    top, bottom = ((y - view[1]) / (view[3] - view[1]) for y in (y0, y1))
    if flip:
        left, right = 1 - right, 1 - left
    return [left, top, right, bottom], inside


def bilinear(plane: Nested, y: float, x: float) -> float:
    """The value at a point, in coordinates where pixel centres are whole numbers; the border value outside."""
    y, x = min(max(y, 0.0), len(plane) - 1.0), min(max(x, 0.0), len(plane[0]) - 1.0)
    total = 0.0
    for row in range(len(plane)):
        for column in range(len(plane[0])):
            total += max(0.0, 1 - abs(y - row)) * max(0.0, 1 - abs(x - column)) * plane[row][column]
    return total


def roi_align(key_map: Nested, box: list[float], height: int, width: int) -> Nested:
    """Cut a box (from 0 to 1) out of a map (C, H, W), to (C, height, width): the mean of 2 x 2 samples per position."""
    rows, columns = len(key_map[0]), len(key_map[0][0])
    left, right = box[0] * columns - 0.5, box[2] * columns - 0.5
    top, bottom = box[1] * rows - 0.5, box[3] * rows - 0.5
    cut = []
    for plane in key_map:
        cut_plane = []
        for i in range(height):
            row = []
            for j in range(width):
                samples = []
                for in_y in (0.25, 0.75):
                    for in_x in (0.25, 0.75):
                        y = top + (i + in_y) * (bottom - top) / height
                        x = left + (j + in_x) * (right - left) / width
                        samples.append(bilinear(plane, y, x))
                row.append(sum(samples) / 4)
            cut_plane.append(row)
        cut.append(cut_plane)
    return cut


# --- Heads (Eq. 10)


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Normalise each channel (axis 1) by its mean and variance over everything else in the batch."""
    channels = []
    for c in range(x.shape[1]):
        values = x[:, c]
        mean = values.sum() / values.numel()
        variance = ((values - mean) ** 2).sum() / values.numel()
        channels.append((values - mean) / torch.sqrt(variance + 1e-5) * weight[c] + bias[c])
    return torch.stack(channels, dim=1)


def unit_rows(x: Tensor) -> Tensor:
    return torch.stack([row / torch.sqrt((row * row).sum()) for row in x])


def relu(x: Tensor) -> Tensor:
    return x * (x > 0)


def under(prefix: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def projection_head(weights: dict[str, Tensor], pooled: Tensor) -> Tensor:
    """(V * B, C) -> (V * B, K)."""
    x = pooled
    for index in sorted({int(name.split(".")[1]) for name in weights if name.startswith("mlp.")}):
        weight, bias = weights[f"mlp.{index}.weight"], weights[f"mlp.{index}.bias"]
        if weight.ndim == 1:
            x = batch_norm(x, weight, bias)
        else:
            if index:  # a GELU stands before every linear layer but the first
                x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
            x = x @ weight.T + bias
    return unit_rows(x) @ unit_rows(weights["last.weight"]).T


def search_head(weights: dict[str, Tensor], maps: Tensor) -> Tensor:
    """(M, C, H, W) -> (M, K)."""

    def norm(x: Tensor, name: str) -> Tensor:
        return batch_norm(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    x = relu(norm(F.conv2d(maps, weights["reduce.weight"]), "reduce_norm"))
    x = relu(norm(F.conv2d(x, weights["mix.weight"], padding=1), "mix_norm"))
    x = relu(norm(F.conv2d(x, weights["expand.weight"]), "expand_norm") + maps)
    height, width = x.shape[-2:]
    pooled = torch.zeros_like(x[:, :, 0, 0])
    for row in range(height):
        for column in range(width):
            pooled = pooled + x[:, :, row, column] / (height * width)
    hidden = relu(norm(pooled @ weights["mlp.0.weight"].T + weights["mlp.0.bias"], "mlp.1"))
    return unit_rows(norm(hidden @ weights["mlp.3.weight"].T + weights["mlp.3.bias"], "mlp.4"))


# --- Losses (Eqs. 3-6, 11) and centers


def softmax(logits: list[float], center: list[float] | None, temperature: float) -> list[float]:
    """A teacher's probabilities: (K,) -> (K,)."""
    centered = [x - c for x, c in zip(logits, center or [0.0] * len(logits), strict=True)]
    powers = [math.exp(x / temperature) for x in centered]
    return [power / sum(powers) for power in powers]


def cross_entropy(probs: list[float], logits: Tensor, temperature: float) -> Tensor:
    """Of a student's logits (K,) under a teacher's probabilities (K,)."""
    scaled = [logits[k] / temperature for k in range(len(probs))]
    log_total = torch.log(sum(torch.exp(x) for x in scaled))
    return -sum(p * (x - log_total) for p, x in zip(probs, scaled, strict=True))


def view_loss(student: Tensor, teacher_probs: Nested, temperature: float) -> Tensor:
    """student (V, B, K), global views first; teacher_probs (G, B, K)."""
    pairs = []
    for g in range(len(teacher_probs)):
        for v in range(len(student)):
            for b in range(student.shape[1]):
                if v != g:
                    pairs.append(cross_entropy(teacher_probs[g][b], student[v, b], temperature))
    return sum(pairs) / len(pairs)


def search_loss(pairs: list[tuple[Tensor, list[float], float]], temperature: float) -> Tensor:
    """Pairs of student logits (K,) and teacher probabilities (K,), each with its weight."""
    total = sum(weight * cross_entropy(probs, logits, temperature) for logits, probs, weight in pairs)
    return total / max(1.0, sum(weight for _, _, weight in pairs))


def moved_center(center: list[float], logits: Nested, momentum: float) -> list[float]:
    """logits: (M, K), everything that the center saw."""
    means = [sum(row[k] for row in logits) / len(logits) for k in range(len(center))]
    return [momentum * c + (1 - momentum) * mean for c, mean in zip(center, means, strict=True)]
