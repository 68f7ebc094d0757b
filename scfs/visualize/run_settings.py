from scfs.config import Config
from scfs.recipe import check, read_toml
from scfs.runs.layout import SETTINGS
from scfs.runs.results import run_of


def config_of(target: str) -> Config | None:
    """The settings that a run was pre-trained with; None for networks trained with labels and for weights alone."""
    run = run_of(target)
    values = {} if run is None else read_toml(run / SETTINGS)
    return check(Config, values) if "views" in values else None
