"""A reader that closes the output, as `head` does, does not stop a command; odd names do not disturb the output."""

import errno
import io
import logging

from rich.table import Table

from scfs.console import LoggingConsole, terminal_console
from scfs.printable import one_line, printable
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


def test_programs_that_do_not_configure_logging_see_warnings(capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    console = LoggingConsole()
    console.print("Step 10")
    console.print("Warning at step 10: ...", style="bold yellow")
    assert capsys.readouterr() == ("", "Warning at step 10: ...\n")


NAME = "run[/x] [bold]\x1b[31m\u202egnp.exe\udcff\x07"
SHOWN = r"run[/x] [bold]\x1b[31m\u202egnp.exe\xff\x07"


def test_names_are_shown_as_they_are(capsys):
    """No markup, whether asked for or not, and no escape codes: in lines, titles, heads and cells, and in logs."""
    table = Table(NAME, title=NAME)
    table.add_row(NAME)
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logging.getLogger("scfs").addHandler(handler)
    with terminal_console() as console:
        console.width = 200
        console.print(f"plot {NAME}", highlight=False, soft_wrap=True)
        console.print(table)
    logging.getLogger("scfs").removeHandler(handler)
    out = capsys.readouterr().out
    assert out.count(SHOWN) == 4
    assert sum(record.count(SHOWN) for record in records) == 4
    assert "\x1b" not in out


def test_an_error_about_such_a_name(scfs):
    code, _, err = scfs("knn", f"nothing {NAME}", "--data", "scenes:20,10")
    assert code == 2
    assert f"nothing {SHOWN}" in err


def test_printable_text():
    assert printable("plain\ttext\n") == "plain\ttext\n"
    assert one_line("a\nb\tc") == r"a\nb\tc"
    assert printable("\r\x7f\x9b\ud800") == r"\x0d\x7f\x9b\ud800"


def test_a_score_of_a_run_in_an_odd_folder(scfs, trained):
    """The markup in a path once raised an error after the work was done."""
    run = trained.with_name("run[") / "x]"
    run.parent.mkdir()
    trained.rename(run)
    code, out, err = scfs("knn", run, "--data", "scenes:30,20", "--k", 5, "--workers", 0)
    assert (code, err) == (0, "")
    assert "run[/x]" in out
