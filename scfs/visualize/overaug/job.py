from rich.console import Console

from scfs.runs.metric import Metric
from scfs.visualize.overaug.audit import audit_scales
from scfs.visualize.overaug.comparison import compare_views
from scfs.visualize.overaug.settings import Overaug


def overaug(target: str, settings: Overaug, console: Console) -> list[Metric]:
    """Show what over-augmentation does to class probabilities, or audit crop scales: the `scfs overaug` command."""
    return (audit_scales if settings.audit else compare_views)(target, settings, console)
