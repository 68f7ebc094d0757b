import pytest
from PIL import Image

from scfs.visualize.pictures import save_curves
from scfs.visualize.report import summarise


@pytest.mark.parametrize(
    "flags",
    [
        ["--run.knn_every_epochs", 1],
        ["--method.contrast", "dino-no-multicrop"],
        ["--backbone.name", "vit_tiny_patch16_224", "--views.global_size", 48, "--views.local_size", 16],  # not 72
    ],
)
def test_pictures_and_page(scfs, tiny_recipe, tmp_path, flags):
    run = tmp_path / "run"
    assert scfs("pretrain", tiny_recipe, "--run.folder", run, *flags)[0] == 0
    code, out, _ = scfs("report", run)
    assert code == 0
    assert ("k-NN top-1:" in out) == ("--run.knn_every_epochs" in flags)
    page = (run / "report" / "index.html").read_text()
    for name in ("views.png", "attention.png", "curves.png"):
        assert name in page
        with Image.open(run / "report" / name) as picture:
            extremes = picture.convert("L").getextrema()
        assert extremes[1] - extremes[0] > 100  # something is drawn
    for line in ("run folder", "example views", "attention maps", "report"):
        assert line in out
    assert "method.contrast" in page


def test_summary_is_first_against_last():
    rows = [{"knn_top1": 0.2}, {"loss": 1.0}, {"knn_top1": 0.3}, {"knn_top1": 0.45}]
    assert str(summarise(rows)) == ("k-NN top-1: 20.0% at the start, 45.0% after training (+25.0 points)")
    assert str(summarise([])) == "No k-NN was computed."


def test_curves_of_a_run_whose_diagnostics_were_renamed(tmp_path):
    """As of one that an older version began and this one resumed."""
    old = {"loss": 3.0, "loss/view": 3.0, "teacher_entropy": 0.5, "feature_spread": 0.5}
    new = {"loss": 3.0, "loss/view": 3.0, "entropy/view": 0.5, "spread/view": 0.9, "feature_spread": 0.5}
    rows = [{"step": 1.0, **old}, {"step": 2.0, **old}, {"step": 3.0, **new}, {"step": 3.0, "knn_top1": 0.2}]
    save_curves(tmp_path / "curves.png", rows)
    assert (tmp_path / "curves.png").stat().st_size > 0
    save_curves(tmp_path / "none.png", [])
