import copy
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from scfs.method.encoder import Encoder, Features
from scfs.method.heads import DataHead, LayerHead
from scfs.method.losses import Center, PairWeights, agreement, pixel_spread, separation, spread, used_outputs
from scfs.method.modes import Contrast, Pass, Targets, Variant, plan_of
from scfs.method.objectives import Objective, SelfDistillation, Sharpening, Term
from scfs.method.search import box_in_view, pair_weights, roi_maps, search_attention
from scfs.view_batch import ViewBatch

# G global views, N local views, V any views, B images per process,
# C channels, H W (h w) map height and width, K head outputs

MIN_IMAGES = 16  # of a micro-batch, to log how far images can be told apart: with fewer it is mostly chance


class Output(NamedTuple):
    """Losses of a batch by name, and diagnostics."""

    losses: dict[str, Tensor]  # their sum is the training loss (Eq. 2)
    diagnostics: dict[str, Tensor]  # scalars without gradient
    spread_of: dict[str, Tensor]  # what the diagnostics of a spread are of, to join micro-batches: (..., B, C)


class SCFS(nn.Module):
    """Semantics-consistent feature search, its DINO baseline and its ablations.

    `student` is the paper's encoder, `teacher` its momentum encoder.
    """

    def __init__(
        self,
        student: Encoder,
        *,
        layers: list[str],
        contrast: Contrast = "scfs",
        variant: Variant = "paper",
        multilayer: bool = False,
        student_temp: float = 0.1,
        center_momentum: float = 0.9,
        objective: Objective | None = None,
        search_objective: Objective | None = None,
        search_weight: float = 1.0,
        targets: Targets = "teacher",
        mean_over_processes: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    ):
        """objective: of the data term. search_objective: of the terms at the layers. None: the paper's.

        search_weight: of the terms at the layers in the training loss. targets: the network that computes the targets.
        With "student", they are the student's outputs for its global views, with gradient except through a search; the
        teacher is then only a moving average, for evaluation and export.
        """
        super().__init__()
        self.mean_over_processes = mean_over_processes
        self.student = student
        self.teacher = copy.deepcopy(student).requires_grad_(False)
        self.layers, self.targets, self.search_weight = layers, targets, search_weight
        self.plan = plan_of(contrast, variant, multilayer=multilayer)
        self.objective = objective or SelfDistillation(student_temp)
        self.search_objective = search_objective or SelfDistillation(student_temp)
        has_center = student.head is not None and self.objective.has_center
        self.center = Center(cast(DataHead, student.head).out_dim, center_momentum) if has_center else None
        self.search_centers = nn.ModuleList(
            Center(cast(LayerHead, head).out_dim, center_momentum)
            for head in student.search_heads
            if self.search_objective.has_center
        )

    def forward(self, batch: ViewBatch, teacher_temp: float) -> Output:
        """The terms of the mode: the data term (Eqs. 3-6) and, at each layer, search terms (Eqs. 7-11)."""
        student: dict[Pass, Features] = {"global": self.student(batch.global_views)}
        if self.plan.local_views and len(batch.local_views):
            student["local"] = self.student(batch.local_views)
        teacher = student["global"]
        if self.targets == "teacher":
            with torch.no_grad():
                teacher = self.teacher(batch.global_views)

        terms: dict[str, Term] = {}
        if self.student.head is not None:
            terms["view"] = self._data_term(student, teacher.pooled, teacher_temp)
        for i in range(len(self.student.search_heads)):
            terms |= self._layer_terms(i, student, teacher.maps[i], batch, teacher_temp)
        images = {"pixel_spread": pixel_spread(batch.global_views)}
        if teacher.pooled.shape[1] >= MIN_IMAGES:
            images["separation"] = separation(teacher.pooled)
        if self.targets == "teacher":
            images["agreement"] = agreement(student["global"].pooled, teacher.pooled)
        return self._output(terms, teacher.pooled, images)

    def _output(self, terms: dict[str, Term], pooled: Tensor, images: dict[str, Tensor]) -> Output:
        """The losses of the terms, and diagnostics of them, of the pooled features (G, B, C) and of the images."""
        losses = {name: term.loss for name, term in terms.items()}
        softmax = {f"entropy/{name}": term.entropy for name, term in terms.items() if term.entropy is not None}
        for name, term in terms.items():
            if term.mean_probs is not None:
                softmax[f"used/{name}"] = used_outputs(self.mean_over_processes(term.mean_probs))
        spread_of = {"feature_spread": pooled, **{f"spread/{name}": term.targets for name, term in terms.items()}}
        spread_of = {name: outputs.detach() for name, outputs in spread_of.items()}
        spreads = {name: spread(outputs, self.mean_over_processes) for name, outputs in spread_of.items()}
        return Output(losses, softmax | spreads | images, spread_of)

    def _data_term(self, student: dict[Pass, Features], key_features: Tensor, teacher_temp: float) -> Term:
        """The data contrast, on pooled features (Eqs. 3-6). key_features: (G, B, C)."""
        head, teacher_head = (cast(DataHead, encoder.head) for encoder in (self.student, self.teacher))
        outputs = head(*(features.pooled for features in student.values()))  # (V, B, K)
        targets = outputs[: len(key_features)]
        if self.targets == "teacher":
            with torch.no_grad():
                targets = teacher_head(key_features)  # (G, B, K)
        return self.objective.views(outputs, targets, Sharpening(teacher_temp, self.center))

    def _layer_terms(
        self, i: int, student: dict[Pass, Features], key_maps: Tensor, batch: ViewBatch, teacher_temp: float
    ) -> dict[str, Term]:
        """The terms of one search layer; if there are two, each has half the weight. key_maps: (G, B, C, H, W)."""
        plan, head, objective = self.plan, self.student.search_heads[i], self.search_objective
        # Differs from the paper: it never has two terms at a layer. With `multilayer` they share the layer's center;
        # in the released variant searched logits are not centered.
        center = cast(Center, self.search_centers[i]) if objective.has_center else None
        passes = {*plan.layer_views, plan.queries} if plan.targets else {*plan.layer_views}
        # One call of the head per pass: its batch norms must not mix global and local maps.
        outputs = {name: head(features.maps[i]) for name, features in student.items() if name in passes}

        terms: dict[str, Term] = {}
        if plan.layer_views:
            view_outputs = torch.cat([outputs[name] for name in plan.layer_views if name in outputs])  # (V, B, K)
            targets = view_outputs[: len(key_maps)]
            if self.targets == "teacher":
                with torch.no_grad():
                    targets = self.teacher.search_heads[i](key_maps)  # (G, B, K)
            terms["view"] = objective.views(view_outputs, targets, Sharpening(teacher_temp, center))
        if plan.targets:
            query_maps, query_outputs = student[plan.queries].maps[i], outputs[plan.queries]
            key_maps = key_maps[: plan.searched_views]
            if plan.queries == "global":  # each view searches the other one
                query_maps, query_outputs = (
                    each.flip(0)[: plan.searched_views] for each in (query_maps, query_outputs)
                )
            with torch.no_grad():
                targets, weights = self._search(i, query_maps, key_maps, batch)  # (G, N, B, K)
            sharpening = Sharpening(teacher_temp, center if plan.search_center else None)
            terms["search"] = objective.pairs(query_outputs, targets, sharpening, weights)
        scale = self.search_weight / len(terms)
        return {f"{name}/{self.layers[i]}": t._replace(loss=scale * t.loss) for name, t in terms.items()}

    def _search(
        self, i: int, query_maps: Tensor, key_maps: Tensor, batch: ViewBatch
    ) -> tuple[Tensor, PairWeights | None]:
        """Targets (G, N, B, K) for the queries from the key maps (Eqs. 7-10), and the weights of the pairs.

        query_maps: (N, B, C, h, w). key_maps: (G, B, C, H, W). Without local views each query searches one key map, the
        one at the same index, and the targets are (1, N, B, K).
        """
        head, targets, queries = self._target_head(i), self.plan.targets, self.plan.queries
        if targets == "searched" and queries == "global":
            flat = (maps.flatten(0, 1).unsqueeze(0) for maps in (query_maps, key_maps))
            attention = search_attention(*flat)[0, 0].unflatten(0, key_maps.shape[:2])  # (G, B, H, W)
            return head(key_maps, attention.unsqueeze(1)).transpose(0, 1), None
        if targets == "searched":
            return head(key_maps, search_attention(query_maps, key_maps)), None
        if targets != "cropped" or queries != "local":
            raise ValueError(f"No search is defined for targets {targets!r} with {queries} queries.")
        views = len(key_maps)
        boxes, inside = box_in_view(
            batch.local_boxes, batch.global_boxes[:views].unsqueeze(1), batch.global_flips[:views].unsqueeze(1)
        )  # (G, N, B, 4), (G, N, B)
        cropped = roi_maps(key_maps, boxes, (query_maps.shape[-2], query_maps.shape[-1]))  # (G, N, B, C, h, w)
        weights = pair_weights(inside)
        outputs = head(cropped.flatten(0, 1)).unflatten(0, boxes.shape[:2])
        return outputs, PairWeights(weights, self.mean_over_processes(weights.sum()))

    def _target_head(self, i: int) -> nn.Module:
        encoder = self.teacher if self.targets == "teacher" else self.student
        return encoder.search_heads[i]

    def train(self, mode: bool = True) -> "SCFS":
        """Keep the teacher in evaluation mode except for its batch norms: no drop path, no dropout."""
        super().train(mode)
        self.teacher.eval()
        for module in self.teacher.modules():
            if isinstance(module, _BatchNorm):
                module.train(mode)
        return self

    @torch.no_grad()
    def update_teacher(self, momentum: float) -> None:
        """Update the moving average of the student's parameters, as in DINO.

        The teacher's batch-norm statistics come from its own passes. If the student computes the targets, the teacher
        makes none, and its statistics are averaged too.
        """
        torch._foreach_lerp_(list(self.teacher.parameters()), list(self.student.parameters()), 1 - momentum)
        if self.targets == "student":
            teacher, student = (
                [buffer for buffer in encoder.buffers() if buffer.is_floating_point()]
                for encoder in (self.teacher, self.student)
            )
            if teacher:
                torch._foreach_lerp_(teacher, student, 1 - momentum)

    def centers(self) -> Iterable[Center]:
        """All centers, to be reduced over processes and committed once per optimizer step."""
        return (module for module in self.modules() if isinstance(module, Center))
