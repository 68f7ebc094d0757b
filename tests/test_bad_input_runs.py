"""Mistakes with run folders, and what the machine refuses: one sentence, and no run is damaged."""

import errno
import json
import resource
import shutil
import tarfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from scfs.data import loader
from scfs.data.scene_source import SceneSource
from scfs.distributed import num_cores
from scfs.errors import UserError
from scfs.runs import checkpoint, layout
from scfs.runs.files import write_new
from scfs.runs.metrics_log import JsonLines
from tests.test_bad_input import refused


def content_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("flags", [[], ["--resume"]])
def test_photos_are_no_run_folder(scfs, tiny_recipe, photos, flags):
    before = content_of(photos)
    answer = scfs("pretrain", tiny_recipe, "--data.source", photos, "--run.folder", photos, *flags)
    assert refused(answer, "choose another --run.folder")
    assert "--resume" not in answer[2]
    assert content_of(photos) == before


def test_resume_starts_in_an_empty_folder(scfs, tiny_recipe, tmp_path):
    (tmp_path / "run").mkdir()
    flags = ("--run.folder", tmp_path / "run", "--optim.epochs", 1, "--resume")
    assert scfs("pretrain", tiny_recipe, *flags)[0] == 0


def test_resume_in_another_folder(scfs, trained, tmp_path):
    other = tmp_path / "other"
    assert refused(scfs("pretrain", trained, "--resume", "--run.folder", other), "--resume continues", "omit")
    assert not other.exists()
    assert scfs("pretrain", trained, "--resume", "--run.folder", trained)[0] == 0


@pytest.mark.parametrize("flags", [[], ["--resume"], ["--dry-run"]])
def test_the_folder_of_another_command_is_no_run(scfs, trained, photos, flags):
    quick = ("--size", 32, "--workers", 0, "--epochs", 1, "--batch_size", 4, "--rates", 0.1, "--weight_decays", 0)
    assert scfs("finetune", trained, "--data", photos, *quick)[0] == 0
    answer = scfs("pretrain", trained / "finetune", *flags)
    assert refused(answer, "is not a pre-training run", f"--init {trained / 'finetune'}")


def test_images_given_twice(scfs, photos, tmp_path):
    answer = scfs("pretrain", photos, "--data.source", "scenes", "--run.folder", tmp_path / "run")
    assert refused(answer, f"{photos} and --data.source scenes both name images; give one")


@pytest.mark.parametrize("batch_size", [1, 2, 128])
def test_a_single_image(scfs, tiny_recipe, photos, tmp_path, batch_size):
    for image in [*photos.rglob("*.jpg")][1:]:
        image.unlink()
    flags = ("--optim.batch_size", batch_size, "--run.folder", tmp_path / "run")
    assert refused(scfs("pretrain", tiny_recipe, "--data.source", photos, *flags), "has 1 image", "at least two")


