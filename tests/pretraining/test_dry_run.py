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
