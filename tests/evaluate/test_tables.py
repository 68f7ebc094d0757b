import io
import re

from rich.console import Console

from scfs.evaluate.tables import metrics_table
from scfs.runs.metric import Metric


def test_nothing_is_hidden_on_a_narrow_terminal():
    names = ("object AUROC", "object pointing", "background AUROC", "background pointing")
    metrics = [Metric(f"layer2 {name}", 0.7 + i / 100, (0.611, 0.799)) for i, name in enumerate(names)]
    console = Console(file=io.StringIO(), width=80)
    console.print(metrics_table({"layer2": metrics}))
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in re.sub(r"┃.*┃", "", shown)  # other than in the head
    cells = zip(*(line.split("│") for line in shown.splitlines() if "│" in line), strict=True)
    texts = ["".join(part.strip() for part in cell) for cell in cells]
    assert texts.count("61.1-79.9") == 4
    assert [text for text in texts if text in ("70.0", "71.0", "72.0", "73.0")] == ["70.0", "71.0", "72.0", "73.0"]
