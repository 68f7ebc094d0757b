"""Imports go one way: a test parses them and fails on an arrow that is not listed here."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "scfs"

# Packages, and the packages or modules each may import; all may import their own package, scfs.errors and scfs.extras.
ARROWS = {
    "": {"errors", "api"},
    "commands": set(),
    "process": set(),
    "console": {"printable"},
    "printable": set(),
    "flags": {"commands", "recipe"},
    "completion": {"commands", "flags", "recipes"},
    "recipes": {"recipe", "runs.auto_choices"},
    "__main__": {"cli"},
    "cli": {"", "commands", "flags", "recipe", "recipes", "console", "process", "printable"},  # and jobs, by the table
    "api": {
        *("config", "recipe", "recipes", "console", "method", "pretraining", "pretrained", "evaluate", "visualize"),
        *("exporting", "runs.metric", "runs.metrics_log", "runs.curves", "data.sources", "data.views", "view_batch"),
    },
    "pretrained": {"backbones", "preprocessing", "data.decode", "data.centred"},
    "exporting": {"", "exporting", "backbones", "preprocessing", "runs", "weights", "evaluate.settings"},
    "weights": {"preprocessing", "runs", "regular_file"},
    "bench": {
        *("config", "setting_types", "backbones", "data", "preprocessing", "training", "pretraining", "view_batch"),
        "markdown",
    },
    "config": {"method.modes", "setting_types"},
    "setting_types": set(),
    "recipe": {"regular_file"},
    "errors": {"portable"},
    "portable": set(),
    "extras": set(),
    "regular_file": {"portable"},
    "markdown": set(),
    "view_batch": set(),
    "preprocessing": set(),
    "cores": set(),
    "distributed": {"cores"},
    "method": {"view_batch"},
    "backbones": {"preprocessing", "weights", "runs.backbone_record"},
    "data": {"distributed", "cores", "preprocessing", "view_batch", "runs.files", "regular_file", "printable"},
    "data_check": {"setting_types", "data", "runs.files", "distributed"},
    "data_resize": {"setting_types", "data", "runs.files", "distributed"},
    "runs": {"", "distributed", "portable", "regular_file"},
    "training": {"runs", "distributed", "cores", "process", "portable"},
    "evaluate": {
        *("config", "recipe", "backbones", "data", "training", "runs", "distributed", "markdown", "process"),
        *("setting_types", "preprocessing", "visualize.detections", "visualize.segmentation"),  # the last two only draw
    },
    "ablate": {
        *("config", "recipe", "backbones", "data", "evaluate", "training", "runs", "distributed", "pretraining"),
        *("setting_types", "markdown"),
    },
    "pretraining": {
        *("config", "method", "backbones", "data", "training", "runs", "distributed", "view_batch", "process"),
        *("recipe", "setting_types", "evaluate.features", "evaluate.knn", "evaluate.accuracy", "visualize.pictures"),
    },
    "visualize": {
        *("config", "recipe", "evaluate", "method", "backbones", "data", "runs", "distributed", "view_batch"),
        *("setting_types", "training.cpu"),
    },
}
# Inside the method: who reads whom.
METHOD_ARROWS = {
    "modes": set(),
    "search": set(),
    "heads": set(),
    "losses": {"search"},
    "objectives": {"losses", "search"},
    "encoder": {"heads"},
    "scfs": {"encoder", "search", "heads", "losses", "objectives", "modes"},
}


def imports_of(path):
    """Modules below scfs that a file imports, without the leading `scfs`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports are not checked"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "scfs":
            base = node.module.removeprefix("scfs").lstrip(".")
            for alias in node.names:  # `from scfs.runs import checkpoint` names a module
                inner = PACKAGE / base.replace(".", "/") / f"{alias.name}.py"
                yield f"{base}.{alias.name}".lstrip(".") if inner.exists() else base
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("scfs").lstrip(".") for a in node.names if a.name.split(".")[0] == "scfs")


def files():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


def test_arrows():
    seen = 0
    for path, module in files():
        package = module.split(".")[0]
        for target in imports_of(path):
            seen += 1
            if target in ("errors", "extras") or (target.split(".")[0] == package and "." in module):
                continue
            allowed = ARROWS[package]
            parents = {target.rsplit(".", depth)[0] for depth in range(target.count(".") + 1)}
            assert parents & allowed, f"{module} may not import {target or 'scfs'}"
    assert seen > 50


def test_arrows_inside_the_method():
    for path, module in files():
        if module.startswith("method."):
            inside = {t.removeprefix("method.") for t in imports_of(path) if t.startswith("method.")}
            assert inside <= METHOD_ARROWS[module.removeprefix("method.")], module


def test_the_method_knows_no_settings_logger_or_process_group():
    """Its imports from scfs are those of `METHOD_ARROWS`, and view_batch."""
    allowed = {"torch", "torchvision", "scfs", *sys.stdlib_module_names} - {"logging"}
    for path, module in files():
        if module.startswith("method"):
            text = path.read_text(encoding="utf-8")
            assert {name.partition(".")[0] for name in absolute_imports(text)} <= allowed, module
            assert "distributed" not in " ".join(absolute_imports(text)), module
            assert ".cuda(" not in text


def absolute_imports(text):
    """Every imported name, such as torch.distributed."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_the_method_imports_neither_opencv_nor_data():
    """Also indirectly, so in a process of its own."""
    code = "import sys, scfs.method.scfs; print(*(name for name in sys.modules if name == 'cv2' or 'scfs.' in name))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent, timeout=120
    )
    loaded = set(done.stdout.split())
    assert "scfs.method.search" in loaded
    assert not {name for name in loaded if name == "cv2" or name.startswith("scfs.data")}


def test_computing_is_apart_from_drawing():
    """In visualize/, what draws imports no network and no data, and nothing else imports matplotlib."""
    names = ("pictures", "overlays", "detections", "grid", "segmentation", "attend.picture")
    drawing = {f"visualize.{name}" for name in names}
    drawing |= {"visualize.overaug.comparison_picture", "visualize.overaug.audit_picture"}
    for path, module in files():
        if module.startswith("visualize."):
            draws = "matplotlib" in path.read_text(encoding="utf-8")
            assert draws == (module in drawing), module
            if draws:
                outside = {target for target in imports_of(path) if not target.startswith("visualize.")}
                assert outside <= {"view_batch", "runs.files"}, module


def test_settings_stay_in_the_packages_of_jobs():
    plain = {
        *("data", "training", "runs", "weights", "backbones", "distributed"),
        *("visualize.pictures", "visualize.detections"),
    }
    for path, module in files():
        if module in plain or module.split(".")[0] in plain:
            assert not {t for t in imports_of(path) if t == "config" or t.endswith("settings")}, module


def test_files_are_short():
    for path, _ in files():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 350, path
