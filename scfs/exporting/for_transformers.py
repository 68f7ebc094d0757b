from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from PIL import Image

from scfs.backbones import Loaded
from scfs.errors import UserError
from scfs.exporting.difference import relative_difference
from scfs.exporting.exported import Exported, metadata_for_others
from scfs.exporting.transformers_networks import Converted, converted
from scfs.preprocessing import Preprocessing, resized_side
from scfs.runs.files import write_new_folder

TOLERANCE = 1e-5  # of the outputs of transformers, relative to the largest value of each or to 1
WEIGHTS = "model.safetensors"


class Inexact(Exception):  # noqa: N818 - a finding, which a sentence for the user contains
    """Why the network of transformers is not the same."""


def write_transformers(loaded: Loaded, out: Path) -> Exported:
    """A folder for from_pretrained, where transformers has the same network: checked by loading and running it."""
    try:
        network = _write(loaded, out)
    except Inexact as reason:
        raise UserError(
            f"transformers has no network that computes the same as '{loaded.backbone.name}': {reason}; export to a "
            ".safetensors or .onnx file."
        ) from None
    options = "".join(f", {name}={value}" for name, value in network.options.items())
    how = f'transformers.AutoModel.from_pretrained("{out}"{options})(pixel_values=images).{network.pooled_code}'
    note = (
        f'transformers.AutoImageProcessor.from_pretrained("{out}") prepares images so, but rounds otherwise: '
        "values may differ by 1/255, and the crop by one pixel."
    )
    return Exported(out, len(network.tensors), "transformers", how, str(loaded.preprocessing), note)


def _write(loaded: Loaded, out: Path) -> Converted:
    network = converted(loaded.backbone.net, loaded.preprocessing.size)
    if network is None:
        raise Inexact("it is not a plain ResNet or ViT")

    def write(folder: Path) -> None:
        _write_files(network, loaded, folder)
        _check(network, loaded.backbone.net, folder, loaded.preprocessing.size)

    with _quiet():
        write_new_folder(out, write)
    return network


def _write_files(network: Converted, loaded: Loaded, folder: Path) -> None:
    import transformers

    config = getattr(transformers, network.model).config_class(**network.config, architectures=[network.model])
    config.save_pretrained(folder)
    _processor(loaded.preprocessing).save_pretrained(folder)
    about = {"format": "pt"} | metadata_for_others(loaded)
    (folder / WEIGHTS).write_bytes(safetensors.torch.save(network.tensors, about))


def _processor(preprocessing: Preprocessing) -> Any:
    """The image processor that resizes the shorter side and crops the centre at every size."""
    import transformers

    return transformers.BitImageProcessor(
        size={"shortest_edge": resized_side(preprocessing.size)},
        crop_size={"height": preprocessing.size, "width": preprocessing.size},
        resample=Image.Resampling[preprocessing.interpolation.upper()].value,
        image_mean=list(preprocessing.mean),
        image_std=list(preprocessing.std),
    )


@torch.no_grad()
def _check(network: Converted, net: Any, folder: Path, size: int) -> None:
    """Raise `Inexact` if the written network lacks a tensor, or if its map or pooled feature differs from ours."""
    import transformers

    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    try:
        model, report = transformers.AutoModel.from_pretrained(
            folder,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are reported
            local_files_only=True,
            **network.options,
        )
        _check_names(report)
        found = model.eval()(pixel_values=images)
    except Inexact:
        raise
    except Exception as error:  # transformers raises many types
        raise Inexact(str(error).strip().partition("\n")[0].rstrip(".:") or type(error).__name__) from None
    final = net.forward_features(images)
    pairs = {
        "last map": (final, found.last_hidden_state),
        "pooled feature": (net.forward_head(final, pre_logits=True), network.pooled(found)),
    }
    for name, (ours, theirs) in pairs.items():
        if (difference := relative_difference(ours, theirs)) > TOLERANCE:
            raise Inexact(f"the {name} differs by {difference:.1e}")


def _check_names(report: dict[str, Any]) -> None:
    for problem in ("missing", "unexpected"):
        if names := report[f"{problem}_keys"]:
            raise Inexact(f"its '{min(names)}' is {problem}")
    if shapes := report["mismatched_keys"]:  # name, our shape, their shape
        name, ours, theirs = min(shapes)
        raise Inexact(f"its '{name}' is {list(theirs)}, ours {list(ours)}")


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no load reports of transformers."""
    from transformers.utils import logging

    verbosity, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()
