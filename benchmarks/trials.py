"""Changes to the method that are not settings of the package: what would they gain?

    python benchmarks/trials.py run --data FOLDER --trials gradients "gradients, true positions" --seeds 0 1
    python benchmarks/trials.py table

Each trial is `cpu_imagenette` with a change to its code, in three CPU minutes of one core, scored by k-NN on every
fifth train photo of Imagenette, as `rivals.py run --changes` does. All have as many epochs as the recipe gets in that
time, unless their name says otherwise. Runs already in the records are skipped, and an interrupted one is resumed.
Needs lightly, as rivals.py does.
"""

import argparse
import itertools
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from rival_records import REFERENCE_SECONDS, Record, read_records, same_work
from torch import Tensor

import scfs.method.scfs as method
from scfs.errors import UserError
from scfs.markdown import markdown_table
from scfs.method.objectives import InfoNCE, Term
from scfs.method.scfs import SCFS
from scfs.method.search import roi_maps, search_attention, upcast

RECORDS = Path(__file__).parent / "records" / "trials.jsonl"
MINUTES = 3.0
Patch = Callable[[], AbstractContextManager[object]]


class Trial(NamedTuple):
    """A method of rivals.py and what is changed in its code."""

    method: str = "scfs"
    patches: Sequence[Patch] = ()
    step_time: float = 1.0  # relative to the recipe, to have more epochs where steps are shorter


@contextmanager
def gradients() -> Iterator[None]:
    """Gradients flow through the searched or cropped maps; never through the attention."""
    terms = SCFS._layer_terms

    def layer_terms(self: SCFS, *args: Any) -> dict[str, Term]:
        with patch.object(torch, "no_grad", nullcontext):
            return terms(self, *args)

    crop = roi_maps.__wrapped__  # type: ignore[attr-defined] - without its no_grad
    with patch.object(SCFS, "_layer_terms", layer_terms), patch.object(method, "roi_maps", crop):
        yield


def attention(of_cosines: Callable[[Tensor], Tensor], *, centred: bool = False) -> AbstractContextManager[object]:
    """Another attention, computed from the cosines (..., H, W); centred: of features without their mean."""

    @torch.no_grad()
    def attend(query_maps: Tensor, key_maps: Tensor) -> Tensor:
        queries, keys = upcast(query_maps), upcast(key_maps)
        mean = keys.mean(dim=(0, 1, 3, 4), keepdim=True) if centred else 0.0
        return of_cosines(search_attention(queries - mean, keys - mean))

    return patch.object(method, "search_attention", attend)


def over_mean(cosines: Tensor) -> Tensor:
    """Positive cosines, divided by their mean."""
    cosines = cosines.clamp(min=0)
    return cosines / cosines.mean(dim=(-2, -1), keepdim=True).clamp(min=1e-3)


def softmax(cosines: Tensor, temperature: float) -> Tensor:
    """A softmax over positions, with mean 1."""
    height, width = cosines.shape[-2:]
    return (cosines.flatten(-2) / temperature).softmax(dim=-1).unflatten(-1, (height, width)) * (height * width)


def koleo(weight: float) -> AbstractContextManager[object]:
    """DINOv2's KoLeo term on pooled features: the negative log of the distance to the nearest other image."""
    output = SCFS._output

    def with_term(self: SCFS, terms: dict[str, Term], pooled: Tensor, images: dict[str, Tensor]) -> method.Output:
        with torch.autocast("cpu", enabled=False):
            features = F.normalize(upcast(pooled), dim=-1)  # (G, B, C)
            cosines = features @ features.mT - 2 * torch.eye(features.shape[1], dtype=features.dtype)
            nearest = cosines.argmax(dim=-1, keepdim=True).expand_as(features)
            distances = (features - features.gather(1, nearest)).norm(dim=-1)
            loss = -weight * (distances + 1e-8).log().mean()
        first, term = next(iter(terms.items()))
        return output(self, terms | {first: term._replace(loss=term.loss + loss)}, pooled, images)

    return patch.object(SCFS, "_output", with_term)


def mean_target(*, of_all_views: bool) -> AbstractContextManager[object]:
    """FastSiam: the target of a view is the mean of the other global views, or of all others."""

    def views(self: InfoNCE, outputs: Tensor, targets: Tensor, _: object = None) -> Term:
        with torch.autocast("cpu", enabled=False):
            outputs, targets = (F.normalize(upcast(each), dim=-1) for each in (outputs, targets))
            averaged = outputs if of_all_views else targets
            own = [averaged[v] if v < len(averaged) else 0.0 for v in range(len(outputs))]
            means = torch.stack([F.normalize(averaged.sum(dim=0) - each, dim=-1) for each in own])  # (V, B, K)
            cosines = torch.einsum("vbk,vak->vba", outputs, means) / self.temperature
            images = torch.arange(outputs.shape[1]).expand(outputs.shape[:2])
            return Term(F.cross_entropy(cosines.flatten(0, 1), images.flatten()), targets)

    return patch.object(InfoNCE, "views", views)


