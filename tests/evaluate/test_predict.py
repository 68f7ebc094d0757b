"""scfs predict: which images, which classifier, and what is written when the output is closed."""

import csv
import io
import os

import pytest
import torch

from scfs.backbones import fingerprint, load_backbone
from scfs.console import PlainConsole
from scfs.evaluate.linear.probe_file import Probe, save_probe
from scfs.evaluate.predict import predict
from scfs.evaluate.settings import Predict
from scfs.runs.layout import write_settings


@pytest.fixture
def probed(trained):
    """A run with a probe of two classes."""
    save_probe(trained, constant_probe(trained, "linear"))
    return trained


def constant_probe(run, kind):
    """A classifier of a run's network that calls everything by one name."""
    weights = fingerprint(load_backbone(str(run)).backbone)
    return Probe(torch.zeros(2, 256), torch.tensor([9.0, 0.0]), [kind, "other"], 32, blocks=0, weights=weights)


def add_fine_tuned(run, name="finetune", **settings):
    """A fine-tuned network in a run, as scfs finetune writes it, with the weights it started from."""
    from scfs.evaluate.finetune.classifier import Classifier
    from scfs.evaluate.finetune.folder import save_classifier

    (run / name).mkdir()
    start = fingerprint(load_backbone(str(run)).backbone)
    write_settings(run / name, {"finetune": {"weights": start, "start": "weights", **settings}})
    classifier = Classifier(load_backbone("random:resnet10_half", seed=3).backbone, 2)
    torch.nn.init.zeros_(classifier.head.weight)
    classifier.head.bias.data[:] = torch.tensor([9.0, 0.0])
    return save_classifier(run / name, classifier, (name, "other"), 32)


def test_a_probe_of_another_version(scfs, probed, photos):
    torch.save({"scfs_checkpoint": 1, "linear": {"weight": torch.zeros(2, 256)}}, probed / "linear.pt")
    code, _, err = scfs("predict", probed, photos)
    assert code == 2
    assert "linear.pt is a probe of another version of scfs; train it again" in err


def labels_in(path):
    with path.open() as file:
        return {row["class"] for row in csv.DictReader(file)}


def set_time(path, seconds):
    os.utime(path, (seconds, seconds))


@pytest.mark.parametrize("name", ["c.json", "c.xlsx", "c"])
def test_predictions_are_csv(scfs, probed, photos, tmp_path, name):
    code, _, err = scfs("predict", probed, photos, tmp_path / name, "--workers", 0)
    assert (code, err.count("\n")) == (2, 1)
    assert "name the file .csv, not" in err
    assert not (tmp_path / name).exists()


def test_every_image_of_a_folder_with_train_and_val(scfs, probed, photos, tmp_path):
    (photos / "cats").rename(photos / "train")
    (photos / "dogs").rename(photos / "val")
    code, out, err = scfs("predict", probed, photos, tmp_path / "out.csv", "--workers", 0)
    assert code == 0, err
    assert "12 images in" in out


def test_a_single_photo(scfs, probed, photos):
    path = photos / "cats" / "0.jpg"
    code, out, err = scfs("predict", probed, path, "--workers", 0)
    assert code == 0, err
    assert f"linear  1.000  {path}" in out


def test_the_newest_classifier_is_used_and_named(scfs, probed, photos, tmp_path):
    tuned = add_fine_tuned(probed)
    set_time(probed / "linear.pt", 1_000_000_000)
    code, out, err = scfs("predict", probed, photos, tmp_path / "tuned.csv", "--workers", 0)
    assert code == 0, err
    assert f"Classifier: fine-tuned network {tuned} of " in out
    assert f"to use another, give it in place of the run: {probed / 'linear.pt'}" in out
    assert labels_in(tmp_path / "tuned.csv") == {"finetune"}
    code, out, err = scfs("predict", probed / "linear.pt", photos, tmp_path / "linear.csv", "--workers", 0)
    assert code == 0, err
    assert labels_in(tmp_path / "linear.csv") == {"linear"}
    set_time(tuned, 900_000_000)
    code, out, _ = scfs("predict", probed, photos, tmp_path / "newest.csv", "--workers", 0)
    assert f"Classifier: linear probe {probed / 'linear.pt'} of 2001-09-" in out
    assert labels_in(tmp_path / "newest.csv") == {"linear"}


def test_a_probe_of_a_kept_checkpoint(scfs, tiny_recipe, photos, tmp_path):
    run = tmp_path / "run"
    assert scfs("pretrain", tiny_recipe, "--run.folder", run, "--run.keep_every_epochs", 1)[0] == 0
    kept = run / "epoch_0001.pt"
    probe = constant_probe(kept, "kept")
    save_probe(run, probe)
    for target in (kept, run / "linear.pt"):
        code, _, err = scfs("predict", target, photos, out := tmp_path / f"{target.stem}.csv")
        assert code == 0, err
        assert labels_in(out) == {"kept"}


@pytest.mark.parametrize("settings", [{"start": "scratch"}, {"weights": "of another checkpoint"}])
def test_a_network_fine_tuned_from_other_weights_is_not_used(scfs, probed, photos, tmp_path, settings):
    add_fine_tuned(probed, **settings)
    set_time(probed / "linear.pt", 1_000_000_000)
    assert scfs("predict", probed, photos, tmp_path / "out.csv", "--workers", 0)[0] == 0
    assert labels_in(tmp_path / "out.csv") == {"linear"}


def test_unreadable_photos_are_listed_and_the_others_predicted(scfs, probed, photos, tmp_path):
    for path in photos.glob("cats/*.jpg"):
        path.write_bytes(b"no image")
    code, out, err = scfs("predict", probed, photos, tmp_path / "out.csv", "--workers", 0)
    assert code == 0, err
    assert "6 images in" in out
    assert out.count("Unreadable, left out: ") == 6
    assert out.splitlines()[-1].startswith("Unreadable, left out: ")


def test_the_table_is_written_before_anything_is_printed(probed, photos, tmp_path):
    class Closed(io.StringIO):
        """Output whose reader has gone away."""

        def write(self, text):
            if text:
                raise OSError("closed")
            return 0

    with pytest.raises(OSError, match="closed"):
        predict(str(probed), str(photos), tmp_path / "out.csv", Predict(workers=0), PlainConsole(file=Closed()))
    assert labels_in(tmp_path / "out.csv") == {"linear"}


def test_predictions_are_complete_if_their_reader_stops(first_line, probed, photos, tmp_path):
    out, code, err = first_line("predict", probed, photos, tmp_path / "out.csv", "--workers", 0)
    assert out.startswith("Classifier: ")
    assert (code, err) == (0, "")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 13
