"""Features stay sharded over processes: what two processes find equals what one finds."""

import os
import socket
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp

from scfs import distributed
from scfs.cli import main
from scfs.evaluate import embed_parts
from scfs.evaluate.features import Extracted, LabelledFeatures, whole
from scfs.evaluate.knn.neighbours import _neighbours, knn_accuracy, nearest
from scfs.evaluate.sharding import in_order
from scfs.runs import checkpoint
from scfs.runs.results import read_results

parquet = pytest.importorskip("pyarrow.parquet")

CPU = torch.device("cpu")
CLASSES, TRAIN, VAL, DIM, K = 7, 301, 45, 16, 20
COMMANDS = {
    "knn": ("--k", "1", "3"),
    "linear": ("--cached", "--epochs", "3", "--batch_size", "5", "--held_out", "0.3", "--rates", "0.1", "1.0"),
}
FAST = ("--size", "32", "--workers", "0", "--device", "cpu")


def sets():
    """Features of 1 and -1, whose cosines are multiples of 1 / 8 without rounding, so that many are equal."""
    random = torch.Generator().manual_seed(0)
    return [
        LabelledFeatures(
            torch.randint(2, (count, DIM), generator=random) * 2.0 - 1,
            torch.randint(CLASSES, (count,), generator=random),
        )
        for count in (TRAIN, VAL)
    ]


def shard(part):
    return LabelledFeatures(*(column[distributed.rank() :: distributed.world_size()] for column in part))


def found_by_processes():
    train, val = sets()
    indices = torch.arange(TRAIN)[distributed.rank() :: distributed.world_size()]
    own = shard(train)
    extracted = whole(Extracted(own, indices, ["unreadable"]))
    return {
        "accuracy": knn_accuracy(own, shard(val), num_classes=CLASSES, ks=(1, K, 1000), indices=indices),
        "neighbours": _neighbours(val.features, own, K, indices),
        "none": _neighbours(val.features, LabelledFeatures(*(each[:0] for each in own)), K, indices[:0])[0].shape,
        "whole": (*extracted.labelled, extracted.indices),
        "everywhere": in_order(indices.flip(0), *(column.flip(0) for column in own), rows=7, everywhere=True),
        "rows": distributed.gather_rows(torch.arange(distributed.rank() * 2) > 0),
        "blocks": [block[0].tolist() for block in distributed.gathered_blocks(indices[: 3 - len(indices) % 2], rows=2)],
    }


def as_process(rank: int, port: int, folder: str, run: str, photos: str) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    with distributed.process_group(CPU):
        torch.save(found_by_processes(), Path(folder) / f"{rank}.pt")
        for command, options in COMMANDS.items():
            assert main([command, run, "--data", photos, *FAST, *options]) == 0
        with patch.object(embed_parts, "PART", 5):
            assert main(["embed", run, photos, f"{folder}/features", *FAST]) == 0
        query = ("--query", f"{photos}/cats/3.jpg", "--nearest", "2")
        assert main(["embed", run, photos, f"{folder}/by_two.npy", *query, *FAST]) == 0


@pytest.fixture
def two(tmp_path, trained, photos):
    """What each of two processes found; they also evaluated the run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(as_process, args=(port, str(tmp_path), str(trained), str(photos)), nprocs=2)
    return [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


def test_equal_cosines_are_ordered_by_index():
    train, val = sets()
    products = val.features @ train.features.T
    expected = products.sort(dim=1, descending=True, stable=True).indices[:, :K]
    for key_chunk in (1000, 64, 7):
        [(_, _, found)] = nearest(val.features, train.features, K, key_chunk=key_chunk)
        assert torch.equal(found, expected)


def test_two_processes_find_what_one_finds(two, trained, photos, tmp_path):
    train, val = sets()
    expected = knn_accuracy(train, val, num_classes=CLASSES, ks=(1, K, 1000))
    cosines, classes = _neighbours(val.features, train, K, None)
    for found in two:
        assert found["accuracy"] == expected
        assert torch.equal(found["neighbours"][0], cosines)  # bit for bit
        assert torch.equal(found["neighbours"][1], classes)
        assert found["none"] == (VAL, 0)
        for ours, all_of_it in zip(found["everywhere"], (torch.arange(TRAIN), *train), strict=True):
            assert torch.equal(ours, all_of_it)
        assert found["rows"].tolist() == [False, True]
        assert found["blocks"] == [[0, 2, 1, 3], [5]]
    for ours, all_of_it in zip(two[0]["whole"], (*train, torch.arange(TRAIN)), strict=True):
        assert torch.equal(ours, all_of_it)
    assert [len(rows) for rows in two[1]["whole"]] == [0, 0, 0]
    for command, options in COMMANDS.items():
        assert main([command, str(trained), "--data", str(photos), *FAST, *options]) == 0
    by_two, by_one = read_results(trained)[:2], read_results(trained)[2:]
    assert [result.metrics for result in by_two] == [result.metrics for result in by_one]
    assert by_two[1].details == by_one[1].details  # with the confusion of classes
    probes = [checkpoint.load(trained / name)["linear"] for name in ("linear.pt", "linear-2.pt")]
    torch.testing.assert_close(probes[0]["weight"], probes[1]["weight"], rtol=1e-4, atol=1e-6)
    table = parquet.read_table(tmp_path / "features")
    assert main(["embed", str(trained), str(photos), str(tmp_path / "f.npy"), *FAST]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "by_two.npy"), np.load(tmp_path / "f.npy"), rtol=1e-4, atol=1e-6)
    assert (tmp_path / "by_two.txt").read_text() == (tmp_path / "f.txt").read_text()
    assert table["path"].to_pylist() == (tmp_path / "f.txt").read_text().splitlines()
    np.testing.assert_allclose(table["feature"].to_pylist(), np.load(tmp_path / "f.npy"), rtol=1e-4, atol=1e-6)
