import json
import sys
import tomllib

import pytest
from conftest import RECIPES

from scfs.ablate import job
from scfs.ablate.rows import TABLES, probe_blocks
from scfs.ablate.settings import Ablate
from scfs.config import Config
from scfs.errors import UserError
from scfs.recipe import check, read_toml
from scfs.runs.metric import Metric
from scfs.runs.results import read_results

ROWS = {
    "modes": ["DINO w/o MC", "DINO", "DINO w ML", "SCFS", "ROI crop", "SCFS w/o MC"],
    "layers": ["layer2", "layer2 + layer3", "layer2 + layer3 + layer4"],
    "locals": [f"{name}, {count} local views" for name in ("DINO", "SCFS") for count in (1, 3)],
    "backbones": [f"{name}, resnet10_half" for name in ("DINO", "SCFS")],
}


def test_a_recipe_with_multilayer_has_a_row_of_its_own(tiny):
    """The other rows are the paper's."""
    rows = TABLES["modes"]([tiny(**{"method.multilayer": True})], Ablate())
    assert [row.name for row in rows] == [*ROWS["modes"], "SCFS w ML"]
    assert [row.name for row in rows if row.config.method.multilayer] == ["SCFS w ML"]
    assert rows[-1].paper is None


@pytest.mark.parametrize("table", ROWS)
def test_rows_are_the_papers(tiny, table):
    rows = TABLES[table]([tiny()], Ablate(locals=(1, 3)))
    assert [row.name for row in rows] == ROWS[table]
    settings = [row.config.model_dump_json() for row in rows]
    assert len(set(settings)) == len(rows)


def test_probe_blocks_depend_on_the_backbone():
    """The paper: the last four blocks of ViT-S, the last of ViT-B."""
    assert probe_blocks("vit_small_patch16_224") == 4
    assert probe_blocks("vit_base_patch16_224") == 1
    assert probe_blocks("resnet50") == 4  # the default, so that probes of earlier tables are found


@pytest.mark.parametrize(("backbone", "blocks"), [("vit_base_patch16_224", 1), ("resnet10_half", 4)])
def test_every_run_is_probed_with_the_blocks_of_its_backbone(tiny, tmp_path, monkeypatch, backbone, blocks):
    seen = []

    def linear(_, settings, __):
        seen.append(settings.blocks)
        return [Metric("top-1", 0.5)]

    monkeypatch.setattr(job, "linear", linear)
    monkeypatch.setattr(job, "knn", lambda *_: [Metric("k=20 top-1", 0.4)])
    (tmp_path / job.TRAINED).touch()
    metrics = job._train_and_score(tmp_path, tiny(backbone__name=backbone), Ablate(), None)
    assert seen == [blocks]
    assert {name: metric.value for name, metric in metrics.items()} == {"k-NN": 0.4, "linear": 0.5}


@pytest.mark.parametrize("table", ["layers", "backbones"])
def test_the_papers_scores_are_not_shown_with_multilayer(table):
    config = check(Config, read_toml(RECIPES / "imagenet100_base.toml"))
    assert all(row.paper for row in TABLES[table]([config], Ablate()))
    config = check(Config, config.model_dump(), {"method.multilayer": True})
    assert [row.paper for row in TABLES[table]([config], Ablate()) if row.config.method.contrast == "scfs"][-1] is None


def test_the_papers_scores_are_shown_for_its_optimizer_only():
    names = ("imagenet100_base", "imagenet100_r101", "imagenet100_vit_s", "imagenet100_vit_b")
    configs = [check(Config, read_toml(RECIPES / f"{name}.toml")) for name in names]
    rows = TABLES["backbones"](configs, Ablate())
    assert [row.paper for row in rows][4:] == [(75.0, 80.4), (76.3, 81.0), (76.2, 80.7), (77.2, 82.3)]
    assert all(row.paper for row in rows)
    swapped = [check(Config, configs[i].model_dump(), {"optim.name": name}) for i, name in ((0, "adamw"), (2, "sgd"))]
    assert [row.paper for row in TABLES["backbones"](swapped, Ablate())] == [None] * 4


