import statistics
import time
from collections.abc import Callable, Mapping

Clock = Callable[[], float]
WARM_UP = 4  # turns, after which the heap of a large step has stopped growing


def interleaved(
    jobs: Mapping[str, Callable[[int], object]],
    rounds: int,
    *,
    warm_up: int = WARM_UP,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each job; they take turns, so that noise on the machine affects them equally.

    A job gets the number of its turn; the first ones warm up and do not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(warm_up + rounds):
        for name, job in jobs.items():
            start = clock()
            job(turn)
            if turn >= warm_up:
                seconds[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
