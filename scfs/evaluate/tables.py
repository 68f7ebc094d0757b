from collections.abc import Mapping, Sequence

from rich.table import Table

from scfs.runs.metric import Metric


def metrics_table(rows: Mapping[str, Sequence[Metric]]) -> Table:
    """A row per name with its metrics and, where known, their intervals.

    Column headings are the last words of the metrics' names, which are the same in all rows.
    """
    first = next(iter(rows.items()))
    table = Table("")
    for metric in first[1]:
        table.add_column(f"{metric.name.removeprefix(first[0]).strip()} {metric.unit}".strip())
        if metric.interval is not None:
            table.add_column("95 % interval", overflow="fold")  # on narrow terminals: an ellipsis would hide it
    for name, metrics in rows.items():
        cells = [cell for m in metrics for cell in ([m.shown(), m.shown_interval()] if m.interval else [m.shown()])]
        table.add_row(name, *cells)
    return table