@pytest.mark.parametrize(
    ("recipe", "backbone", "named"),
    [
        ("imagenet100_base", "vit_small_patch16_224", "imagenet100_vit_s"),
        ("imagenet100_base", "vit_base_patch16_224", "imagenet100_vit_b"),
        ("imagenet100_vit_s", "resnet50", "imagenet100_base"),
    ],
)
def test_a_backbone_that_does_not_suit_the_recipe_is_refused(recipe, backbone, named):
    config = check(Config, read_toml(RECIPES / f"{recipe}.toml"))
    assert len(TABLES["backbones"]([config], Ablate(backbones=(config.backbone.name,)))) == 2
    with pytest.raises(UserError, match=f"not for {backbone}; instead of --backbones .* such as {named}"):
        TABLES["backbones"]([config], Ablate(backbones=(config.backbone.name, backbone)))


def test_layers_of_another_contrast(tiny):
    """A contrast with a search is used as it is, without the paper's scores, which are for SCFS."""
    rows = TABLES["layers"]([tiny(method__contrast="roi-crop")], Ablate())
    assert [row.config.method.contrast for row in rows] == ["roi-crop"] * 3
    assert [row.paper for row in rows] == [None] * 3


def test_an_interrupted_table_is_resumed_without_repeating_work(scfs, tiny_recipe, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos.parent)
    command = ("ablate", "layers", tiny_recipe, "--seeds", 0, "--linear", "cached", "--linear_epochs", 2)
    command = (*command, "--data", photos.name, "--folder", tmp_path / "table", "--optim.epochs", 1)
    trained = []
    pretrain = job.pretrain

    def stops_at_the_second(config, **options):
        trained.append(config.run.folder)
        if len(trained) == 2:
            raise KeyboardInterrupt("Stopped after step 1; resume with: scfs pretrain")
        return pretrain(config, **options)

    monkeypatch.setattr(job, "pretrain", stops_at_the_second)
    code, _, err = scfs(*command)
    assert code == 130
    assert "Stopped after step 1 of" in err
    assert "run the same command again to resume" in err
    runs = tmp_path / "table" / "runs.jsonl"
    [finished] = map(json.loads, runs.read_text().splitlines())
    assert (finished["row"], finished["seed"]) == ("layer2", 0)
    assert finished["command"] == sys.argv[1:]
    assert 0 <= finished["scores"]["linear"]["value"] <= 1
    code, out, err = scfs(*command)
    assert code == 0, err
    assert len(trained) == 1 + 3  # finished runs are not trained again
    assert "layer2 + layer3" in out
    assert [json.loads(line)["row"] for line in runs.read_text().splitlines()][:2] == ["layer2", "layer2 + layer3"]
    page = (tmp_path / "table" / "table.md").read_text()
    assert "| layer2 | " in page
    assert "84.8" in page
    assert "Training took" in page
    assert (tmp_path / "table" / "table.png").stat().st_size > 5000
    [run] = (tmp_path / "table").glob("layer2-seed0")
    assert [result.evaluation for result in read_results(run)] == ["knn", "linear"]

    by_hand = ("knn", run, "--k", 20, "--workers", 0)  # newer, but not what the table asks for
    for words in (("--data", "scenes:20,10"), ("--data", photos, "--size", 48)):
        assert scfs(*by_hand, *words)[0] == 0
    code, _, err = scfs(*command, "--data.workers", 1)
    assert code == 0, err
    assert len(trained) == 4
    assert [result.evaluation for result in read_results(run)] == ["knn", "linear", "knn", "knn"]  # no more of its own
    assert (tmp_path / "table" / "table.md").read_text() == page
    code, _, err = scfs(*command[:-1], 3)
    assert code == 2
    assert "was started with optim.epochs = 1 for 'layer2'" in err


