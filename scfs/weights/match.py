import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from timm.layers.pos_embed import resample_abs_pos_embed
from torch import Tensor

from scfs.weights.read import Stored
from scfs.weights.torchvision_names import torchvision_names

HEADS = {"fc", "head", "heads", "classifier"}  # top-level classifiers, which a backbone does not have
OPTIONAL = ("num_batches_tracked", "relative_position_index", "attn_mask")  # not learned
# Names of networks inside checkpoints that identify the project.
WRAPPED = {"encoder_q": "MoCo", "encoder_k": "MoCo", "base_encoder": "MoCo v3", "momentum_encoder": "MoCo v3"}


class Pair(NamedTuple):
    """A project's names for the two networks in a file: the trained one and its moving average."""

    student: str
    teacher: str
    evaluated: str = ""  # the one that the project evaluates, whichever is requested; empty: the requested one


PAIRS = (
    Pair("student", "teacher"),  # DINOv2, iBOT, and other files with both in one dictionary
    Pair("student_backbone", "teacher_backbone"),  # lightly's examples of DINO
    Pair("student_backbone", "backbone"),  # lightly's benchmarks of DINO and BYOL
    Pair("query_backbone", "backbone"),  # lightly's benchmark of MoCo
    Pair("backbone", "backbone_momentum"),  # lightly's examples of MoCo and BYOL
    Pair("encoder_q", "encoder_k", evaluated="encoder_q"),  # MoCo
    Pair("base_encoder", "momentum_encoder", evaluated="base_encoder"),  # MoCo v3
    Pair("backbone", "momentum_backbone", evaluated="backbone"),  # solo-learn
    Pair("online_encoder", "target_encoder", evaluated="online_encoder"),  # BYOL
    Pair("online_network", "target_network", evaluated="online_network"),  # BYOL
    Pair("online_net", "target_net", evaluated="online_net"),  # BYOL of MMSelfSup
)


class Mismatch(Exception):  # noqa: N818 - a finding, not an error
    """Why the tensors of a file do not match a network."""


class LoadReport(NamedTuple):
    """What was loaded from a file of weights, and what was not."""

    format: str
    num_tensors: int
    unused: dict[str, int]  # entries not loaded, counted by the first part of their names
    resampled: str = ""

    def __str__(self) -> str:
        lines = [f"Loaded {self.num_tensors} tensors from {self.format} weights{self.resampled}."]
        if self.unused:
            lines.append("Not loaded: " + ", ".join(f"{name} ({count})" for name, count in self.unused.items()) + ".")
        return "\n".join(lines)


