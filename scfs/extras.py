"""Packages that only some commands need. Each extra of scfs installs those of one purpose."""

from importlib.util import find_spec

from scfs.errors import UserError

EXTRAS = {  # as in pyproject.toml
    "cars": ("scipy",),
    "detect": ("faster_coco_eval",),
    "explore": ("fastapi", "uvicorn"),
    "mlflow": ("mlflow",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "parquet": ("pyarrow",),
    "tensorboard": ("tensorboard",),
    "transformers": ("transformers",),
    "wandb": ("wandb",),
}


def missing_packages(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    return [package for package in EXTRAS[extra] if find_spec(package) is None]


def check_extra(extra: str, what: str) -> None:
    """Raise a `UserError` if a package of an extra is not installed; what: needs it, the subject of the sentence."""
    if missing := missing_packages(extra):
        raise UserError(f"{what} needs {' and '.join(missing)}: pip install 'scfs[{extra}]'.")
