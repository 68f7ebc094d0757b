"""The records of benchmarks/rivals.py: which runs are the same, which learning rate they choose, what is missing."""

import sys

import pytest
from conftest import REPO


@pytest.fixture
def records(monkeypatch):
    monkeypatch.syspath_prepend(REPO / "benchmarks")
    import rival_records

    return rival_records


def work(records, **changes):
    values = {"data": "imagenette", "method": "scfs", "minutes": 1.5, "seed": 0, "held_out": True, "lr_factor": 1.0}
    values |= {"precision": "bfloat16", "size": 96, "settings": records.settings_of("scfs")}
    return values | changes


def trial(records, scores, **changes):
    """Held-out runs with the k-NN of each factor."""
    factors = zip(records.FACTORS, scores, strict=True)
    return [{**work(records, lr_factor=factor, **changes), "scores": [{"knn": score}]} for factor, score in factors]


def test_runs_that_differ_have_folders_of_their_own(records):
    changes = [{"data": "pets"}, {"method": "dino"}, {"minutes": 3.0}, {"seed": 1}, {"held_out": False}]
    changes += [{"lr_factor": 3.0}, {"precision": "float32"}, {"settings": "other"}]
    different = [work(records), *(work(records, **each) for each in changes)]
    assert len({records.name_of(each) for each in different}) == len(different)
    assert not any(records.same_work(different[0], each) for each in different[1:])


def test_the_learning_rate_is_that_of_a_complete_trial(records):
    assert records.best_factor([], "scfs") == 1.0
    assert records.best_factor(trial(records, (0, 0, 0, 0.5))[1:], "scfs") == 1.0  # one is missing
    low, high = records.FACTORS[0], records.FACTORS[-1]
    short, long = trial(records, (0.5, 0, 0, 0)), trial(records, (0, 0, 0, 0.5), minutes=3.0)
    assert records.best_factor([*long, *short], "scfs") == high
    larger = {**work(records, lr_factor=27.0), "scores": [{"knn": 0.6}]}
    assert records.best_factor([*short, larger], "scfs") == 27.0
    assert records.best_factor([*short[1:], larger], "scfs") == 1.0
    assert records.best_factor(trial(records, (0.5, 0.5, 0, 0.5)), "scfs") == 1.0
    assert records.best_factor([*short, *(r | {"data": "pets"} for r in long)], "scfs") == low
    assert records.best_factor([*short, *(r | {"held_out": False} for r in long)], "scfs") == low


def test_trials_of_other_settings_are_not_mixed(records):
    """And seeds are averaged: the order of the records does not matter."""
    low, high = records.FACTORS[0], records.FACTORS[-1]
    now, before = trial(records, (0.5, 0, 0, 0)), trial(records, (0, 0, 0, 0.9), minutes=3.0, settings="earlier")
    for runs in ([*now, *before], [*before, *now]):
        assert records.best_factor(runs, "scfs") == low
    seeds = trial(records, (0.5, 0, 0, 0.4), seed=0) + trial(records, (0.1, 0, 0, 0.4), seed=1)
    for runs in (seeds, seeds[::-1]):
        assert records.best_factor(runs, "scfs") == high


def test_the_records_fit_the_plan(records):
    """Every recorded method and data set is known, and runs are named once."""
    recorded = records.read_records(records.RECORDS)
    assert {r["data"] for r in recorded} <= records.SIZES.keys()
    assert {r["method"] for r in recorded} <= {*records.METHODS, *records.CHANGED}
    current = [records.name_of(r) for r in recorded if records.is_current(r)]
    assert len({*current}) == len(current) > 0


def test_the_table_needs_no_other_library(records, monkeypatch, capsys):
    """It prints the runs of the records, and what of the plan is missing."""
    monkeypatch.setitem(sys.modules, "lightly", None)
    import rival_table
    from rivals import main

    monkeypatch.setattr("sys.argv", ["rivals.py", "table"])
    main()
    out = capsys.readouterr().out
    assert "| imagenette | 10 | scfs | " in out
    done = [{"data": p.data, "minutes": p.minutes, "method": p.method, "seed": p.seed} for p in records.PLAN]
    assert rival_table.missing(done) == ""
    assert rival_table.missing(done[1:]) == f"{done[0]['data']} {done[0]['minutes']:g} min: {done[0]['method']}"


def test_budgets_do_not_depend_on_the_machine(records):
    """They are by recorded ratios of steps, which every planned method has."""
    seconds = {method: records.reference_seconds(method, "bfloat16") for method in records.COMPARED}
    assert seconds["simclr"] < seconds["dino"] < seconds["scfs"] == records.REFERENCE_SECONDS < seconds["lightly-dino"]


def test_ratios_of_a_precision_are_added_to_those_that_are_known(records, monkeypatch, tmp_path):
    monkeypatch.setattr(records, "RATIOS", tmp_path / "ratios.json")
    records.RATIOS.write_text('{"bfloat16": {"scfs": 1.0}}')
    records.add_ratios("float32", {"scfs": 1.6})
    records.add_ratios("bfloat16", {"dino": 0.8})
    assert records.read_ratios("bfloat16") == {"dino": 0.8, "scfs": 1.0}
    assert records.reference_seconds("scfs", "float32") == 1.6 * records.REFERENCE_SECONDS


@pytest.mark.parametrize(("method", "batch_size"), [("scfs", 256), ("scfs, batch 128", 128), ("simclr", 256)])
def test_a_changed_batch_size_counts(monkeypatch, method, batch_size):
    monkeypatch.syspath_prepend(REPO / "benchmarks")
    from rival_settings import batch_size_of

    assert batch_size_of(method) == batch_size


def test_a_folder_that_does_not_exist_is_one_sentence(monkeypatch, capsys, tmp_path):
    pytest.importorskip("lightly")
    monkeypatch.syspath_prepend(REPO / "benchmarks")
    from rivals import main

    words = ("run", "--data", "imagenette=nowhere", "--minutes", "1", "--records", str(tmp_path / "records.jsonl"))
    monkeypatch.setattr("sys.argv", ["rivals.py", *words, "--folder", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "No folder at nowhere" in capsys.readouterr().err
