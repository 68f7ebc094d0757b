"""Scaling over processes: measured on the cores of this machine, and calculated for 64 GPUs.

    python benchmarks/cluster.py [--write PAGE.md]

The measured part starts `torchrun` with one and two processes on the embedded scenes. The calculated part follows from
the constants at the top of this file; none of it was run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from scfs.backbones import Backbone
from scfs.bench.page import Row, show

RECIPE = "quickstart_paper"
# An image of 2 x 224 + 8 x 96 px through ResNet-50: student forward and backward, teacher forward.
DINO_GMAC, SEARCH_FRACTION = 51.6, 0.33  # the search adds a third
GPU_TFLOPS = 60  # assumed: what a current data-centre GPU sustains on such convolutions in bfloat16
LINK_GBPS = 25  # assumed: GB/s from each GPU to the others, across machines
HEADS = 2048 * 2048 * 2 + 2048 * 256 + 256 * 65536  # parameters of the data head
SEARCH_HEADS = sum(2 * c * 256 + 9 * 256 * 256 + c * 2048 + 2048 * 256 for c in (512, 1024, 2048))
VIEWS_MS = 6.3  # on one core, for the views of an image: `scfs bench data`
NUM_GPUS, BATCH = 64, 4096


def measured(processes: int) -> float:
    """Images per second with the settings of quickstart_paper."""
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        settings = {
            "--data.source": "scenes:960,100",
            "--optim.epochs": "1",
            "--run.knn_every_epochs": "0",
            "--run.log_every_steps": "1",
            "--run.folder": f"{temporary}/run",
        }
        flags = [word for setting in settings.items() for word in setting]
        command += ["-m", "scfs", "pretrain", str(RECIPE), *flags]
        subprocess.run(command, check=True, capture_output=True)
        lines = (Path(temporary) / "run" / "metrics.jsonl").read_text().splitlines()
    return statistics.median([json.loads(line)["images_per_second"] for line in lines][5:])


def calculated() -> list[Row]:
    """Where the time of a step goes on many GPUs, if the constants above hold."""
    backbone = sum(p.numel() for p in Backbone("resnet50").parameters())
    rows = []
    for mode, gmac, parameters in (
        ("dino", DINO_GMAC, backbone + HEADS),
        ("scfs", DINO_GMAC * (1 + SEARCH_FRACTION), backbone + HEADS + SEARCH_HEADS),
    ):
        images = BATCH // NUM_GPUS
        compute = images * 2 * gmac / (GPU_TFLOPS * 1000)  # seconds
        megabytes = 4 * parameters / 1e6
        reduce = 2 * (NUM_GPUS - 1) / NUM_GPUS * megabytes / (LINK_GBPS * 1000)
        rate = images / max(compute, reduce)
        rows.append(
            {
                "mode": mode,
                "compute, ms": f"{1000 * compute:.0f}",
                "gradients, MB": f"{megabytes:.0f}",
                "all-reduce, ms": f"{1000 * reduce:.0f}",
                "images/s per GPU": f"{rate:.0f}",
                "loader cores per GPU": f"{rate * VIEWS_MS / 1000:.1f}",
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", default="")
    write, console = parser.parse_args().write, Console()
    rates = {processes: measured(processes) for processes in (1, 2)}
    rows = [
        {"processes": str(n), "images/s": f"{rate:.0f}", "vs one": f"{rate / rates[1]:.2f}"}
        for n, rate in rates.items()
    ]
    show(console, "Processes on the same cores, settings of quickstart_paper, the same batch", rows, write=write)
    title = (
        f"Calculated, not run: {NUM_GPUS} GPUs at {GPU_TFLOPS} TFLOP/s and {LINK_GBPS} GB/s each (assumed), ResNet-50, "
        f"batch {BATCH}; the all-reduce overlaps the backward pass"
    )
    show(console, title, calculated(), write=write)


if __name__ == "__main__":
    main()
