"""Does pre-training from existing weights (`--init`) improve them, and at which learning rate of the backbone?

    python benchmarks/adapt.py run --weights imagenette=FILE --data pets=FOLDER --scales 0.1 0.3 1 --held-out
    python benchmarks/adapt.py run --weights imagenette=FILE random --data pets=FOLDER --scales 0.3
    python benchmarks/adapt.py table

Trains `cpu_imagenette` on the train photos of each FOLDER from each FILE (weights of its network, resnet10_half;
`random` needs none), with each scale as `optim.backbone_lr_scale`, and scores the weights before (scale 0) and after on
the val photos: k-NN and cached linear. With --held-out, on every fifth train photo instead, which is not trained on: to
choose a scale. Runs in the records are skipped, and interrupted ones are resumed.
"""

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from rival_records import SIZES, Record, read_records, same_work
from rival_table import shown
from rivals import data_named

import scfs
from scfs.data.selection import every_fifth
from scfs.data.sources import open_labelled
from scfs.evaluate.knn.neighbours import HEADLINE_K
from scfs.markdown import markdown_table
from scfs.runs.layout import commit_of
from scfs.runs.metric import by_name

RECORDS = Path(__file__).parent / "records" / "adapt.jsonl"
BACKBONE = "resnet10_half"
RANDOM = "random"
LENGTH = ("steps", "images", "batch_size")  # of a training


def run_all(args: argparse.Namespace) -> None:
    """Train and score what the flags ask for and the records do not have."""
    for data, weights, scale in itertools.product(args.data, args.weights, [0.0, *args.scales]):
        (data_name, folder), (weights_name, file) = data_named(data), data_named(weights)
        length = {name: getattr(args, name) if scale else 0 for name in LENGTH}
        work = {"weights": weights_name, "data": data_name, "held_out": args.held_out, "scale": scale, **length}
        if any(same_work(record, work) for record in read_records(args.records)):
            continue
        commit = commit_of(Path(scfs.__file__).parents[1])
        target = adapted(work, file, folder, args.folder) if scale else weights_file(file)
        record = {**work, **scores(str(target), data_name, folder, args.held_out), "commit": commit}
        print(json.dumps(record), flush=True)
        with args.records.open("a") as lines:
            lines.write(json.dumps(record) + "\n")


def weights_file(file: str) -> str:
    return f"random:{BACKBONE}" if file == RANDOM else file


def adapted(work: Record, file: str, folder: str, runs: Path) -> Path:
    """Pre-train from a file, or continue to; returns the run folder."""
    run = runs / "-".join(str(value) for value in work.values())
    photos = train_photos(folder, held_out=work["held_out"], count=work["images"])
    runs.mkdir(parents=True, exist_ok=True)
    listed = run.with_name(f"{run.name}.txt")
    listed.write_text("".join(f"{photo}\n" for photo in photos))
    return scfs.pretrain(
        "cpu_imagenette",
        data={"source": str(listed), "workers": 0},
        backbone={"init": "" if file == RANDOM else file},
        optim={
            "epochs": max(1, round(work["steps"] / (len(photos) // work["batch_size"]))),
            "batch_size": work["batch_size"],
            "backbone_lr_scale": work["scale"],
        },
        run={"folder": str(run), "threads": 1, "device": "cpu", "knn_every_epochs": 0},
        resume=True,
    )


def train_photos(folder: str, *, held_out: bool, count: int) -> Sequence[str]:
    """The absolute paths of the photos to train on: `count` of them, evenly spaced, or all if it is 0."""
    source, _ = open_labelled(folder)
    if held_out:
        source, _ = every_fifth(source)
    used = count or len(source)
    return [str(Path(source.name(i * len(source) // used)).resolve()) for i in range(used)]


def scored_data(folder: str, *, held_out: bool) -> str:
    """What evaluations are given; without a val folder, they score every fifth photo."""
    return f"{folder}/train" if held_out else folder


def scores(target: str, data_name: str, folder: str, held_out: bool) -> Record:
    """k-NN and cached linear top-1 with 95 % intervals, on val or on every fifth train photo."""
    common = {"data": scored_data(folder, held_out=held_out), "size": SIZES[data_name], "workers": 0, "device": "cpu"}
    common |= {"backbone": BACKBONE} if target.endswith(".pth") else {}
    neighbours = by_name(scfs.knn(target, **common, k=HEADLINE_K))[f"k={HEADLINE_K} top-1"]
    probe = by_name(scfs.linear(target, **common, cached=True))["top-1"]
    return {
        "knn": neighbours.value,
        "knn_interval": neighbours.interval,
        "linear": probe.value,
        "linear_interval": probe.interval,
    }


def table(args: argparse.Namespace) -> None:
    """Scores before and after, for every set of weights and data."""
    records, lines = read_records(args.records), []
    for record in records:
        if not record["scale"]:
            continue
        before = next(
            r
            for r in records
            if not r["scale"] and all(r[name] == record[name] for name in ("weights", "data", "held_out"))
        )
        where = "held-out train" if record["held_out"] else "val"
        cells = [shown([r], score) for score in ("knn", "linear") for r in (before, record)]
        lines.append(
            [record["weights"], record["data"], str(record["images"] or "all"), where, f"{record['scale']:g}", *cells]
        )
    head = ("weights", "adapted to", "photos", "scored on", "scale", "k-NN before", "after", "linear before", "after")
    print(markdown_table(head, sorted(lines)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run", help="train and score what is not yet in the records")
    runner.add_argument("--weights", nargs="+", required=True, help="NAME=FILE, or random")
    runner.add_argument("--data", nargs="+", required=True, help="imagenette=FOLDER or pets=FOLDER")
    runner.add_argument("--scales", nargs="*", type=float, default=[])
    runner.add_argument("--held-out", action="store_true", help="score on every fifth train photo")
    runner.add_argument("--steps", type=int, default=190, help="optimizer steps, to whole epochs: about 4 minutes")
    runner.add_argument("--images", type=int, default=0, help="train on so many photos; 0: all")
    runner.add_argument("--batch-size", type=int, default=256)
    runner.add_argument("--folder", type=Path, default=Path("runs/adapt"), help="folder of runs")
    runner.set_defaults(job=run_all)
    writer = commands.add_parser("table", help="print the table")
    writer.set_defaults(job=table)
    for each in (runner, writer):
        each.add_argument("--records", type=Path, default=RECORDS, help="file with one line per finished run")
    args = parser.parse_args()
    for data in args.data if args.job is run_all else []:
        name, folder = data_named(data)
        if name not in SIZES or not all((Path(folder) / split).is_dir() for split in ("train", "val")):
            parser.error(f"--data {data}: give imagenette=FOLDER or pets=FOLDER, a folder with train and val")
    for weights in args.weights if args.job is run_all else []:
        if weights != RANDOM and not Path(data_named(weights)[1]).exists():
            parser.error(f"--weights {weights}: give NAME=FILE with a file or run folder that exists, or {RANDOM}")
    if args.job is run_all and 0 < args.images < args.batch_size:
        parser.error(f"--images {args.images} is less than a batch; lower --batch-size")
    args.job(args)


if __name__ == "__main__":
    main()
