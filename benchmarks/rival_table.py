"""The tables and the plot of rivals.py, from its records."""

import argparse
import statistics
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rival_records import CHANGED, METHODS, PLAN, SIZES, Record, best_factor, is_current, read_records
from rival_settings import RIVAL_VIEWS

from scfs.markdown import markdown_table

TICKS = (2.5, 5, 10, 20, 30, 60, 90)  # minutes
PLOTTED = ("scfs", "dino", "dino-multilayer", *RIVAL_VIEWS)


def table(args: argparse.Namespace) -> None:
    """Means over seeds for every data set and budget, best first, and the plot of accuracy against minutes."""
    recorded = [record for record in read_records(args.records) if record["precision"] == args.precision]
    every = [record for record in recorded if is_current(record) != args.earlier]
    chosen = {method: best_factor(recorded, method) for method in METHODS}
    records = [r for r in every if not r["held_out"] and r["lr_factor"] == chosen.get(r["method"])]
    lines = []
    groups = sorted(
        {(r["data"], r["minutes"]) for r in records}, key=lambda group: (list(SIZES).index(group[0]), group[1])
    )
    for data, minutes in groups:
        rows = []
        for method in METHODS:
            runs = [r for r in records if (r["data"], r["minutes"], r["method"]) == (data, minutes, method)]
            if runs:
                rows.append((statistics.mean(r["knn"] for r in runs), method, runs))
        for _, method, runs in sorted(rows, key=lambda row: -row[0]):
            took = statistics.mean(r.get("reference_minutes", r["processor_minutes"]) for r in runs)
            epochs = statistics.mean(r["epochs"] for r in runs)
            cells = [shown(runs, "knn"), shown(runs, "linear"), f"{took:.1f}", f"{epochs:.0f}"]
            lines.append([data, f"{minutes:g}", method, *cells, str(len(runs))])
    head = ("data", "budget", "method", "k-NN %", "linear %", "minutes", "epochs", "seeds")
    print(markdown_table(head, lines))
    if not args.earlier:
        print(f"\nPlanned and not run: {missing(records) or 'nothing'}.")
    print(f"\n{changes_table(every)}\n")
    for indicator in ("rankme", "spread"):
        print(f"{indicator}: {rank_correlations(every, indicator)}")
    if args.plot:
        plot(records, args.plot)


def missing(records: list[Record]) -> str:
    """What of the plan is not in the records: "pets 10 min: byol, simclr (seed 1); ..."."""
    done = {(r["data"], r["minutes"], r["method"], r["seed"]) for r in records}
    absent: dict[str, dict[str, None]] = {}  # without repetitions, in the order of the plan
    for data, minutes, method, seed in PLAN:
        if (data, minutes, method, seed) not in done:
            names = absent.setdefault(f"{data} {minutes:g} min", {})
            names[f"{method} (seed {seed})" if seed else method] = None
    return "; ".join(f"{budget}: {', '.join(names)}" for budget, names in absent.items())


def changes_table(records: list[Record]) -> str:
    """The effect of each change on held-out train photos, worst first, on each data set at each budget."""
    runs = [r for r in records if r["held_out"] and r["lr_factor"] == 1.0]
    lines = []
    for data, minutes in sorted({(r["data"], r["minutes"]) for r in runs}):
        scores: dict[str, list[float]] = {}
        for r in runs:
            if (r["data"], r["minutes"]) == (data, minutes) and r["method"] in ("scfs", *CHANGED):
                scores.setdefault(r["method"], []).append(100 * r["scores"][-1]["knn"])
        means = {method: statistics.mean(values) for method, values in scores.items()}
        for method, mean in sorted(means.items(), key=lambda item: item[1]) if "scfs" in means else []:
            gain = f"{mean - means['scfs']:+.1f}"
            lines.append([data, f"{minutes:g}", method, f"{mean:.1f}", gain, str(len(scores[method]))])
    return markdown_table(("data", "minutes", "settings", "k-NN %", "against scfs", "seeds"), lines)


def rank_correlations(records: list[Record], indicator: str) -> str:
    """Spearman's correlation of a label-free indicator with k-NN: over the ends of runs, and within runs."""
    scored = [r for r in records if r["data"] == "imagenette" and not r["held_out"]]
    groups = {
        "all": scored,
        "ours": [r for r in scored if r["method"] not in RIVAL_VIEWS],
        "the others": [r for r in scored if r["method"] in RIVAL_VIEWS],
    }
    parts = [
        f"{len(runs)} runs ({name}) {spearman([r['scores'][-1] for r in runs], indicator):.2f}"
        for name, runs in groups.items()
        if len(runs) > 2
    ]
    if within := [spearman(r["scores"], indicator) for r in records if len(r["scores"]) > 2]:
        parts.append(f"within a run {statistics.mean(within):.2f} on average")
    return "; ".join(parts) or "too few runs"


def spearman(scores: list[Record], indicator: str) -> float:
    ranks = [torch.tensor([score[name] for score in scores]).argsort().argsort().float() for name in (indicator, "knn")]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


def shown(runs: list[Record], score: str) -> str:
    """The mean and, for one seed, its 95 % interval over images; for several, the lowest and highest."""
    values = [100 * run[score] for run in runs]
    low, high = (min(values), max(values)) if len(runs) > 1 else (100 * end for end in runs[0][f"{score}_interval"])
    return f"{statistics.mean(values):.1f} ({low:.1f}-{high:.1f})"


def plot(records: list[Record], path: Path) -> None:
    """k-NN on Imagenette during runs of every budget, against CPU minutes; a run ends with a dot."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for number, method in enumerate(PLOTTED):
        runs = [r for r in records if r["method"] == method and r["data"] == "imagenette"]
        for budget in sorted({r["minutes"] for r in runs}):
            curves = [r["scores"] for r in runs if r["minutes"] == budget]
            minutes, knn = (
                [statistics.mean(curve[i][name] for curve in curves) for i in range(len(curves[0]))]
                for name in ("minutes", "knn")
            )
            style = {"color": f"C{number}", "lw": 2.5 if method == "scfs" else 1.2, "markevery": [-1]}
            label = method if budget == min(r["minutes"] for r in runs) else None
            axes.plot(minutes, [100 * value for value in knn], marker="o", label=label, **style)
    axes.set(xlabel="CPU minutes on one core", ylabel="k-NN top-1 %, 96 px", title="Imagenette", xscale="log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=2)
    figure.savefig(path, dpi=120)
