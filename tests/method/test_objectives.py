"""The other objectives against plain loops, and properties that each must have."""

import math

import pytest
import torch
import torch.nn.functional as F
from toy_method import CHANNELS, ToyBackbone, close, make_batch, normal, randomised

from scfs.method.encoder import Encoder
from scfs.method.heads import EmbeddingHead, PooledSearchHead
from scfs.method.losses import Center, PairWeights, sinkhorn
from scfs.method.objectives import CodingRate, InfoNCE, SelfDistillation, Sharpening, Term, VICReg
from scfs.method.scfs import SCFS

V, G, N, B, K = 4, 2, 3, 5, 6
OTHERS = [InfoNCE(0.2), CodingRate(), VICReg()]
SHARPENING = Sharpening(0.05)


def mean(values):
    return sum(values) / len(values)


def unit(vector):
    return vector / vector.norm()


# --- InfoNCE


def info_nce(query, positive, negatives, temperature):
    logits = [unit(query) @ unit(key) / temperature for key in (positive, *negatives)]
    return -(logits[0].exp() / sum(logit.exp() for logit in logits)).log()


def test_info_nce_of_views_equals_loops():
    outputs, targets = normal(V, B, K), normal(G, B, K)
    expected = mean(
        [
            info_nce(outputs[v, b], targets[g, b], [targets[h, a] for h in range(G) for a in range(B) if a != b], 0.2)
            for v in range(V)
            for g in range(G)
            for b in range(B)
            if v != g
        ]
    )
    close(InfoNCE(0.2).views(outputs, targets).loss, expected)


def test_info_nce_of_pairs_equals_loops():
    outputs, targets = normal(N, B, K), normal(G, N, B, K)
    expected = {
        (g, n, b): info_nce(outputs[n, b], targets[g, n, b], [targets[g, n, a] for a in range(B) if a != b], 0.2)
        for g in range(G)
        for n in range(N)
        for b in range(B)
    }
    close(InfoNCE(0.2).pairs(outputs, targets).loss, mean(list(expected.values())))
    weights = torch.zeros(G, N, B, dtype=torch.float64)
    weights[0, 1, 2] = weights[0, 1, 4] = weights[1, 2, 4] = 1
    weighted = InfoNCE(0.2).pairs(outputs, targets, weights=PairWeights(weights, weights.sum()))
    close(
        weighted.loss,
        mean(
            [
                info_nce(outputs[1, 2], targets[0, 1, 2], [targets[0, 1, 4]], 0.2),
                info_nce(outputs[1, 4], targets[0, 1, 4], [targets[0, 1, 2]], 0.2),
                info_nce(outputs[2, 4], targets[1, 2, 4], [], 0.2),  # no other pair counts
            ]
        ),
    )