def small_views_first(size: int, fraction: float) -> AbstractContextManager[object]:
    """Smaller global and local views in the first epochs, a fraction of all."""
    import rival_training  # needs lightly, as in run_all

    usual = rival_training.batches

    def batches(run: Any, source: Any, seed: int, first_step: int, epochs: int) -> Iterator[Any]:
        small = argparse.Namespace(crops={**run.crops, "global_size": size, "local_size": size // 2})
        small.batch_size = run.batch_size
        first = round(fraction * epochs) * (len(source) // run.batch_size)
        if first_step < first:
            yield from itertools.islice(usual(small, source, seed, first_step, epochs), first - first_step)
        yield from usual(run, source, seed, max(first, first_step), epochs)

    return patch.object(rival_training, "batches", batches)


POSITIONS = "scfs, positions instead of search"
TRIALS = {
    "whole maps": Trial("dino-multilayer"),
    "gradients": Trial(patches=[gradients]),
    "gradients, uniform attention": Trial(patches=[gradients, partial(attention, torch.ones_like)]),
    "gradients, attention over its mean": Trial(patches=[gradients, partial(attention, over_mean)]),
    "gradients, centred attention over its mean": Trial(
        patches=[gradients, partial(attention, over_mean, centred=True)]
    ),
    **{
        f"gradients, softmax {temperature:g}": Trial(
            patches=[gradients, partial(attention, partial(softmax, temperature=temperature))]
        )
        for temperature in (0.1, 0.03)
    },
    **{
        f"gradients, centred softmax {temperature:g}": Trial(
            patches=[gradients, partial(attention, partial(softmax, temperature=temperature), centred=True)]
        )
        for temperature in (0.2, 0.1)
    },
    "gradients, true positions": Trial(POSITIONS, [gradients]),
    "KoLeo 0.1": Trial(patches=[partial(koleo, 0.1)]),
    "mean of the other global views": Trial(patches=[partial(mean_target, of_all_views=False)]),
    "mean of all other views": Trial(patches=[partial(mean_target, of_all_views=True)]),
    "48 px first, more epochs": Trial(patches=[partial(small_views_first, 48, 0.5)], step_time=0.78),
}


def changed(trial: Trial) -> ExitStack:
    """The code with the changes of a trial, until it is closed."""
    stack = ExitStack()
    for each in trial.patches:
        stack.enter_context(each())
    return stack


def run_all(args: argparse.Namespace) -> None:
    """Train and score the trials that the records do not have."""
    import rival_training  # needs lightly, the table does not
    from rivals import chosen_precision

    from scfs.data.selection import every_fifth
    from scfs.data.sources import open_labelled

    precision = chosen_precision(args)
    train_source, val_source = every_fifth(open_labelled(args.data)[0])
    args.folder.mkdir(parents=True, exist_ok=True)
    for seed, name in itertools.product(args.seeds, args.trials):
        trial, work = TRIALS[name], {"trial": name, "seed": seed, "precision": precision}
        if any(same_work(record, work) for record in read_records(args.records)):
            continue
        run = {"data": "imagenette", "method": trial.method, "minutes": MINUTES, "size": 96, "lr_factor": 1.0}
        run |= {"seed": seed, "precision": precision, "held_out": True, "settings": name}
        state = args.folder / f"{name}-{seed}.pt"
        seconds = patch.object(rival_training, "reference_seconds", lambda *_, t=trial: REFERENCE_SECONDS * t.step_time)
        with changed(trial), seconds:
            _, found = rival_training.train(run, train_source, val_source, state)
        record = {**work, **{key: found[key] for key in ("epochs", "processor_minutes", "commit")}}
        record["knn"] = [score["knn"] for score in found["scores"]]
        with args.records.open("a") as lines:
            lines.write(json.dumps(record) + "\n")
        state.unlink(missing_ok=True)


def table(args: argparse.Namespace) -> None:
    """k-NN of every trial, best last, with the CPU minutes of its steps."""
    runs: dict[str, list[Record]] = {}
    for record in read_records(args.records):
        runs.setdefault(record["trial"], []).append(record)
    lines = []
    for name, records in sorted(runs.items(), key=lambda item: statistics.mean(r["knn"][-1] for r in item[1])):
        by_seed = sorted(records, key=lambda r: r["seed"])
        scores = ", ".join(f"{100 * r['knn'][-1]:.1f}" for r in by_seed)
        mean = f"{100 * statistics.mean(r['knn'][-1] for r in records):.1f}"
        minutes = f"{statistics.mean(r['processor_minutes'] for r in records):.2f}"
        seeds = ", ".join(str(r["seed"]) for r in by_seed)
        lines.append([name, mean, scores, seeds, str(records[0]["epochs"]), minutes])
    print(markdown_table(("trial", "k-NN %", "by seed", "seeds", "epochs", "minutes"), lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run", help="train and score what is not yet in the records")
    runner.add_argument("--data", required=True, help="the folder of Imagenette")
    runner.add_argument("--trials", nargs="+", choices=TRIALS, default=[*TRIALS], metavar="NAME")
    runner.add_argument("--seeds", nargs="+", type=int, default=[0])
    runner.add_argument("--precision", choices=["float32", "bfloat16"])
    runner.add_argument("--folder", type=Path, default=Path("runs/trials"), help="folder of unfinished runs")
    runner.set_defaults(job=run_all)
    writer = commands.add_parser("table", help="print the table")
    writer.set_defaults(job=table)
    for each in (runner, writer):
        each.add_argument("--records", type=Path, default=RECORDS, help="file with one line per finished run")
    args = parser.parse_args()
    try:
        args.job(args)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
