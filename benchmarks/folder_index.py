"""How long does it take to open a folder of a million files, the first time and afterwards?

    python benchmarks/folder_index.py [--files 1000000]

creates empty files in a thousand temporary folders, then in a single one, and prints the seconds of each start.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from scfs.data.sources import open_train


def make_files(root: Path, files: int, folders: int) -> None:
    for folder in range(folders):
        path = root / f"{folder:04d}" if folders > 1 else root
        path.mkdir(parents=True, exist_ok=True)
        for index in range(files // folders):
            os.close(os.open(path / f"{index:07d}.jpg", os.O_CREAT | os.O_WRONLY))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    arguments = parser.parse_args()
    for folders in (1000, 1):
        with tempfile.TemporaryDirectory() as temporary:
            os.environ["SCFS_CACHE"] = str(Path(temporary) / "cache")
            root = Path(temporary) / "photos"
            make_files(root, arguments.files, folders)
            time.sleep(2.5)  # the modification times of folders that have just changed are not trusted
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                count = len(open_train(str(root)))
                seconds.append(time.perf_counter() - start)
            starts = "  ".join(f"{second:.2f}" for second in seconds)
            print(f"{count} files in {folders} folders: starts of {starts} s", flush=True)


if __name__ == "__main__":
    main()
