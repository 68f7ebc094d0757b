"""The released code's numbers: variant "released" must reproduce every result and gradient in its golden files.

The files are those in ../shared/golden beside the repository and the one named by SCFS_GOLDEN; every size is read
from their arrays.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from loops import Maps
from toy_method import StoredBackbone, stored_batch

from scfs.method.encoder import Encoder
from scfs.method.heads import ProjectionHead, SearchHead
from scfs.method.scfs import SCFS
from scfs.method.search import search_attention

SHARED = Path(__file__).resolve().parents[3] / "shared" / "golden"
FILES = sorted(SHARED.glob("*.npz")) + [Path(name) for name in [os.environ.get("SCFS_GOLDEN")] if name]

HEAD_NAMES = {"last_layer.weight_v": "last.weight"}  # the gain, weight_g, is fixed at 1
SEARCH_HEAD_NAMES = {
    "conv1": "reduce",
    "bn1": "reduce_norm",
    "conv2": "mix",
    "bn2": "mix_norm",
    "conv3": "expand",
    "bn3": "expand_norm",
}


class Golden:
    """A golden file's arrays by name, and which of them were compared."""

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as file:
            self.arrays = {name: torch.from_numpy(file[name]) for name in file.files}
        self.layers = sorted(
            (name.removeprefix("in.student_global.") for name in self.arrays if "in.student_global.layer" in name),
            key=lambda layer: int(layer.removeprefix("layer")),
        )
        self.images = int(self.arrays["const.B"])
        self.left = {name for name in self.arrays if name.startswith(("out.", "grad."))}

    def compare(self, name, value):
        expected = self.arrays[name]
        torch.testing.assert_close(
            value.detach().reshape(expected.shape), expected, rtol=1e-6, atol=1e-10, msg=lambda m: f"{name}: {m}"
        )
        self.left.remove(name)

    def features(self, kind):
        """The stored features of a kind of views as leaves, with the view axis apart."""
        names = ["pooled", *self.layers]
        parts = [self.arrays[f"in.{kind}.{name}"].unflatten(0, (-1, self.images)) for name in names]
        parts = [part.clone().requires_grad_(kind.startswith("student")) for part in parts]
        return Maps(parts[0], parts[1:])

    def weights(self, who, part):
        prefix = f"weights.{who}.{part}."
        found = {name.removeprefix(prefix): value for name, value in self.arrays.items() if name.startswith(prefix)}
        return {our_name(part, name): value for name, value in found.items() if name != "last_layer.weight_g"}


def our_name(part, name):
    """The name in our head of a released head's weight."""
    if part == "head":
        return HEAD_NAMES.get(name, name)
    module, rest = name.split(".", 1)
    return f"{SEARCH_HEAD_NAMES.get(module, module)}.{rest}"


def build(golden, student_global, student_local):
    """SCFS with the stored features, weights and centers; all sizes from the weights."""
    head_weights = golden.weights("student", "head")
    head = ProjectionHead(
        head_weights["mlp.0.weight"].shape[1],
        head_weights["last.weight"].shape[0],
        hidden_dim=head_weights["mlp.0.weight"].shape[0],
        bottleneck_dim=head_weights["last.weight"].shape[1],
    )
    search_heads = []
    for layer in golden.layers:
        weights = golden.weights("student", layer)
        bottleneck, channels = weights["reduce.weight"].shape[:2]
        out_dim, hidden = weights["mlp.3.weight"].shape
        search_heads.append(SearchHead(channels, out_dim, hidden_dim=hidden, bottleneck_dim=bottleneck))
    model = SCFS(
        Encoder(StoredBackbone(student_global, student_local), head, search_heads),
        layers=golden.layers,
        contrast="scfs",
        variant="released",
        student_temp=float(golden.arrays["const.student_temperature"]),
        center_momentum=float(golden.arrays["const.center_momentum"]),
    ).double()
    model.teacher.backbone = StoredBackbone(golden.features("teacher_global"))
    for who, encoder in (("student", model.student), ("teacher", model.teacher)):
        for part, module in zip(["head", *golden.layers], [encoder.head, *encoder.search_heads], strict=True):
            load(module, golden.weights(who, part))
    for name, center in centers(model).items():
        center.value.copy_(golden.arrays[f"in.center.{name}"].reshape(-1))
    return model.train()


def load(module, weights):
    """Everything but the counts of batches, which the golden file leaves out."""
    result = module.load_state_dict(weights, strict=False)
    assert not result.unexpected_keys
    assert all(key.endswith("num_batches_tracked") for key in result.missing_keys)


def centers(model):
    return {"head": model.center, **dict(zip(model.layers, model.search_centers, strict=True))}


