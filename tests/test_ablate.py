import json

import pytest

from scfs.ablate import job
from scfs.ablate.rows import TABLES
from scfs.ablate.settings import Ablate
from scfs.runs.results import read_results

ROWS = {
    "modes": ["DINO w/o MC", "DINO", "DINO w ML", "SCFS", "ROI crop", "SCFS w/o MC"],
    "layers": ["layer2", "layer2 + layer3", "layer2 + layer3 + layer4"],
    "locals": [f"{name}, {count} local views" for name in ("DINO", "SCFS") for count in (1, 3)],
    "backbones": [f"{name}, resnet10_half" for name in ("DINO", "SCFS")],
}


@pytest.mark.parametrize("table", ROWS)
def test_rows_are_the_papers(tiny, table):
    rows = TABLES[table]([tiny()], Ablate(locals=(1, 3)))
    assert [row.name for row in rows] == ROWS[table]
    settings = [row.config.model_dump_json() for row in rows]
    assert len(set(settings)) == len(rows)


def test_a_table_is_made_once_and_gone_on_with(scfs, tiny_recipe, photos, tmp_path, monkeypatch):
    command = ("ablate", "layers", tiny_recipe, "--seeds", 0, "--linear", "cached", "--linear_epochs", 2)
    command = (*command, "--data", photos, "--folder", tmp_path / "table", "--optim.epochs", 1)
    trained = []
    pretrain = job.pretrain

    def stops_at_the_second(config, **options):
        trained.append(config.run.folder)
        if len(trained) == 2:
            raise KeyboardInterrupt("Stopped after step 1; go on with: scfs pretrain")
        return pretrain(config, **options)

    monkeypatch.setattr(job, "pretrain", stops_at_the_second)
    code, _, err = scfs(*command)
    assert code == 130
    assert "Stopped after step 1 of" in err
    assert "the same command goes on" in err
    code, out, err = scfs(*command)
    assert code == 0, err
    assert len(trained) == 1 + 3  # what was done is not done again
    assert "layer2 + layer3" in out
    page = (tmp_path / "table" / "table.md").read_text()
    assert "| layer2 | " in page
    assert "84.8" in page
    assert "Training took" in page
    assert (tmp_path / "table" / "table.png").stat().st_size > 5000
    [run] = (tmp_path / "table").glob("layer2-seed0")
    assert [entry["evaluation"] for entry in read_results(run)] == ["knn", "linear"]

    by_hand = ("knn", run, "--k", 20, "--workers", 0)  # of no concern to the table, though newer
    for words in (("--data", "scenes:20,10"), ("--data", photos, "--size", 48)):
        assert scfs(*by_hand, *words)[0] == 0
    code, _, err = scfs(*command, "--data.workers", 1)
    assert code == 0, err
    assert len(trained) == 4
    assert (tmp_path / "table" / "table.md").read_text() == page
    code, _, err = scfs(*command[:-1], 3)
    assert code == 2
    assert "was begun with optim.epochs = 1 for 'layer2'" in err


def test_more_seeds_may_be_added(scfs, tiny_recipe, tmp_path):
    command = ("ablate", "locals", tiny_recipe, "--locals", 1, "--linear", "off", "--folder", tmp_path / "table")
    command = (*command, "--optim.epochs", 1)
    for seeds in ((0,), (0, 1)):
        code, _, err = scfs(*command, "--seeds", *seeds)
        assert code == 0, err
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


def test_bad_input_is_one_sentence(scfs, tiny_recipe, tmp_path):
    for words, sentence in (
        (("modes",), "scfs ablate needs recipes"),
        (("flavours", tiny_recipe), "TABLE cannot be 'flavours'; there are modes"),
        (("modes", tmp_path / "none.toml"), "No recipe at"),
        (("modes", tiny_recipe, tiny_recipe), "Several recipes are for the backbones' table alone"),
        (("backbones", tiny_recipe, "--backbones", "resnet18", "resnet18"), "Two rows of the table are the same"),
        (("backbones", tiny_recipe, "--backbones", "resnet18", "resnet5O"), "timm knows no model"),
        (("modes", tiny_recipe, "--backbone.layers", "layer3", "layer9"), "has no layer 'layer9'"),
        (("modes", tiny_recipe, "--seeds", 0, 0), "A seed is given twice"),
        (("modes", tiny_recipe, "--data", tmp_path / "none"), "No folder at"),
        (("modes", tiny_recipe, "--seed", 1), "Did you mean 'seeds'"),
        (("modes", tiny_recipe, "--optim.epoch", 1), "Did you mean 'optim.epochs'"),
    ):
        code, _, err = scfs("ablate", *words)
        assert code == 2
        assert sentence in err
        assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()
