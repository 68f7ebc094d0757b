import os
import signal
import threading
import time
from multiprocessing import Process, active_children
from multiprocessing.connection import wait

import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from scfs.data.annotated_loader import AnnotatedDataset, ScoredDataset
from scfs.data.decode import Unreadable
from scfs.data.files import read_folder
from scfs.data.loader import (
    CentreDataset,
    CropDataset,
    StepSampler,
    ViewDataset,
    _worker_death,
    centre_loader,
    load,
    num_workers,
    view_loader,
)
from scfs.data.order import EpochOrder
from scfs.data.scene_source import SceneSource
from scfs.data.segmentation import PaintedSource
from scfs.data.segmented_loader import SegmentedDataset
from scfs.data.unreadable import readable_image
from scfs.data.views import MultiCrop
from scfs.distributed import num_cores
from scfs.errors import UserError, WorkerDiedError

IMAGES, BATCH, EPOCHS = 11, 4, 2  # two steps per epoch, three images left over


def batches(*, workers=0, start_step=0, seed=0):
    views = MultiCrop(
        global_size=16, local_size=8, num_local_views=2, global_scale=(0.25, 1.0), local_scale=(0.05, 0.25)
    )
    dataset = ViewDataset(SceneSource("train", IMAGES), views, seed)
    sampler = StepSampler(IMAGES, BATCH, EPOCHS, seed=seed, start_step=start_step)
    return [part.views for [part] in view_loader(dataset, sampler, workers=workers, pin=False)]