class Naming(NamedTuple):
    """How a file names a network: a prefix, and its own parameter names."""

    prefix: str
    names: dict[str, str]  # of parameters: the network's -> the file's, without the prefix
    found: int

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the prefix, without those of multi-GPU wrappers."""
        return tuple(part for part in self.prefix.split(".") if part not in ("", "module"))

    def has_partner(self, other: "Naming", pair: Pair) -> bool:
        """Whether this prefix and another differ only in the names of student and teacher."""
        swapped = tuple(pair.teacher if part == pair.student else part for part in self.parts)
        return swapped == other.parts != self.parts


def match_tensors(stored: Stored, net: Any) -> tuple[dict[str, Tensor], LoadReport]:
    """The tensors of a timm network in a file, under the network's names; raises `Mismatch` if they do not match.

    Every parameter and batch-norm statistic must be there with its shape, and nothing that only a larger network of
    the same kind would have. Position embeddings of another grid are resampled.
    """
    expected = {name: value for name, value in net.state_dict().items() if not name.endswith(OPTIONAL)}
    naming = locate(stored.tensors, list(expected), stored.network)
    _check_heads(naming.prefix, net)
    loaded, resampled = {}, ""
    for name, value in expected.items():
        theirs = naming.prefix + naming.names[name]
        if theirs not in stored.tensors:
            raise Mismatch(f"'{theirs}' is missing")
        tensor = stored.tensors[theirs]
        if name == "pos_embed" and tensor.shape != value.shape:
            tensor, resampled = _resampled(tensor, value, net)
        if _core(tensor) != _core(value):
            raise Mismatch(f"'{theirs}' is {_shape_text(tensor)}, not {_shape_text(value)}")
        loaded[name] = tensor.reshape(value.shape)
    used = {naming.prefix + theirs for theirs in naming.names.values()}
    unused = [name for name in stored.tensors if name not in used and not name.endswith(OPTIONAL)]
    _check_surplus([name.removeprefix(naming.prefix) for name in unused if name.startswith(naming.prefix)], naming)
    report = LoadReport(_format(stored, naming), len(loaded), _count(unused, naming.prefix), resampled)
    counters = [name for name in net.state_dict() if name.endswith("num_batches_tracked")]
    loaded |= {
        name: stored.tensors[naming.prefix + name] for name in counters if naming.prefix + name in stored.tensors
    }
    return loaded, report


def locate(tensors: Mapping[str, Tensor], expected: list[str], network: str) -> Naming:
    """The naming that has most of the network, in timm's names or torchvision's; of two networks, the requested one."""
    namings = [{name: name for name in expected}]
    if (theirs := torchvision_names(expected)) is not None and theirs not in namings:
        namings.append(theirs)
    namings_found = []
    for names in namings:
        first = names[expected[0]]
        for prefix in {name.removesuffix(first) for name in tensors if f".{name}".endswith(f".{first}")}:
            namings_found.append(Naming(prefix, names, sum(prefix + name in tensors for name in names.values())))
    if not namings_found:
        raise Mismatch(f"'{expected[0]}' is missing")
    best = max(sorted(namings_found, key=lambda naming: naming.prefix), key=lambda naming: naming.found)
    # A network with a few missing tensors must not be silently replaced by its partner.
    rivals = [naming for naming in namings_found if naming.names == best.names and naming.found > best.found / 2]
    for pair in PAIRS:
        for student, teacher in itertools.permutations(rivals, 2):
            if student.has_partner(teacher, pair):
                return student if pair.student == (pair.evaluated or getattr(pair, network)) else teacher
    return best


def _check_heads(prefix: str, net: Any) -> None:
    # The number of attention heads cannot be seen in the weights: MoCo v3's ViT-S has 12, everyone else's 6.
    wrappers = {part for part in prefix.split(".") if WRAPPED.get(part) == "MoCo v3"}
    if wrappers and getattr(net, "embed_dim", None) == 384 and net.blocks[0].attn.num_heads != 12:
        raise Mismatch("a ViT-S of MoCo v3 has 12 attention heads where timm's has 6")


def _check_surplus(unused: Iterable[str], naming: Naming) -> None:
    """Refuse what only a larger network has: more blocks, tokens or norms. Heads and other modules do not matter."""
    tops = {name.partition(".")[0] for name in naming.names.values()} - HEADS
    for name in unused:
        token = re.fullmatch(r"\w+_tokens?", name) and name != "mask_token"
        if name.partition(".")[0] in tops or token or re.match(r"norm\w*\.", name):
            raise Mismatch(f"'{naming.prefix}{name}' is in the file and not in the network")


def _resampled(tensor: Tensor, value: Tensor, net: Any) -> tuple[Tensor, str]:
    """Position embeddings (1, tokens, C) of another square grid, resampled to the network's grid."""
    extra = 0 if getattr(net, "no_embed_class", False) else net.num_prefix_tokens
    side = math.isqrt(max(tensor.shape[1] - extra, 0)) if tensor.ndim == 3 else 0
    if side == 0 or side * side + extra != tensor.shape[1] or tensor.shape[::2] != value.shape[::2]:
        return tensor, ""
    grid = list(net.patch_embed.grid_size)
    note = f"; position embeddings resampled from {side} x {side} to {grid[0]} x {grid[1]}"
    return resample_abs_pos_embed(tensor, grid, [side, side], num_prefix_tokens=extra), note


def _format(stored: Stored, naming: Naming) -> str:
    if stored.format:
        return stored.format
    for part in naming.prefix.split("."):
        if part in WRAPPED:
            return f"{WRAPPED[part]} ({part})"
    names = "timm"
    if torchvision_names(naming.names) == naming.names:
        is_timm = all(name == theirs for name, theirs in naming.names.items())
        names = "timm or torchvision" if is_timm else "torchvision"  # the same names for ResNets
    return f"{names} (behind '{naming.prefix}')" if naming.prefix.removeprefix("module.") else names


def _count(names: Iterable[str], prefix: str) -> dict[str, int]:
    """Names counted by their first part, or by the part after the backbone's own prefix."""
    firsts = []
    for name in names:
        own = prefix if name.startswith(prefix) else "module." if name.startswith("module.") else ""
        firsts.append((own + name.removeprefix(own).partition(".")[0]).removeprefix("module."))
    return dict(Counter(firsts))


def _core(tensor: Tensor) -> list[int]:
    """The shape without axes of size one: torchvision's ConvNeXt scales are (C, 1, 1), timm's (C,)."""
    return [extent for extent in tensor.shape if extent != 1]


def _shape_text(tensor: Tensor) -> str:
    return " x ".join(str(extent) for extent in tensor.shape) or "a scalar"
