import os
import shutil
import subprocess

import pytest

from scfs.errors import UserError
from scfs.runs.files import read_json
from scfs.runs.layout import commit_of, metrics_lines


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_of_a_checkout(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # as in a hook
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    assert commit_of(tmp_path / "none") == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    (tmp_path / "file").write_text("one")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "Start"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    index = (tmp_path / ".git" / "index").read_bytes()
    os.utime(tmp_path / "file", (1, 1))  # git would refresh its index
    commit = commit_of(tmp_path)
    assert commit == head[:10]
    assert (tmp_path / ".git" / "index").read_bytes() == index
    commit_of.cache_clear()
    (tmp_path / "file").write_text("two")
    assert commit_of(tmp_path) == f"{commit}-dirty"


@pytest.mark.parametrize("name", ["metrics.jsonl", "results.json"])
@pytest.mark.timeout(20)
def test_a_named_pipe_in_a_run_folder_does_not_block(tmp_path, name):
    os.mkfifo(tmp_path / name)
    read = metrics_lines if name == "metrics.jsonl" else lambda folder: read_json(folder / name, [])
    with pytest.raises(UserError, match="named pipe"):
        read(tmp_path)