def same(ours, theirs):
    return len(ours) == len(theirs) and all(
        torch.equal(a, b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_count_changes_nothing(workers):
    assert same(batches(workers=workers), batches())


@pytest.mark.parametrize("start_step", [1, 2, 3])
def test_a_restart_changes_nothing(start_step):
    assert same(batches(start_step=start_step), batches()[start_step:])


def test_seeds_differ():
    assert not same(batches(seed=1), batches())


def test_epochs_differ_in_order_and_in_views():
    first, second = (EpochOrder(0, epoch, IMAGES)[:] for epoch in range(2))
    assert first != second
    assert sorted(first) == sorted(second) == list(range(IMAGES))
    views = MultiCrop(
        global_size=16, local_size=8, num_local_views=0, global_scale=(0.25, 1.0), local_scale=(0.05, 0.25)
    )
    dataset = ViewDataset(SceneSource("train", IMAGES), views, seed=0)
    assert not torch.equal(dataset[0, 3].views.global_views, dataset[1, 3].views.global_views)


def test_every_epoch_sees_distinct_images_and_drops_the_rest():
    steps = list(StepSampler(IMAGES, BATCH, EPOCHS, seed=0))
    assert len(steps) == len(StepSampler(IMAGES, BATCH, EPOCHS, seed=0)) == 4
    for epoch in range(EPOCHS):
        keys = [key for step in steps[2 * epoch : 2 * epoch + 2] for key in step]
        assert {key[0] for key in keys} == {epoch}
        assert len({key[1] for key in keys}) == 2 * BATCH


def test_a_loader_leaves_torchs_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    batches(workers=1)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_left_out_of_scores(photos, workers):
    (photos / "dogs" / "3.jpg").write_bytes(b"no image")
    source = read_folder(photos)
    found = list(centre_loader(source, 16, range(1, 12), batch_size=4, workers=workers, pin=False))
    assert torch.cat([batch.indices for batch in found]).tolist() == list(range(1, 12))
    assert torch.cat([batch.labels for batch in found]).tolist() == [0] * 5 + [1] * 6
    problems = [problem for batch in found for problem in batch.unreadable]
    assert [i for i, problem in enumerate(problems, start=1) if problem] == [9]
    assert "3.jpg" in problems[8]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_replaced_by_the_next(photos, workers):
    for name in ("0.jpg", "5.jpg"):  # the first and the last of the second class
        (photos / "dogs" / name).write_bytes(b"no image")
    source = read_folder(photos)
    assert readable_image(source, 6)[0] == source.image(7)
    last, index, problems = readable_image(source, 11)
    assert (last, index) == (source.image(0), 0)
    assert len(problems) == 1
    assert "5.jpg" in problems[0]
    views = MultiCrop(
        global_size=16, local_size=8, num_local_views=0, global_scale=(0.25, 1.0), local_scale=(0.05, 0.25)
    )
    loader = view_loader(ViewDataset(source, views, 0), StepSampler(12, 4, 1, seed=0), workers=workers, pin=False)
    named = [name for parts in loader for part in parts for name in part.unreadable]
    assert len(named) == 2
    assert {"0.jpg" in name for name in named} == {True, False}


def test_a_large_damaged_part_of_the_data_is_skipped():
    """Damage clusters: a copy that was interrupted leaves one part of the folders empty."""

    class Damaged:
        classes = ()

        def __len__(self):
            return 5000

        def image(self, index):
            if index < 1000:
                raise Unreadable(f"{index}.jpg")
            return index

        def name(self, index):
            return f"{index}.jpg"

    for index in (0, 500, 999):
        image, found, problems = readable_image(Damaged(), index)
        assert image == found >= 1000
        assert 0 < len(problems) < 25
    assert readable_image(Damaged(), 2000)[1:] == (2000, [])
    assert readable_image(Damaged(), 998)[1] == 1000  # a neighbour, if it can be read


def test_only_unreadable_images_is_an_error(photos):
    for path in photos.rglob("*.jpg"):
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match="None of 12 images can be read"):
        readable_image(read_folder(photos), 3)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_processes_and_micro_batches_cover_each_batch(micro_batches):
    whole = list(StepSampler(23, 8, 2, seed=0, start_step=1))
    shards = [
        list(StepSampler(23, 8, 2, seed=0, start_step=1, micro_batches=micro_batches, rank=r, world_size=2))
        for r in (0, 1)
    ]
    for step, batch in enumerate(whole):
        first = step * micro_batches
        found = [key for i in range(first, first + micro_batches) for shard in shards for key in shard[i]]
        assert found == batch
    assert {len(keys) for shard in shards for keys in shard} == {4 // micro_batches}
    assert len(StepSampler(23, 8, 2, seed=0, start_step=1, micro_batches=micro_batches)) == 3 * micro_batches


def test_automatic_workers():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert 1 <= num_workers("auto", gpu) <= 8
    assert num_workers("auto", cpu) == max(1, num_cores() // 4)
    assert num_workers(3, cpu) == num_workers(3, gpu) == 3


class FailingDataset(Dataset):
    """In a worker, the sample 3 fails, and those after it take longer than a test may."""

    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 20

    def __getitem__(self, index):
        if index == 3 and self.how == "memory":
            raise MemoryError("no memory left")
        if index == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if index > 3:
            time.sleep(600)
        return index


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("memory", MemoryError, "no memory left"),
        ("killed", UserError, r"worker \d+ exited unexpectedly; if memory ran out"),
    ],
)
def test_a_worker_that_fails_ends_the_others(how, error, message):
    """They ignore SIGTERM, so that a cluster manager's does not end them before the run has saved its state."""
    start, before = time.monotonic(), {*active_children()}
    with pytest.raises(error, match=message):
        list(load(FailingDataset(how), workers=3, pin=False, batch_size=1))
    assert {*active_children()} <= before
    assert time.monotonic() - start < 60
    assert list(load(range(3), workers=1, pin=False, batch_size=1)) == [0, 1, 2]


def test_a_dead_worker_is_reported_when_a_batch_is_waited_for_and_nowhere_else(monkeypatch):
    """Not while a checkpoint is written, say: torch's handler of the signal would raise at any line."""
    monkeypatch.setattr("torch.utils.data._utils.signal_handling._SIGCHLD_handler_set", False)
    handler, before = signal.getsignal(signal.SIGCHLD), {*active_children()}
    batches = load(range(20), workers=1, pin=False, batch_size=1)
    next(batches)
    (worker,) = {*active_children()} - before
    worker.kill()
    wait([worker.sentinel])
    assert signal.getsignal(signal.SIGCHLD) is handler
    with pytest.raises(WorkerDiedError, match=str(worker.pid)):
        list(batches)


@pytest.mark.parametrize(
    "message",
    [
        "unable to allocate shared memory(shm) for file </torch_12_3>: No space left on device (28)",
        "DataLoader worker (pid 5) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
        "shared memory.",
    ],
)
def test_little_shared_memory_is_named(message, monkeypatch):
    """As in containers, by default."""

    def fail(*_):
        raise RuntimeError(message)

    monkeypatch.setattr("torch.utils.data.dataloader._BaseDataLoaderIter.__next__", fail)
    with pytest.raises(UserError, match=r"^Shared memory \(/dev/shm\).* is probably too small; .*--shm-size"):
        list(load(range(4), workers=0, pin=False, batch_size=1))


def test_the_death_of_a_worker_may_end_the_thread_that_pins_batches():
    """Which only says that it ended; that needs a GPU."""
    worker = Process(target=int)
    worker.start()
    worker.join()
    death = _worker_death(RuntimeError("Pin memory thread exited unexpectedly"), [worker])
    assert death is not None
    assert f"worker {worker.pid} exited unexpectedly" in death


class LostBatch:
    """Fails when the main process receives it, as a tensor does whose worker was killed meanwhile."""

    def __reduce__(self):
        return lose, ()


def lose():
    raise ConnectionResetError("Connection reset by peer")


class LosingDataset(Dataset):
    """Its sample 1 is lost; a second later its worker is killed, or not."""

    def __init__(self, *, killed):
        self.killed = killed

    def __len__(self):
        return 2

    def __getitem__(self, index):
        if index == 1 and self.killed:
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return LostBatch() if index == 1 else index


def test_a_worker_killed_while_it_hands_over_a_batch():
    with pytest.raises(WorkerDiedError, match=r"worker \d+ exited unexpectedly; if memory ran out"):
        list(load(LosingDataset(killed=True), workers=2, pin=False, batch_size=None))


def test_a_lost_connection_of_living_workers_is_not_their_death(monkeypatch):
    monkeypatch.setattr("scfs.data.loader.DEATH_SECONDS", 0.1)
    with pytest.raises(ConnectionResetError):
        list(load(LosingDataset(killed=False), workers=2, pin=False, batch_size=None))


class OddSource(SceneSource):
    """Its images can be decoded, and the first can not be cropped."""

    def image(self, index):
        return super().image(index) if index else "not an image"


def datasets(source):
    views = MultiCrop(global_size=16, local_size=8, num_local_views=2, global_scale=(0.2, 1), local_scale=(0.1, 0.2))
    return {
        "views": (ViewDataset(source, views, 0), (0, 0)),
        "crops": (CropDataset(source, 16, 0), (0, 0)),
        "centres": (CentreDataset(source, 16, range(3)), 0),
        "annotated": (AnnotatedDataset(source, 0, with_masks=True), (0, 0)),
        "scored": (ScoredDataset(source, range(3)), 0),
        "segmented": (SegmentedDataset(PaintedSource(source, origin="odd"), 16), 0),
    }


@pytest.mark.parametrize("kind", ["views", "crops", "centres", "annotated", "scored", "segmented"])
def test_whatever_goes_wrong_with_a_view_makes_its_image_unreadable(kind):
    dataset, key = datasets(OddSource("train", 3))[kind]
    assert "Cannot read image scenes/train/0: " in str(dataset[key][-1])


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("not enough memory"), KeyboardInterrupt(), UserError("!")]
)
def test_what_is_not_about_one_image_is_passed_on(monkeypatch, error):
    source = SceneSource("train", 3)

    def fail(_):
        raise error

    monkeypatch.setattr(source, "image", fail)
    for dataset, key in datasets(source).values():
        with pytest.raises(type(error)):
            dataset[key]


def test_a_line_of_pixels_is_left_out_by_detectors(monkeypatch):
    source = SceneSource("train", 3)
    monkeypatch.setattr(source, "image", lambda _: Image.new("RGB", (1, 5000)))
    assert "1 x 5000 pixels are too narrow for a detector" in ScoredDataset(source, [0])[0].unreadable
