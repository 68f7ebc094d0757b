"""The method compared with the tests' plain loops over the paper's equations, at their toy size, forward only.

    python benchmarks/loops.py [--write PAGE.md]

A sanity check, not a competitor: the loops run over nested lists of Python floats.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from scfs.bench.page import show
from scfs.bench.timing import interleaved

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "method"))
from loops_modes import contrast_losses
from toy_method import TEACHER_TEMP, given_of, make_batch, make_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", default="")
    arguments = parser.parse_args()
    model, batch = make_model(), make_batch()
    jobs = {
        "plain loops": lambda _: contrast_losses("scfs", "paper", given_of(model, batch)),
        "scfs": lambda _: model(batch, TEACHER_TEMP),
    }
    seconds = interleaved(jobs, 20)
    rows = [
        {
            "losses of a batch": name,
            "ms": f"{1000 * time:.1f}",
            "vs plain loops": f"{time / seconds['plain loops']:.2f}",
        }
        for name, time in seconds.items()
    ]
    show(Console(), "The paper's equations as plain loops, 3 images of 8 x 12 px, float64", rows, write=arguments.write)


if __name__ == "__main__":
    main()