@pytest.mark.parametrize(
    "objective", [*OTHERS, SelfDistillation(centering="sinkhorn"), SelfDistillation()], ids=lambda each: repr(each)[:40]
)
def test_pairs_of_weight_zero_have_no_effect(objective):
    """Not as negatives, in the balance of outputs or in the center either."""
    weights = (torch.rand(G, N, B, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    outputs, targets = normal(N, B, K).requires_grad_(), normal(G, N, B, K)
    losses, centers = [], []
    for replaced in (targets, torch.where(weights.unsqueeze(-1) == 0, normal(G, N, B, K), targets)):
        centers.append(Center(K, 0.9).double())
        pairs = PairWeights(weights, weights.sum())
        losses.append(objective.pairs(outputs, replaced, Sharpening(0.05, centers[-1]), pairs).loss)
    close(*losses)
    close(*(center.pending for center in centers))
    gradients = [torch.autograd.grad(loss, outputs, retain_graph=True)[0] for loss in losses]
    assert gradients[0].isfinite().all()
    close(*gradients)


def test_info_nce_of_two_views_with_themselves_is_nt_xent():
    """As SimCLR's paper defines it: 2 B views, the other view of the image against all views of other images."""
    views = normal(2, B, K).requires_grad_()
    rows = F.normalize(views.flatten(0, 1), dim=-1)
    logits = (rows @ rows.T / 0.1).fill_diagonal_(-math.inf)
    expected = F.cross_entropy(logits, torch.arange(2 * B).roll(B))
    found = InfoNCE(0.1).views(views, views).loss
    close(found, expected)
    close(*(torch.autograd.grad(loss, views, retain_graph=True)[0] for loss in (found, expected)))


# --- Coding rate and VICReg


def test_coding_rate_equals_loops():
    outputs, targets = normal(N, B, K), normal(G, N, B, K)
    distances = [
        (unit(outputs[n, b]) - unit(targets[g, n, b])).square().sum() / 2
        for g in range(G)
        for n in range(N)
        for b in range(B)
    ]
    rates = []
    for n in range(N):
        covariance = sum(torch.outer(unit(row), unit(row)) for row in outputs[n]) / B
        eigenvalues = torch.linalg.eigvalsh(covariance)
        rates.append(sum((1 + K / 0.5**2 * value).log() for value in eigenvalues) / 2)
    close(CodingRate(0.5, weight=2.0).pairs(outputs, targets).loss, mean(distances) - 2.0 * mean(rates) / K)


def test_vicreg_equals_loops():
    outputs, targets = (F.normalize(normal(views, B, K), dim=-1) * K**0.5 for views in (V, G))
    distances = [
        (outputs[v, b] - targets[g, b]).square().mean() for v in range(V) for g in range(G) for b in range(B) if v != g
    ]
    shortfalls, correlations = [], []
    for view in outputs:
        covariance = torch.cov(view.T)
        shortfalls += [max(0.0, 1 - (float(covariance[k, k]) + 1e-4) ** 0.5) for k in range(K)]
        correlations.append(sum(float(covariance[j, k]) ** 2 for j in range(K) for k in range(K) if j != k) / K)
    expected = 25 * mean(distances) + 25 * mean(shortfalls) + 2 * mean(correlations)
    close(VICReg().views(outputs, targets).loss, expected)
    close(VICReg().views(outputs / 9, targets / 9).loss, expected)  # as from heads that give unit vectors


@pytest.mark.parametrize("objective", OTHERS, ids=lambda objective: type(objective).__name__)
def test_identical_outputs_have_a_higher_loss_than_distinct_ones(objective):
    """So that no objective rewards a collapsed network."""
    distinct = torch.eye(B, K, dtype=torch.float64)
    identical = torch.ones(B, K, dtype=torch.float64)
    for method in (objective.views, objective.pairs):
        shape = (1, 1, B, K) if method == objective.pairs else (G, B, K)
        losses = [method(rows.expand(G, B, K), rows.expand(shape)).loss for rows in (distinct, identical)]
        assert losses[0] < losses[1] - 0.1


@pytest.mark.parametrize("objective", OTHERS, ids=lambda objective: type(objective).__name__)
def test_half_precision_is_upcast(objective):
    outputs, targets = normal(V, B, K), normal(G, B, K)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = objective.views(outputs.bfloat16(), targets.bfloat16()).loss
    assert found.dtype == torch.float32
    expected = objective.views(outputs.bfloat16().float(), targets.bfloat16().float()).loss
    torch.testing.assert_close(found, expected)


# --- Sinkhorn


def test_sinkhorn_gives_every_output_an_equal_fraction():
    logits = normal(G, 64, K)
    logits[..., 0] += 3  # one output would win
    probs = sinkhorn(logits, 0.5, iterations=50)
    close(probs.sum(dim=-1), torch.ones(G, 64, dtype=torch.float64))
    torch.testing.assert_close(
        probs.flatten(0, 1).mean(dim=0), torch.full((K,), 1 / K, dtype=torch.float64), rtol=1e-6, atol=1e-6
    )
    scaled = (logits / 0.5).exp().flatten(0, 1)  # the solution is unique up to scales of rows and columns
    ratios = probs.flatten(0, 1) / scaled
    torch.testing.assert_close(ratios / ratios[:, :1], (ratios / ratios[:, :1])[:1].expand_as(ratios))


def test_sinkhorn_replaces_the_center():
    outputs, targets = normal(V, B, K), normal(G, B, K)
    objective = SelfDistillation(0.1, "sinkhorn")
    assert not objective.has_center
    probs, log_probs = sinkhorn(targets, SHARPENING.temperature), (outputs / 0.1).log_softmax(dim=-1)
    expected = mean([-(probs[g] * log_probs[v]).sum(dim=-1).mean() for g in range(G) for v in range(V) if g != v])
    close(objective.views(outputs, targets, SHARPENING).loss, expected)


# --- The whole method with them


def make_model(objective, *, contrast="scfs", targets="student"):
    torch.manual_seed(0)
    heads = [PooledSearchHead(channels, 5, hidden_dim=7) for channels in CHANNELS]
    student = Encoder(ToyBackbone(), EmbeddingHead(CHANNELS[-1], 4, hidden_dim=9), heads)
    model = SCFS(
        randomised(student),
        layers=["a", "b", "c"],
        contrast=contrast,
        objective=objective,
        search_objective=objective,
        targets=targets,
    )
    return randomised(model)


@pytest.mark.parametrize("contrast", ["scfs", "scfs-no-multicrop", "dino-multilayer", "roi-crop"])
@pytest.mark.parametrize("targets", ["teacher", "student"])
@pytest.mark.parametrize("objective", OTHERS, ids=lambda objective: type(objective).__name__)
def test_every_student_parameter_learns_and_the_teacher_does_not(objective, targets, contrast):
    model = make_model(objective, contrast=contrast, targets=targets)
    torch.stack(list(model(make_batch(6), 0.05).losses.values())).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.student.parameters())
    assert all(p.grad is None for p in model.teacher.parameters())
    assert list(model.centers()) == []


def test_student_targets_have_a_gradient_in_the_data_term():
    """SimCLR's two-sided gradient."""
    model, batch = make_model(InfoNCE()), make_batch(6, 0)
    model.plan = model.plan.__class__(local_views=False)
    model.student.search_heads = torch.nn.ModuleList()
    loss = model(batch, 0.05).losses["view"]
    with torch.no_grad():
        frozen = model.student(batch.global_views).pooled
    features = model.student(batch.global_views).pooled
    outputs = model.student.head(features)
    one_sided = InfoNCE().views(outputs, model.student.head(frozen).detach()).loss
    close(loss, one_sided)
    weight = model.student.head.mlp[0].weight
    two, one = (torch.autograd.grad(each, weight, retain_graph=True)[0] for each in (loss, one_sided))
    assert not torch.allclose(two, one)


@pytest.mark.parametrize(
    ("contrast", "has_gradient"), [("dino-multilayer", True), ("scfs", False), ("roi-crop", False)]
)
def test_student_targets_have_a_gradient_at_the_layers_unless_searched(contrast, has_gradient):
    """A loss of the targets alone reaches the maps of the layers, or not."""

    class OnlyTargets(InfoNCE):
        def views(self, outputs, targets, *_):
            return Term(targets.sum() + 0 * outputs.sum(), targets)

        pairs = views

    model = make_model(OnlyTargets(), contrast=contrast)
    loss = sum(loss for name, loss in model(make_batch(6), 0.05).losses.items() if name != "view")
    gradients = torch.autograd.grad(loss, list(model.student.backbone.parameters()), allow_unused=True)
    assert any(each is not None and each.abs().sum() > 0 for each in gradients) == has_gradient


def test_with_student_targets_the_teacher_averages_everything():
    model = make_model(InfoNCE())
    before = {name: value.clone() for name, value in model.teacher.state_dict().items()}
    model(make_batch(6), 0.05)  # moves the student's statistics, not the teacher's
    for name, value in model.teacher.state_dict().items():
        torch.testing.assert_close(value, before[name])
    model.update_teacher(0.75)
    for name, value in model.student.state_dict().items():
        if value.is_floating_point():
            close(model.teacher.state_dict()[name], 0.75 * before[name] + 0.25 * value)


def test_pooled_head_sees_the_attended_mean():
    head = randomised(PooledSearchHead(3, 4, hidden_dim=5))
    maps, attention = normal(G, B, 3, 2, 3), normal(G, N, B, 2, 3)
    attended = torch.stack(
        [torch.stack([(attention[g, n].unsqueeze(1) * maps[g]).mean(dim=(-2, -1)) for n in range(N)]) for g in range(G)]
    )  # (G, N, B, C)
    close(head(maps, attention), F.normalize(head.mlp(attended.flatten(0, 2)), dim=-1).unflatten(0, (G, N, B)))
    close(head(maps), F.normalize(head.mlp(maps.mean(dim=(-2, -1)).flatten(0, 1)), dim=-1).unflatten(0, (G, B)))


def test_search_weight_scales_the_terms_at_the_layers():
    plain, heavy = make_model(InfoNCE()), make_model(InfoNCE())
    heavy.search_weight = 3.0
    losses, heavier = (model(make_batch(6), 0.05).losses for model in (plain, heavy))
    for name, loss in losses.items():
        close(heavier[name], loss if name == "view" else 3 * loss)
