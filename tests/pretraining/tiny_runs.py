"""Short runs of tests, and their logged rows."""

import json

from rich.console import Console

from scfs.pretraining import job


def rows(run, timed=False):
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return found if timed else [{k: v for k, v in row.items() if k != "images_per_second"} for row in found]


def train(config, tmp_path, name="run", resume=False):
    config = config.model_copy(update={"run": config.run.model_copy(update={"folder": str(tmp_path / name)})})
    return job.pretrain(config, name="tiny", resume=resume, console=Console(quiet=True))
