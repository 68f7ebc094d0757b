"""Write requirements.lock from the newest versions that pyproject.toml admits: `make lock`.

Packages for NVIDIA GPUs exist for Linux only, hence the markers.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LINUX_ONLY = re.compile(r"nvidia-|cuda-|triton")


def main() -> None:
    """Resolve, and keep names and versions only."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        subprocess.run([*pip, "--report", str(report), ".[dev]"], check=True)
        found = json.loads(report.read_text())["install"]
    pins = {item["metadata"]["name"].lower().replace("_", "-"): item["metadata"]["version"] for item in found}
    pins.pop("scfs")
    lines = [
        f"{name}=={version}" + (' ; platform_system == "Linux"' if LINUX_ONLY.match(name) else "")
        for name, version in sorted(pins.items())
    ]
    Path("requirements.lock").write_text(
        "# Exact versions of everything; written by `make lock`.\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
