"""Pieces of the page that need no network."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ImageColor

from scfs.config import Config
from scfs.recipe import check
from scfs.runs.auto_choices import AutoChoice
from scfs.runs.metric import Metric
from scfs.runs.results import Result
from scfs.runs.verdict import judge
from scfs.visualize.report import charts
from scfs.visualize.report.charts import MAX_POINTS, Chart, Line, Reference, axis_of, chart
from scfs.visualize.report.markup import Html, Section, join, table, tag
from scfs.visualize.report.page import render_page
from scfs.visualize.report.run import ReportedRun, run_names
from scfs.visualize.report.sections.confusion import confusion_section, mistakes
from scfs.visualize.report.sections.curves import curve_section, series, uniform_loss
from scfs.visualize.report.sections.embedding_map import class_colours, placed
from scfs.visualize.report.sections.results import cells_of, grouped, result_section
from scfs.visualize.report.sections.settings import setting_section

EVIL = "<script>alert('&\"')</script>"


def run(tmp_path, name="run", rows=(), results=(), **flags):
    config = check(Config, {}, {key.replace("__", "."): value for key, value in flags.items()})
    verdict = judge(rows, epochs=config.optim.epochs, num_outputs=config.method.num_outputs)
    return ReportedRun(
        tmp_path / name, name, "pretrain", config, config.model_dump(), rows, results, verdict, [], [], []
    )


def test_text_is_escaped_wherever_it_is():
    page = render_page(EVIL, tag("p", EVIL), [Section(EVIL, table([EVIL], [[EVIL]]), EVIL)])
    assert EVIL not in page
    assert page.count("<script>") == 1  # the page's own
    attribute = tag("img", alt=EVIL, src=None, open=True)
    assert attribute.startswith('<img alt="&lt;script&gt;alert(&#x27;&amp;&quot;&#x27;)&lt;/script&gt;" open')
    assert join([Html("<b>"), "<b>"]) == "<b>&lt;b&gt;"


def test_a_page_without_sections_has_no_holes():
    assert "$" not in render_page("title", Html(), []).replace("$&", "")


@pytest.mark.parametrize("values", [[0.0], [3.0], [-2.0], [1e-5, 3e-5], [0, 216], [5.01, 5.02], [-1, 1e6]])
def test_axes_contain_all_values_and_end_at_ticks(values):
    low, high, ticks = axis_of(values)
    assert low <= min(values) + 1e-12
    assert high >= max(values) - 1e-12
    assert (ticks[0], ticks[-1]) == (low, high)
    assert 2 <= len(ticks) <= 9


def test_a_chart_of_a_long_run_is_small_and_skips_what_is_not_finite():
    points = [(step, math.nan if step == 7 else 1 / step) for step in range(1, 20_000)]
    drawn = chart(Chart("Loss", "loss", [Line("a<b", points, 0)], [Reference("uniform", 2.0, 0)]))
    assert len(drawn) < 40 * MAX_POINTS
    assert "nan" not in drawn
    assert "a&lt;b" in drawn
    assert ">step<" in drawn


def test_series_of_a_run_whose_diagnostics_were_renamed(tmp_path):
    """As if an older version started the run and this one resumed it."""
    old = {"loss": 3.0, "loss/view": 3.0, "teacher_entropy": 0.5, "feature_spread": 0.5}
    new = {"loss": 3.0, "loss/view": 3.0, "entropy/view": 0.4, "spread/view": 0.9, "feature_spread": 0.5}
    rows = [{"step": 1, "epoch": 0.1, **old}, {"step": 2, "epoch": 0.2, **new}, {"step": 2, "knn_top1": 0.2}]
    found = series(run(tmp_path, rows=rows))
    assert found["loss"] == {"view": [(1, 3.0), (2, 3.0)]}
    assert found["entropy"] == {"view": [(1, 0.5), (2, 0.4)]}
    assert found["spread"] == {"features": [(1, 0.5), (2, 0.5)], "view": [(2, 0.9)]}
    assert found["score"] == {"k-NN top-1": [(2, 20.0)]}


def test_a_run_given_by_a_time_is_repeated_by_its_number_of_epochs(tmp_path):
    timed = replace(run(tmp_path, optim__epochs=87), choices=[AutoChoice("optim.epochs", 87, "measured", "30min")])
    assert f"scfs pretrain {tmp_path / 'run'} --optim.epochs 87</code>" in setting_section([timed]).content
    assert f"scfs pretrain {tmp_path / 'run'}</code>" in setting_section([run(tmp_path)]).content


def test_the_loss_of_uniform_outputs(tmp_path):
    """Where a layer has two terms, each has half the weight."""
    dino = run(tmp_path, method__out_dim=512, method__search_out_dim=64)
    assert uniform_loss(dino, "view") == pytest.approx(math.log(512))
    assert uniform_loss(dino, "search/layer4") == pytest.approx(math.log(64))
    both = run(tmp_path, method__variant="released", method__search_out_dim=64)
    num_terms = bool(both.config.method.plan.layer_views) + bool(both.config.method.plan.targets)
    assert uniform_loss(both, "search/layer4") == pytest.approx(math.log(64) / num_terms)
    assert uniform_loss(run(tmp_path, method__objective="info-nce"), "view") is None


def test_curves_of_several_runs_share_their_axes(tmp_path):
    rows = [{"step": step, "epoch": step / 10, "loss": 2.0, "loss/view": 2.0, "lr": 0.1} for step in (1, 2)]
    section = curve_section([run(tmp_path, "a", rows), run(tmp_path, "b", rows)])
    assert section is not None
    assert section.content.count("<polyline") == 4  # loss and rate of two runs
    assert section.content.count("<svg") == 2
    assert curve_section([run(tmp_path)]) is None


def test_results_of_one_run_by_date_and_of_several_by_run(tmp_path):
    def result(value, when):
        return Result("knn", [Metric("k=20 top-1", value, (value - 0.1, value + 0.1))], "pets", "64 px", when=when)

    first, second = result(0.3, "2026-01-01T00:00:00"), result(0.5, "2026-02-01T00:00:00")
    one = run(tmp_path, "one", results=[first, second])
    other = run(tmp_path, "other", results=[result(0.9, "2026-03-01T00:00:00")])
    [members] = grouped([one]).values()
    assert [metric.value for metric in cells_of(members, is_one=True)["k=20 top-1"]] == [0.3, 0.5]
    [members] = grouped([one, other, run(tmp_path)]).values()
    latest = cells_of(members, is_one=False)["k=20 top-1"]
    assert [metric and metric.value for metric in latest] == [0.5, 0.9, None]
    content = result_section([one, other]).content
    assert '<span class="best">90.0 %</span>' in content
    assert '<span class="best">50.0 %</span>' not in content
    assert result_section([run(tmp_path)]) is None
    advice = Result("overaug audit", [], "pets", "64 px", when="2026-01-01T00:00:00")  # without numbers
    assert result_section([run(tmp_path, "advised", results=[advice])]) is None


def test_confusion_names_the_most_frequent_mistakes(tmp_path):
    classes, counts = ["cat", "dog<"], [[5, 3], [1, 9]]
    assert mistakes(classes, counts) == [("cat", "dog<", 3, 8), ("dog<", "cat", 1, 10)]
    details = {"confusion": {"classes": classes, "counts": counts}}
    section = confusion_section(
        [run(tmp_path, results=[Result("linear", [Metric("top-1", 0.7)], "", details=details)])]
    )
    assert "cat → dog&lt;: 3 of 8" in section.content
    many = {"per class": {f"class {i}": i / 200 for i in range(200)}}
    section = confusion_section([run(tmp_path, results=[Result("linear", [Metric("top-1", 0.5)], "", details=many)])])
    assert "All 200 classes" in section.content
    assert confusion_section([run(tmp_path)]) is None


def test_thumbnails_do_not_overlap_and_none_that_has_room_is_left_out():
    points = 300 * torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    chosen = placed(points, 40)
    assert 20 < len(chosen) < 60
    for number, point in enumerate(points):
        others = [other for other in chosen if other != number]
        nearest = (points[others] - point).abs().amax(dim=1).min()
        assert (nearest >= 40) == (number in chosen)


def test_the_largest_classes_have_colours():
    labels = torch.tensor([i for i in range(10) for _ in range(10 - i)] + [-1] * 50)
    assert class_colours(labels) == {label: label for label in range(7)}


def test_lines_of_a_chart_are_told_apart():
    """Eight colours, in every mode of the page; from then on dotted lines."""
    lines = [Line(f"line {i}", [(0, i), (1, i)], i) for i in range(10)]
    drawn = chart(Chart("title", "y", lines))
    styles = re.findall(r'<polyline [^>]*?(class="dotted" )?style="--c:var\(--(s\d)\)"', drawn)
    assert styles == [("", f"s{i}") for i in range(8)] + [('class="dotted" ', "s0"), ('class="dotted" ', "s1")]
    assert drawn.count('<i class="dotted"') == 2  # in the legend
    css = (Path(charts.__file__).parent / "page.css").read_text()
    modes = [re.findall(rf"--s{i}: (#\w+);", css) for i in range(8)]
    assert [len(each) for each in modes] == [3] * 8  # light, dark and printed
    for mode in zip(*modes, strict=True):
        colours = np.array([ImageColor.getrgb(each) for each in mode], int)
        distances = np.linalg.norm(colours[:, None] - colours, axis=-1) + 999 * np.eye(8)
        assert distances.min() > 70


def test_names_of_runs(tmp_path):
    for name in ("a/x", "b/x", "a/y"):
        (tmp_path / name).mkdir(parents=True)
    assert run_names([tmp_path / "a/x", tmp_path / "a/y"]) == ["x", "y"]
    same = [tmp_path / "a/x", tmp_path / "b/x"]
    assert run_names(same) == [str(path) for path in same]
    (tmp_path / "a" / "settings.toml").write_text("")
    assert run_names([tmp_path / "a/x"]) == ["a/x"]
