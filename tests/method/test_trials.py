"""The trials of benchmarks/trials.py, at toy size."""

import pytest
import torch
import torch.nn.functional as F
from conftest import REPO
from toy_method import TEACHER_TEMP, make_batch, make_model

from scfs.method.objectives import InfoNCE


@pytest.fixture
def trials(monkeypatch):
    monkeypatch.syspath_prepend(REPO / "benchmarks")
    import trials

    return trials


def gradients(contrast="scfs"):
    """The loss of the recipe's objective, and its gradients."""
    model = make_model(contrast, multilayer=True)
    model.objective = model.search_objective = InfoNCE()
    model.targets = "student"
    loss = torch.stack([*model(make_batch(), TEACHER_TEMP).losses.values()]).sum()
    loss.backward()
    return loss.item(), [parameter.grad for parameter in model.student.parameters() if parameter.grad is not None]


def same(ours, theirs):
    return ours[0] == theirs[0] and all(torch.equal(a, b) for a, b in zip(ours[1], theirs[1], strict=True))


def test_every_trial_changes_what_is_learned_and_leaves_no_trace(trials):
    found = {}
    for name, trial in trials.TRIALS.items():
        contrast = {"scfs": "scfs", trials.POSITIONS: "roi-crop"}.get(trial.method)
        if contrast is None or trial.step_time != 1:  # settings, or views
            continue
        before = gradients(contrast)
        with trials.changed(trial):
            found[name] = gradients(contrast)
        assert not same(found[name], before), name
        assert same(gradients(contrast), before), name
    assert len({loss for loss, _ in found.values()}) == len(found) > 5
    assert found["gradients"][0] == gradients()[0]  # the same loss, with other gradients


def test_the_mean_target_equals_loops(trials):
    generator = torch.Generator().manual_seed(0)
    outputs, targets = (torch.randn(views, 3, 5, generator=generator).double() for views in (4, 2))
    unit, unit_targets = F.normalize(outputs, dim=-1), F.normalize(targets, dim=-1)
    for of_all_views, averaged in ((True, unit), (False, unit_targets)):
        expected = []
        for v in range(4):
            means = sum(averaged[u] for u in range(len(averaged)) if u != v)
            for b in range(3):
                cosines = torch.stack([unit[v, b] @ F.normalize(means[a], dim=0) for a in range(3)]) / 0.1
                expected.append(cosines.logsumexp(dim=0) - cosines[b])
        with trials.mean_target(of_all_views=of_all_views):
            term = InfoNCE(0.1).views(outputs, targets)
        torch.testing.assert_close(term.loss, torch.stack(expected).mean())


def test_attention_has_mean_one(trials):
    cosines = torch.rand(2, 3, 4, 5, 6) - 0.2
    for attention in (trials.over_mean(cosines), trials.softmax(cosines, 0.1)):
        torch.testing.assert_close(attention.mean(dim=(-2, -1)), torch.ones(2, 3, 4))


def test_the_table(trials, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["trials.py", "table"])
    trials.main()
    out = capsys.readouterr().out
    assert all(f"| {name} |" in out for name in trials.TRIALS)