@pytest.mark.parametrize("name", ["b.pt2", "b.onnx"])
def test_exported_programs_hold_no_weights(scfs, tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 a program")
    assert refused(scfs("knn", tmp_path / name, "--data", "scenes:4,4"), "is an exported program", ".safetensors")


def remove_checkpoints(run):
    for name in ("last.pt", "last.previous.pt", "checkpoints.json"):
        (run / name).unlink()


def test_resume_without_the_checkpoint_keeps_the_history(scfs, trained):
    remove_checkpoints(trained)
    before = content_of(trained)
    assert refused(scfs("pretrain", trained, "--resume"), "was trained for 6 steps", "last.pt is gone", "restore it")
    assert content_of(trained) == before


def test_resume_before_the_first_checkpoint(scfs, trained):
    """A run that was killed in its first steps starts again."""
    remove_checkpoints(trained)
    log = trained / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))
    assert scfs("pretrain", trained, "--resume")[0] == 0
    assert len(layout.read_metrics(trained)) == 6


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-500])])
def test_a_damaged_checkpoint_is_replaced_by_the_one_before(scfs, trained, damage):
    expected = checkpoint.load(trained / "last.pt")["method"]
    damage(trained / "last.pt")
    code, out, _ = scfs("pretrain", trained, "--resume")
    assert code == 0
    assert "resuming from the checkpoint before it" in out.replace("\n", " ")
    found = checkpoint.load(trained / "last.pt")["method"]
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.fixture
def stopped(tmp_path):
    """A run that stopped after 3 of its 6 steps."""
    with tarfile.open(Path(__file__).parent / "runs" / "run_of_0.1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "old_run"


def test_metrics_that_are_not_text(scfs, stopped):
    (stopped / "metrics.jsonl").write_bytes(bytes(range(256)))
    for command in (("pretrain", stopped, "--resume"), ("report", stopped)):
        assert refused(scfs(*command), "metrics.jsonl is damaged", "move it away")


def test_metrics_that_are_a_folder(scfs, stopped):
    (stopped / "metrics.jsonl").unlink()
    (stopped / "metrics.jsonl").mkdir()
    assert refused(scfs("report", stopped), "metrics.jsonl is a folder; move it away")


def test_metrics_that_are_no_rows_are_skipped(scfs, stopped):
    log = stopped / "metrics.jsonl"
    rows = [row for row in log.read_text().splitlines() if json.loads(row)["step"] <= 3]
    log.write_text("\n".join([*rows, "3", "[]", '{"step": "x"}', '{"st']))
    assert scfs("pretrain", stopped, "--resume")[0] == 0
    after = log.read_text().splitlines()
    assert after[: len(rows)] == rows
    assert [json.loads(row)["step"] for row in after[len(rows) :]] == [4, 5, 6, 6]


def test_a_foreign_checkpoint_is_not_advised_to_be_loaded(scfs, trained):
    remove_checkpoints(trained)
    torch.save({"scfs_checkpoint": 1, "path": Path("x")}, trained / "last.pt")
    answer = scfs("pretrain", trained, "--resume")
    assert refused(answer, "last.pt is not a checkpoint of scfs; restore")
    assert "option" not in answer[2]


def test_a_run_folder_removed_during_the_run(scfs, tiny_recipe, tmp_path, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setattr("scfs.pretraining.job.Health.check", lambda *_: shutil.rmtree(run) or [])
    assert refused(scfs("pretrain", tiny_recipe, "--run.folder", run), f"Run folder {run} was removed during the run")


def test_a_disk_that_is_full_at_the_start(scfs, tiny_recipe, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("scfs.runs.files.os.fsync", full)
    answer = scfs("pretrain", tiny_recipe, "--run.folder", tmp_path / "run")
    assert refused(answer, f"{tmp_path / 'run' / 'settings.toml'}: No space left on device; free some space")
    assert not (tmp_path / "run").exists()


def test_one_class_is_not_scored(scfs, photos):
    shutil.rmtree(photos / "dogs")
    (photos / "cats").rename(photos / "same")
    for command in ("knn", "linear", "finetune"):
        assert refused(scfs(command, "random:resnet10_half", "--data", photos), "of one class ('same')", "100 %")


def test_thousands_of_workers(caplog):
    most = loader.num_workers(5000, torch.device("cpu"))
    assert most == max(32, 4 * num_cores())
    assert caplog.messages == [f"5000 data loader workers are too many for {num_cores()} cores; using {most}."]
    assert loader.num_workers(3, torch.device("cpu")) == 3
    assert len(caplog.messages) == 1
    source, more_than_cores = SceneSource("val", 2), num_cores() + 1
    assert len([*loader.centre_loader(source, 8, [0], batch_size=1, workers=more_than_cores, pin=False)]) == 1


def test_a_name_that_is_too_long(scfs):
    for command in ("knn", "report", "pretrain"):
        assert refused(scfs(command, "x" * 300), "File name too long; choose a shorter name")


def test_a_folder_that_cannot_be_a_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is not a folder"):
        layout.create(tmp_path / "file", resume=True)


@pytest.mark.parametrize(
    ("error", "size"),
    [
        (MemoryError("Unable to allocate 3.5 GiB for an array"), "(could not allocate 3.5 GiB)"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"), "2.00 GiB)"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes."),
            "400 bytes)",
        ),
        (RuntimeError("[enforce fail] not enough memory: you tried to allocate 400 bytes."), "400 bytes)"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Out of memory;"),
    ],
)
def test_out_of_memory(scfs, tiny_recipe, tmp_path, monkeypatch, error, size):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("scfs.pretraining.job.prepare", fail)
    monkeypatch.setattr("scfs.evaluate.knn.job.open_eval_target", fail)
    answer = scfs("pretrain", tiny_recipe, "--run.folder", tmp_path / "run")
    assert refused(answer, "Out of memory", size, "raise optim.accumulate", "lower optim.batch_size")
    assert refused(scfs("knn", "random:resnet10_half", "--data", "scenes:8,4"), "lower the batch size")


def test_little_shared_memory(scfs, tiny_recipe, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)")

    monkeypatch.setattr("scfs.pretraining.job.prepare", fail)
    assert refused(scfs("pretrain", tiny_recipe), "Shared memory (/dev/shm)", "--shm-size")


def test_other_errors_are_not_taken_for_memory(scfs, tiny_recipe, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr("scfs.pretraining.job.prepare", fail)
    with pytest.raises(RuntimeError, match="shapes differ"):
        scfs("pretrain", tiny_recipe)


def test_more_memory_than_any_machine_has(scfs, tiny_recipe, tmp_path):
    flags = ("--method.hidden_dim", 2**31 - 1, "--method.bottleneck_dim", 2**31 - 1, "--run.folder", tmp_path / "run")
    assert refused(scfs("pretrain", tiny_recipe, *flags), "Out of memory")
    assert not (tmp_path / "run").exists()


@contextmanager
def files_limited(num_bytes):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("num_bytes", "limit"), [(2**20, "1.0 MB"), (8192, "8 kB"), (0, "0 kB")])
def test_a_limit_on_the_size_of_files(tmp_path, num_bytes, limit):
    tensor, advice = torch.zeros(2**20), rf"\(files are limited to {limit}\); raise the limit with ulimit -f"
    with files_limited(num_bytes):
        with pytest.raises(UserError, match=f"{advice} and start"):
            checkpoint.save(tmp_path / "last.pt", {"weights": tensor})
        for write in (
            lambda file: torch.save(tensor, file),
            lambda file: file.write(bytes(2**21)),
            lambda file: np.save(file, tensor.numpy()),
        ):
            with pytest.raises(UserError, match=f"new.pth {advice}"):
                write_new(tmp_path / "new.pth", write)
        with pytest.raises(UserError, match="choose a folder that exists"):
            write_new(tmp_path / "nowhere" / "new.pth", lambda _: None)
    assert not list(tmp_path.iterdir())


def test_a_limit_that_leaves_torch_no_temporary_folder(scfs, tiny_recipe, tmp_path, monkeypatch):
    """With ulimit -f 0, torch cannot even be imported: Python's tempfile tries to write."""

    def fail(*_, **__):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/var/tmp']")

    monkeypatch.setattr("scfs.pretraining.job.prepare", fail)
    words = ("pretrain", tiny_recipe, "--run.folder", tmp_path / "run")
    assert refused(scfs(*words), "No usable temporary directory found in ['/tmp', '/var/tmp']; free", "TMPDIR")
    with files_limited(0):
        assert refused(scfs(*words), "files are limited to 0 kB; raise the limit with ulimit -f")


def test_workers_need_files_of_some_size_for_shared_memory(caplog):
    with files_limited(2**20):
        assert loader.num_workers("auto", torch.device("cpu")) == loader.num_workers(3, torch.device("cpu")) == 0
        assert loader.num_workers(0, torch.device("cpu")) == 0
    assert caplog.messages == ["Files are limited to 1.0 MB (ulimit -f): images are loaded without workers."] * 2
    assert loader.num_workers(3, torch.device("cpu")) == 3


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    log = JsonLines(tmp_path, 0)
    with files_limited(8), pytest.raises(OSError, match=r"metrics\.jsonl"):
        log.write({"step": 1, "loss": 0.5})


def test_a_checkpoint_in_a_removed_folder(tmp_path):
    with pytest.raises(UserError, match=r"its folder was removed\); restore it and start again"):
        checkpoint.save(tmp_path / "gone" / "last.pt", {"step": 1})


def test_a_parquet_file_of_nulls(scfs, tiny_recipe, tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"bytes": None, "path": f"{i}.jpg"} for i in range(8)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    parquet.write_table(pa.table({"image": pa.array(rows, kind)}), tmp_path / "nulls.parquet")
    answer = scfs(
        "pretrain", tiny_recipe, "--data.source", tmp_path / "nulls.parquet", "--run.folder", tmp_path / "run"
    )
    assert refused(answer, "every row of its column 'image.bytes' is null")
    assert not (tmp_path / "run").exists()