def test_more_seeds_may_be_added(scfs, tiny_recipe, tmp_path):
    command = ("ablate", "locals", tiny_recipe, "--locals", 1, "--linear", "off", "--folder", tmp_path / "table")
    command = (*command, "--optim.epochs", 1)
    runs = tmp_path / "table" / "runs.jsonl"
    for seeds, new, finished in (((0,), 2, 2), ((1,), 2, 4), ((0, 1), 0, 4)):
        code, out, err = scfs(*command, "--seeds", *seeds)
        assert code == 0, err
        assert out.count("No score was computed.") == new
        lines = [json.loads(line) for line in runs.read_text().splitlines()]
        assert len({(line["row"], line["seed"]) for line in lines}) == len(lines) == finished
        assert "scfs report" not in out
        assert "scfs export" not in out
    assert len(list((tmp_path / "table").glob("*-seed*"))) == 4
    page = (tmp_path / "table" / "table.md").read_text()
    assert "over 2 seeds, no linear probe" in page
    rows = tmp_path / "table" / "rows.json"
    assert json.loads(rows.read_text()).keys() >= {"DINO, 1 local views"}

    for damaged in ('{"DINO": ', "[]"):
        rows.write_text(damaged)
        code, _, err = scfs(*command, "--seeds", 0)
        assert code == 2
        assert "rows.json is damaged; move it away" in err
        assert rows.read_text() == damaged
    rows.unlink()  # as advised
    complete = runs.read_text()
    runs.write_text(complete[:-20])
    code, _, err = scfs(*command, "--seeds", 0)
    assert code == 2
    assert "runs.jsonl is damaged; move it away" in err
    runs.unlink()
    runs.mkdir()
    code, _, err = scfs(*command, "--seeds", 0)
    assert code == 2
    assert "Cannot read" in err
    assert "runs.jsonl: Is a directory; move it away" in err
    runs.rmdir()
    runs.write_text(complete)
    assert scfs(*command, "--seeds", 0)[0] == 0


def test_bad_input_is_one_sentence(scfs, tiny_recipe, tmp_path):
    for words, sentence in (
        (("modes",), "scfs ablate needs recipes"),
        (("flavours", tiny_recipe), "TABLE cannot be 'flavours'; choose one of modes"),
        (("modes", tmp_path / "none.toml"), "No recipe at"),
        (("modes", tiny_recipe, tiny_recipe), "Only table 'backbones' takes several recipes"),
        (("backbones", tiny_recipe, "--backbones", "resnet18", "resnet18"), "Two rows of the table are the same"),
        (("backbones", tiny_recipe, "--backbones", "resnet18", "resnet5O"), "timm has no model"),
        (("modes", tiny_recipe, "--backbone.layers", "layer3", "layer9"), "has no layer 'layer9'"),
        (
            ("modes", tiny_recipe, "--method.contrast", "dino", "--views.num_local_views", 0),
            "needed for 'SCFS' and 'ROI crop' of this table, and the recipe has none (views.num_local_views = 0); add "
            "--views.num_local_views 4.",
        ),
        (
            ("backbones", tiny_recipe, "--method.contrast", "dino", "--views.num_local_views", 0),
            "Local views are needed for 'SCFS' of this table",
        ),
        (("layers", tiny_recipe, "--method.contrast", "dino"), "'dino' uses no search layers"),
        (("modes", tiny_recipe, "--seeds", 0, 0), "A seed is given twice"),
        (("modes", tiny_recipe, "--data", tmp_path / "none"), "No folder at"),
        (("modes", tiny_recipe, "--seed", 1), "Did you mean 'seeds'"),
        (("modes", tiny_recipe, "--optim.epoch", 1), "Did you mean 'optim.epochs'"),
        (("modes", tmp_path), "is a folder; give a recipe's name or .toml file"),
        (("modes", tiny_recipe, "--folder", tiny_recipe), "is not a folder; choose another --folder"),
        (("modes", tiny_recipe, "--folder", tmp_path), "holds other files and no table of scfs ablate; choose another"),
    ):
        code, _, err = scfs("ablate", *words)
        assert code == 2
        assert sentence in err
        assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_rows_may_have_a_time_instead_of_epochs(scfs, tiny_recipe, tmp_path, monkeypatch):
    seconds, folder = iter([0.5, 0.25]), tmp_path / "table"  # the second row is twice as fast
    monkeypatch.setattr("scfs.pretraining.prepare.seconds_per_step", lambda *_, **__: next(seconds))
    flags = ("--optim.epochs", "0.05min", "--linear", "off", "--seeds", 0, "--folder", folder)
    for _ in range(2):  # the second time, nothing is trained or timed
        assert scfs("ablate", "backbones", tiny_recipe, *flags)[0] == 0
    rows = [json.loads(line)["row"] for line in (folder / job.RUNS).read_text().splitlines()]
    assert rows == ROWS["backbones"]
    epochs = [tomllib.loads(path.read_text())["optim"]["epochs"] for path in sorted(folder.glob("*/settings.toml"))]
    assert epochs == [2, 4]
