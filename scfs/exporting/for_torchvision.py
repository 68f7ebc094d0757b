from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scfs.backbones import Loaded
from scfs.errors import UserError
from scfs.exporting.exported import Exported, metadata
from scfs.exporting.position_embeddings import position_embeddings
from scfs.runs.files import write_new
from scfs.weights.torchvision_names import TORCHVISION_MODELS, torchvision_names

POSITIONS = "encoder.pos_embedding"  # of a ViT, which torchvision builds for one size of images


def write_torchvision(loaded: Loaded, out: Path) -> Exported:
    """A torch file with torchvision's parameter names, of a model that torchvision has."""
    backbone = loaded.backbone
    model = TORCHVISION_MODELS.get(backbone.name.partition(".")[0])  # without the tag of timm's own weights
    tensors = torchvision_state(backbone.net)
    if model is None or tensors is None:
        raise UserError(
            f"torchvision has no model like '{backbone.name}'; export to a .pt2 or .onnx file, which contain their "
            "model."
        )
    options = ""
    if POSITIONS in tensors:
        options = f"image_size={loaded.preprocessing.size}"
        tensors[POSITIONS] = position_embeddings(backbone.net, loaded.preprocessing.size)
    state: Any = OrderedDict(tensors)
    state._metadata = OrderedDict(scfs=metadata(loaded))  # load_state_dict looks up its own modules' entries only
    write_new(out, lambda file: torch.save(state, file))
    how = (
        f"model = torchvision.models.{model}({options})\n"
        f'  model.load_state_dict(torch.load("{out}"), strict=False)  # it has no classifier\n'
        f"  model.{_classifier(model)} = torch.nn.Identity()"
    )
    return Exported(out, len(tensors), "torchvision", how, str(loaded.preprocessing))


def _classifier(model: str) -> str:
    """The module of a torchvision model that turns features into classes."""
    return {"vit": "heads", "convnext": "classifier[2]"}.get(model.partition("_")[0], "fc")


def torchvision_state(net: nn.Module) -> dict[str, Tensor] | None:
    """The state of a timm network under torchvision's names; None if it is not a ResNet, ViT or ConvNeXt."""
    state = net.state_dict()
    if (names := torchvision_names(state)) is None:
        return None
    # The layer scales of ConvNeXt are (C, 1, 1) in torchvision, (C,) in timm.
    return {
        theirs: state[name].reshape(-1, 1, 1) if theirs.endswith(".layer_scale") else state[name]
        for name, theirs in names.items()
    }
