import copy
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from scfs.data.views import ViewBatch
from scfs.method.encoder import Encoder, Features
from scfs.method.heads import ProjectionHead, SearchHead
from scfs.method.losses import Center, entropy, search_loss, sharpen, spread, view_loss
from scfs.method.modes import Contrast, Pass, Variant, plan_of
from scfs.method.search import pair_weights, place_in_view, roi_maps, search_attention

# G global views, N local views, V any views, B images per process,
# C channels, H W (h w) map height and width, K head outputs


class Term(NamedTuple):
    """One contrast: its loss and the teacher's probabilities (..., K) in it."""

    loss: Tensor
    teacher_probs: Tensor


class Output(NamedTuple):
    """The losses of a batch by name, and signs of the networks' health."""

    losses: dict[str, Tensor]  # their sum is the training loss (Eq. 2)
    vitals: dict[str, Tensor]  # scalars without gradient


class SCFS(nn.Module):
    """Semantics-consistent feature search, its DINO baseline and its ablations.

    The paper's encoder is `student`; its momentum encoder is `teacher`, a moving average.
    """

    def __init__(
        self,
        student: Encoder,
        *,
        layers: list[str],
        contrast: Contrast = "scfs",
        variant: Variant = "paper",
        student_temp: float = 0.1,
        center_momentum: float = 0.9,
        mean_over_processes: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    ):
        super().__init__()
        self.mean_over_processes = mean_over_processes
        self.student = student
        self.teacher = copy.deepcopy(student).requires_grad_(False)
        self.layers = layers
        self.plan = plan_of(contrast, variant)
        self.student_temp = student_temp
        self.center = Center(student.head.out_dim, center_momentum) if student.head is not None else None
        self.search_centers = nn.ModuleList(
            Center(cast(SearchHead, head).out_dim, center_momentum) for head in student.search_heads
        )

    def forward(self, batch: ViewBatch, teacher_temp: float) -> Output:
        """Contrast the views of a batch in every way the mode asks for."""
        with torch.no_grad():
            teacher = self.teacher(batch.global_views)
        student: dict[Pass, Features] = {"global": self.student(batch.global_views)}
        if self.plan.local_views and len(batch.local_views):
            student["local"] = self.student(batch.local_views)

        terms: dict[str, Term] = {}
        if self.center is not None:  # the data contrast
            head, teacher_head = (cast(ProjectionHead, encoder.head) for encoder in (self.student, self.teacher))
            student_logits = head(*(features.pooled for features in student.values()))  # (V, B, K)
            with torch.no_grad():
                teacher_logits = teacher_head(teacher.pooled)  # (G, B, K)
            terms["view"] = self._view_term(self.center, student_logits, teacher_logits, teacher_temp)
        for i in range(len(self.student.search_heads)):
            terms |= self._layer_terms(i, student, teacher.maps[i], batch, teacher_temp)
        vitals = {
            "teacher_entropy": entropy(next(iter(terms.values())).teacher_probs),
            "feature_spread": spread(teacher.pooled),
        }
        return Output({name: term.loss for name, term in terms.items()}, vitals)

    def _layer_terms(
        self, i: int, student: dict[Pass, Features], key_maps: Tensor, batch: ViewBatch, teacher_temp: float
    ) -> dict[str, Term]:
        """The terms of one search layer; their mean counts where there are two. key_maps: (G, B, C, H, W)."""
        plan, head, teacher_head = self.plan, self.student.search_heads[i], self.teacher.search_heads[i]
        center = cast(Center, self.search_centers[i])
        kinds = {*plan.layer_views, plan.queries} if plan.targets else {*plan.layer_views}
        # Each kind of map passes its head by itself: batch norms must not mix kinds.
        logits = {kind: head(features.maps[i]) for kind, features in student.items() if kind in kinds}

        terms: dict[str, Term] = {}
        if plan.layer_views:
            student_logits = torch.cat([logits[kind] for kind in plan.layer_views if kind in logits])  # (V, B, K)
            with torch.no_grad():
                teacher_logits = teacher_head(key_maps)  # (G, B, K)
            terms["view"] = self._view_term(center, student_logits, teacher_logits, teacher_temp)
        if plan.targets:
            query_maps, query_logits = student[plan.queries].maps[i], logits[plan.queries]
            key_maps = key_maps[: plan.searched_views]
            if plan.queries == "global":  # each view searches the other: one pair of views of G * B images
                query_maps, query_logits, key_maps = (
                    views[: plan.searched_views].flatten(0, 1).unsqueeze(0)
                    for views in (query_maps.flip(0), query_logits.flip(0), key_maps)
                )
            with torch.no_grad():
                teacher_logits, weights = self._search(i, query_maps, key_maps, batch)  # (G, N, B, K)
            focus = center.sharpen if plan.search_center else sharpen
            teacher_probs = focus(teacher_logits, teacher_temp)
            num_pairs = None if weights is None else self.mean_over_processes(weights.sum())
            loss = search_loss(query_logits, teacher_probs, self.student_temp, weights, num_pairs)
            terms["search"] = Term(loss, teacher_probs)
        return {f"{name}/{self.layers[i]}": Term(t.loss / len(terms), t.teacher_probs) for name, t in terms.items()}

    def _search(self, i: int, query_maps: Tensor, key_maps: Tensor, batch: ViewBatch) -> tuple[Tensor, Tensor | None]:
        """The teacher's logits (G, N, B, K) of what the queries find in the keys, and the pairs' weights (G, N, B).

        query_maps: (N, B, C, h, w). key_maps: (G, B, C, H, W).
        """
        teacher_head = self.teacher.search_heads[i]
        if self.plan.targets == "searched":
            return teacher_head(key_maps, search_attention(query_maps, key_maps)), None
        views = len(key_maps)
        boxes, inside = place_in_view(
            batch.local_boxes, batch.global_boxes[:views].unsqueeze(1), batch.global_flips[:views].unsqueeze(1)
        )  # (G, N, B, 4), (G, N, B)
        cut = roi_maps(key_maps, boxes, (query_maps.shape[-2], query_maps.shape[-1]))  # (G, N, B, C, h, w)
        return teacher_head(cut.flatten(0, 1)).unflatten(0, boxes.shape[:2]), pair_weights(inside)

    def _view_term(self, center: Center, student_logits: Tensor, teacher_logits: Tensor, teacher_temp: float) -> Term:
        teacher_probs = center.sharpen(teacher_logits, teacher_temp)
        return Term(view_loss(student_logits, teacher_probs, self.student_temp), teacher_probs)

    def train(self, mode: bool = True) -> "SCFS":
        """Of the teacher only the batch norms train: no drop path, no dropout."""
        super().train(mode)
        self.teacher.eval()
        for module in self.teacher.modules():
            if isinstance(module, _BatchNorm):
                module.train(mode)
        return self

    @torch.no_grad()
    def update_teacher(self, momentum: float) -> None:
        """Parameters only, as in DINO: the teacher's batch-norm statistics come from its own passes."""
        torch._foreach_lerp_(list(self.teacher.parameters()), list(self.student.parameters()), 1 - momentum)

    @property
    def uniform_loss(self) -> float:
        """The training loss when the teacher finds all outputs alike: ln K, summed over the heads."""
        return sum(math.log(len(center.value)) for center in self.centers())

    def centers(self) -> Iterable[Center]:
        """Every center, to be reduced over processes and committed once per optimizer step."""
        return (module for module in self.modules() if isinstance(module, Center))
