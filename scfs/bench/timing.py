import statistics
import time
from collections.abc import Callable, Mapping

Clock = Callable[[], float]
WARM_UP = 2  # turns, after which memory has settled


def interleaved(
    jobs: Mapping[str, Callable[[int], object]], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """Median seconds of each job; they take turns, so that a noisy machine is noisy to all.

    A job gets the number of its turn; the first two turns warm up and do not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(WARM_UP + rounds):
        for name, job in jobs.items():
            start = clock()
            job(turn)
            if turn >= WARM_UP:
                seconds[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
