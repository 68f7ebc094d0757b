from PIL import Image


def test_a_dry_run_prints_the_cost_of_a_run_and_trains_nothing(scfs, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = scfs("pretrain", tiny_recipe, "--dry-run")
    assert code == 0
    for text in (
        "steps: 6 (3 per epoch, 2 epochs)",
        "parameters: ",
        "memory: about",
        "time per step: about",
        "total time: about",
    ):
        assert text in out
    pictures = [path for path in tmp_path.rglob("*") if path.is_file() and path != tiny_recipe]
    assert [path.name for path in pictures] == ["tiny-views.png"]
    with Image.open(pictures[0]) as picture:
        assert min(picture.size) > 200
    assert "Nothing was trained or saved" in out


def test_a_second_dry_run_does_not_overwrite_the_first_picture(scfs, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert scfs("pretrain", tiny_recipe, "--dry-run")[0] == 0
    assert {path.name for path in tmp_path.rglob("*.png")} == {"tiny-views.png", "tiny-views-2.png"}


def test_a_dry_run_with_gradient_accumulation(scfs, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert scfs("pretrain", tiny_recipe, "--dry-run", "--optim.accumulate", 2)[0] == 0
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_a_dry_run_counts_skipped_files_and_warns_of_short_epochs(scfs, tiny_recipe, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.HEIC", "b.heic", "c.cr2", ".hidden"):
        (photos / "cats" / name).touch()
    words = ("pretrain", tiny_recipe, "--dry-run", "--data.source", photos)
    code, out, err = scfs(*words, "--optim.batch_size", 6)
    assert code == 0, err
    assert "images: 12 used, 3 files skipped because of their suffix (2 .heic, 1 .cr2)" in out
    assert "Warning: an epoch has only 2 step(s) of 6 images" in out
    assert "Warning" not in scfs(*words)[1]
