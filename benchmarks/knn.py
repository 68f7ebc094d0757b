"""Nearest neighbours at a tenth of ImageNet's size, compared with faiss's flat index.

    python benchmarks/knn.py [--keys 128116] [--queries 5000] [--rounds 2]

Needs faiss (benchmarks/requirements.txt). The searches alternate, each in its own process, on the same random
features. Times are those of the search alone (for faiss including adding the keys), peaks those of the whole process.
"""

import argparse
import multiprocessing
import os
import statistics
import time

os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # as `scfs` sets it

import numpy as np
import torch
from rich.console import Console

from scfs.bench.page import show
from scfs.distributed import num_cores
from scfs.evaluate.knn.neighbours import nearest
from scfs.training.cpu import peak_memory

DIM, K = 2048, 200


def search(name: str, num_keys: int, num_queries: int) -> tuple[float, float, np.ndarray]:
    """Seconds, GB at the peak, and the indices of the first queries' neighbours."""
    torch.set_num_threads(num_cores())
    torch.manual_seed(0)
    keys, queries = torch.randn(num_keys, DIM), torch.randn(num_queries, DIM)
    start = time.perf_counter()
    if name == "scfs":
        found = torch.cat([indices for _, _, indices in nearest(queries, keys, K)]).numpy()
    else:
        import faiss

        faiss.omp_set_num_threads(num_cores())
        units = [torch.nn.functional.normalize(each, dim=-1).numpy() for each in (keys, queries)]
        index = faiss.IndexFlatIP(DIM)
        index.add(units[0])
        _, found = index.search(units[1], K)
    seconds = time.perf_counter() - start
    return seconds, peak_memory(torch.device("cpu")) / 1e9, found[:100]


def main() -> None:
    """Time both alternately and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=128_116)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--write", default="", help="Markdown page to add the table to")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {"faiss's flat index": [], "scfs": []}
    peaks, found = {}, {}
    for _ in range(options.rounds):
        for name in seconds:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                took, peaks[name], found[name] = pool.apply(search, (name, options.keys, options.queries))
            seconds[name].append(took)
    assert np.mean(found["scfs"] == found["faiss's flat index"]) > 0.999  # rounding may swap near ties
    base = statistics.median(seconds["faiss's flat index"])
    rows = [
        {
            "search": name,
            "seconds": f"{statistics.median(each):.1f}",
            "vs faiss": f"{statistics.median(each) / base:.2f}",
            "peak GB": f"{peaks[name]:.2f}",
        }
        for name, each in seconds.items()
    ]
    size = f"{options.keys:,} x {DIM} keys ({options.keys * DIM * 4 / 1e9:.2f} GB), {options.queries:,} queries"
    show(Console(), f"{K} nearest of {size}, {num_cores()} threads", rows, write=options.write)


if __name__ == "__main__":
    main()
