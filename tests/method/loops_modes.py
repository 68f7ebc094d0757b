"""Every contrast mode and variant by the plain loops: all named losses, and the centers after the step."""

import torch
from loops import (
    Given,
    attended,
    attention,
    box_in_view,
    moved_center,
    projection_head,
    roi_align,
    search_head,
    search_loss,
    softmax,
    under,
    view_loss,
)
from torch import Tensor

Losses = dict[str, Tensor]
Centers = dict[str, list[float]]


def contrast_losses(contrast: str, variant: str, given: Given) -> tuple[Losses, Centers]:
    """What SCFS.forward and a commit of the centers must give."""
    losses, centers = {}, dict(given.centers)
    if "head.last.weight" in given.student_weights:
        losses["view"], centers["head"] = data_term(contrast, given)
    if contrast in ("dino", "dino-no-multicrop"):
        return losses, centers
    for i, layer in enumerate(given.layers):
        if contrast == "dino-multilayer":
            losses[f"view/{layer}"], centers[layer] = layer_view_term(i, given, local=True)
        elif variant == "paper":
            losses[f"search/{layer}"], logits = search_term(i, contrast, given, searched_views=2, centered=True)
            centers[layer] = moved_center(given.centers[layer], logits, given.center_momentum)
        else:
            view, centers[layer] = layer_view_term(i, given, local=False)
            search, _ = search_term(i, contrast, given, searched_views=1, centered=False)
            losses[f"view/{layer}"], losses[f"search/{layer}"] = 0.5 * view, 0.5 * search
    return losses, centers


def data_term(contrast: str, given: Given) -> tuple[Tensor, list[float]]:
    student_weights, teacher_weights = under("head.", given.student_weights), under("head.", given.teacher_weights)
    passes = [given.student_global]
    if not contrast.endswith("no-multicrop") and given.student_local is not None:
        passes.append(given.student_local)
    student = [
        projection_head(student_weights, part.pooled.flatten(0, 1)).unflatten(0, part.pooled.shape[:2])
        for part in passes
    ]
    pooled = given.teacher_global.pooled
    teacher = projection_head(teacher_weights, pooled.flatten(0, 1)).unflatten(0, pooled.shape[:2])
    return contrast_views(torch.cat(student), teacher, given.centers["head"], given)


def layer_view_term(i: int, given: Given, *, local: bool) -> tuple[Tensor, list[float]]:
    """The data contrast's pairs on unsearched maps, one head call per kind of map."""
    student_weights = under(f"search_heads.{i}.", given.student_weights)
    teacher_weights = under(f"search_heads.{i}.", given.teacher_weights)
    student = [head_of_views(student_weights, given.student_global.maps[i])]
    if local and given.student_local is not None:
        student.append(head_of_views(student_weights, given.student_local.maps[i]))
    teacher = head_of_views(teacher_weights, given.teacher_global.maps[i])
    return contrast_views(torch.cat(student), teacher, given.centers[given.layers[i]], given)


def head_of_views(weights: dict[str, Tensor], maps: Tensor) -> Tensor:
    """(V, B, C, H, W) -> (V, B, K)."""
    return search_head(weights, maps.flatten(0, 1)).unflatten(0, maps.shape[:2])


def contrast_views(student: Tensor, teacher: Tensor, center: list[float], given: Given) -> tuple[Tensor, list[float]]:
    """student (V, B, K), teacher (G, B, K)."""
    logits = teacher.tolist()
    probs = [[softmax(row, center, given.teacher_temp) for row in view] for view in logits]
    loss = view_loss(student, probs, given.student_temp)
    return loss, moved_center(center, [row for view in logits for row in view], given.center_momentum)


def search_term(
    i: int, contrast: str, given: Given, *, searched_views: int, centered: bool
) -> tuple[Tensor, list[list[float]]]:
    """The loss, and the teacher's logits (M, K) of the pairs that count."""
    queries = given.student_global if contrast == "scfs-no-multicrop" else given.student_local
    num_queries, num_images = queries.maps[i].shape[:2]
    pairs = []  # global view, query view, image
    for g in range(searched_views):
        for v in [1 - g] if contrast == "scfs-no-multicrop" else range(num_queries):
            for b in range(num_images):
                pairs.append((g, v, b))

    query_maps, key_maps = queries.maps[i].tolist(), given.teacher_global.maps[i].tolist()
    targets, weights = [], []
    for g, v, b in pairs:
        query_map, key_map = query_maps[v][b], key_maps[g][b]
        if contrast == "roi-crop":
            box, inside = box_in_view(given.local_boxes[v][b], given.global_boxes[g][b], given.global_flips[g][b])
            targets.append(roi_align(key_map, box, len(query_map[0]), len(query_map[0][0])))
            weights.append(0.0 if inside < 0.1 else 1.0)
        else:
            targets.append(attended(attention(query_map, key_map), key_map))
            weights.append(1.0)

    target_maps = torch.tensor(targets, dtype=torch.float64)
    logits = search_head(under(f"search_heads.{i}.", given.teacher_weights), target_maps).tolist()
    student = head_of_views(under(f"search_heads.{i}.", given.student_weights), queries.maps[i])
    center = given.centers[given.layers[i]] if centered else None
    probs = [softmax(row, center, given.teacher_temp) for row in logits]
    contrasted = [(student[v, b], p, w) for (_, v, b), p, w in zip(pairs, probs, weights, strict=True)]
    return search_loss(contrasted, given.student_temp), [row for row, w in zip(logits, weights, strict=True) if w]
