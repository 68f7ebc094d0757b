from collections.abc import Sequence

from scfs.config import Config
from scfs.errors import UserError
from scfs.recipe import Change

LOCAL = ("views.num_local_views", "views.local_size", "views.local_scale")


def refuse_ineffective(config: Config, changes: Sequence[Change]) -> None:
    """Refuse settings of local views, if they were given, in a contrast mode that has none."""
    given = [change for change in changes if change.setting in LOCAL and change.value]  # not a number of 0
    if given and not config.method.plan.local_views:
        setting, value, _ = given[0]
        raise UserError(
            f"{setting} {value} has no effect: contrast '{config.method.contrast}' has no local views; omit it, or "
            "give method.contrast = scfs and views.num_local_views."
        )
