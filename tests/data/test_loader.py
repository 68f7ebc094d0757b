import pytest
import torch

from scfs.data.loader import StepSampler, ViewDataset, epoch_order, labelled_loader, num_cores, num_workers, view_loader
from scfs.data.sources import SceneSource, read_folder
from scfs.data.views import MultiCrop
from scfs.errors import UserError

IMAGES, BATCH, EPOCHS = 11, 4, 2  # two steps an epoch, three images left over


def batches(*, workers=0, start_step=0, seed=0):
    views = MultiCrop(
        global_size=16, local_size=8, num_local_views=2, global_scale=(0.25, 1.0), local_scale=(0.05, 0.25)
    )
    dataset = ViewDataset(SceneSource("train", IMAGES), views, seed)
    sampler = StepSampler(IMAGES, BATCH, EPOCHS, seed=seed, start_step=start_step)
    return list(view_loader(dataset, sampler, workers=workers, pin=False))


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
    first, second = epoch_order(0, 0, IMAGES), epoch_order(0, 1, IMAGES)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(IMAGES))
    views = MultiCrop(
        global_size=16, local_size=8, num_local_views=0, global_scale=(0.25, 1.0), local_scale=(0.05, 0.25)
    )
    dataset = ViewDataset(SceneSource("train", IMAGES), views, seed=0)
    assert not torch.equal(dataset[0, 3].global_views, dataset[1, 3].global_views)


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
def test_an_unreadable_image_is_one_sentence(photos, workers):
    (photos / "dogs" / "3.jpg").write_bytes(b"no image")
    with pytest.raises(UserError) as caught:
        list(labelled_loader(read_folder(photos), 16, batch_size=4, workers=workers, pin=False))
    assert str(caught.value).startswith("Cannot read image")
    assert "\n" not in str(caught.value)


def test_automatic_workers():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert 1 <= num_workers("auto", gpu) <= 8
    assert num_workers("auto", cpu) == max(1, num_cores() // 4)
    assert num_workers(3, cpu) == num_workers(3, gpu) == 3