def catch_calls(model):
    """Hook every head: the list of (inputs, logits) of its calls, by whose it is and its name."""
    calls = {}
    for who, encoder in (("student", model.student), ("teacher", model.teacher)):
        for part, module in zip(["head", *model.layers], [encoder.head, *encoder.search_heads], strict=True):
            seen = calls[who, part] = []
            module.register_forward_hook(lambda _, inputs, logits, seen=seen: seen.append((inputs, logits)))
    return calls


def compare_calls(golden, calls, features):
    """Logits of every head call; two by the student's search heads and two by the teacher's, no more."""
    student = calls["student", "head"]
    golden.compare("out.student_head", torch.cat([logits for _, logits in student]))
    ((_, teacher_logits),) = calls["teacher", "head"]
    golden.compare("out.teacher_head", teacher_logits)
    for i, layer in enumerate(golden.layers):
        student_global, student_local, teacher_global = (part.maps[i] for part in features)
        by_maps = {id_of(inputs[0]): logits for inputs, logits in calls["student", layer]}
        assert len(calls["student", layer]) == len(by_maps) == 2
        golden.compare(f"out.student_global.{layer}", by_maps[id_of(student_global)])
        golden.compare(f"out.student_local.{layer}", by_maps[id_of(student_local)])

        plain = [logits for inputs, logits in calls["teacher", layer] if len(inputs) == 1]
        searched = [(inputs[1], logits) for inputs, logits in calls["teacher", layer] if len(inputs) == 2]
        (teacher_logits,), ((attention, searched_logits),) = plain, searched
        golden.compare(f"out.teacher_global.{layer}", teacher_logits)
        golden.compare(f"out.teacher_searched.{layer}", searched_logits)
        both = search_attention(student_local, teacher_global)
        torch.testing.assert_close(attention, both[:1], rtol=1e-12, atol=0)
        golden.compare(f"out.attention.{layer}", both)


def id_of(maps):
    """Maps by their values: views of one tensor are one."""
    return maps.detach().numpy().tobytes()


def compare_losses(golden, losses):
    """The layers' terms come halved: their sum is the loss."""
    golden.compare("out.loss_data", losses["view"])
    for layer in golden.layers:
        golden.compare(f"out.loss_layer_global.{layer}", 2 * losses[f"view/{layer}"])
        golden.compare(f"out.loss_layer_search.{layer}", 2 * losses[f"search/{layer}"])
    golden.compare("out.loss_total", sum(losses.values()))
    assert len(losses) == 1 + 2 * len(golden.layers)


def compare_gradients(golden, model, student_global, student_local):
    leaves = {}
    for kind, features in (("student_global", student_global), ("student_local", student_local)):
        leaves[f"{kind}.pooled"] = features.pooled
        leaves |= {f"{kind}.{layer}": maps for layer, maps in zip(golden.layers, features.maps, strict=True)}
    modules = dict(zip(["head", *golden.layers], [model.student.head, *model.student.search_heads], strict=True))
    for name in sorted(name for name in golden.left if name.startswith("grad.")):
        found = re.fullmatch(r"grad\.weights\.(?:student\.)?(head|layer\d+)\.(.+)", name)
        if found:
            leaf = modules[found[1]].get_parameter(our_name(*found.groups()))
        else:
            leaf = leaves[name.removeprefix("grad.")]
        golden.compare(name, leaf.grad)


NO_FILE = pytest.param(
    None, id="no file", marks=pytest.mark.skip(reason=f"no golden file in {SHARED}, and SCFS_GOLDEN is not set")
)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES] or [NO_FILE])
def test_released_variant_reproduces_the_released_code(path):
    golden = Golden(path)
    expected = len(golden.left)
    assert expected > 0
    for who in ("student", "teacher"):
        assert (golden.arrays[f"weights.{who}.head.last_layer.weight_g"] == 1).all()
    student_global, student_local = golden.features("student_global"), golden.features("student_local")
    model = build(golden, student_global, student_local)
    calls = catch_calls(model)

    batch = stored_batch(golden.images, len(student_local.pooled))
    losses = model(batch, float(golden.arrays["const.teacher_temperature"])).losses
    sum(losses.values()).backward()
    for center in model.centers():
        center.commit()

    compare_calls(golden, calls, (student_global, student_local, golden.features("teacher_global")))
    compare_losses(golden, losses)
    for name, center in centers(model).items():
        golden.compare(f"out.center_after.{name}", center.value)
    compare_gradients(golden, model, student_global, student_local)
    assert not golden.left, f"not compared, of {expected} arrays: {sorted(golden.left)}"
