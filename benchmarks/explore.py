"""How long answers of `scfs explore` take: a box, searched for in an image and its neighbours.

    python benchmarks/explore.py [--run random:resnet18] [--size 224] [--clients 50] [--requests 200]

The server is a process of its own, started as users start it, and clients are threads here; both use the same cores.
Boxes move over images of which each was asked for before. Times are from the request to the last byte.
"""

import argparse
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
from rich.console import Console

from scfs.bench.page import show
from scfs.distributed import num_cores

NUM_IMAGES = 20  # that boxes are moved over


def main() -> None:
    """Measure one client, then many, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="random:resnet18")
    parser.add_argument("--data", default="scenes:200,10")
    parser.add_argument("--size", default="224")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--write", default="", help="Markdown page to add the table to")
    options = parser.parse_args()
    command = ["explore", options.run, "--data", options.data, "--size", options.size, "--sample", "200"]
    with subprocess.Popen([sys.executable, "-m", "scfs", *command], stdout=subprocess.PIPE, text=True) as server:
        try:
            address = next(line.strip() for line in server.stdout if line.startswith("http://"))
            rows = [{"clients": "1, each image for the first time", **spread(ask_all(address, 1, NUM_IMAGES))}]
            for clients in (1, options.clients):
                times = ask_all(address, clients, options.requests)
                rows.append({"clients": str(clients), **spread(times)})
        finally:
            server.terminate()
    title = f"Answers with {options.run} at {options.size} px, an image and 6 neighbours, cores: {num_cores()}"
    show(Console(), title, rows, write=options.write)


def ask_all(address: str, num_clients: int, num_requests: int) -> list[float]:
    """Seconds of each request, by so many clients at a time."""
    base, _, token = address.partition("/?token=")
    corners = np.random.default_rng(num_clients).uniform(0, 0.6, (num_requests, 2))
    clients = [httpx2.Client(headers={"Authorization": f"Bearer {token}"}, timeout=120) for _ in range(num_clients)]

    def ask(number: int) -> list[float]:
        times = []
        for i in range(number, num_requests, num_clients):
            x, y = corners[i]
            query = {"run": 0, "photo": str(i % NUM_IMAGES), "box": [x, y, x + 0.3, y + 0.3]}
            start = time.perf_counter()
            clients[number].post(f"{base}/api/search", json=query).raise_for_status()
            times.append(time.perf_counter() - start)
        return times

    with ThreadPoolExecutor(num_clients) as threads:
        found = [seconds for times in threads.map(ask, range(num_clients)) for seconds in times]
    for client in clients:
        client.close()
    return found


def spread(times: list[float]) -> dict[str, str]:
    """Median and 95th percentile in milliseconds."""
    return {
        "requests": str(len(times)),
        "median ms": f"{1000 * statistics.median(times):.0f}",
        "p95 ms": f"{1000 * np.quantile(times, 0.95):.0f}",
    }


if __name__ == "__main__":
    main()
