"""A reader that closes the output, as `head` does, does not stop a command."""

import errno
import io

from scfs.console import LoggingConsole, terminal_console
from scfs.runs.layout import read_metrics


class ClosedPipe(io.StringIO):
    def write(self, _):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_output_closed_by_its_reader(capsys, monkeypatch):
    monkeypatch.setattr(LoggingConsole, "file", ClosedPipe())
    with terminal_console() as console:
        console.print("first")
        console.print("second")  # the job continues
    assert capsys.readouterr().err == ""


def test_a_run_is_complete(first_line, tiny_recipe, tmp_path):
    out, code, err = first_line("pretrain", tiny_recipe, "--run.folder", tmp_path / "run")
    assert out.startswith("tiny: run folder ")
    assert (code, err) == (0, "")
    assert (tmp_path / "run" / "last.pt").is_file()
    assert read_metrics(tmp_path / "run")[-1]["step"] == 6
