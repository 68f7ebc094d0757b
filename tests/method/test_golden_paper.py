"""Our own golden file: SCFS reproduces in every mode of the paper's variant what the loops once gave."""

import make_golden_paper as golden
import numpy as np
import pytest
import torch
from loops import box_in_view
from toy_method import StoredBackbone, centers_of, stored_batch

from scfs.method.encoder import Encoder
from scfs.method.heads import ProjectionHead, SearchHead
from scfs.method.scfs import SCFS


@pytest.fixture(scope="module")
def arrays():
    with np.load(golden.PATH, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def build(contrast, arrays, given):
    """SCFS over the stored features, with its own parameters set to the stored weights."""
    with_maps = contrast not in ("dino", "dino-no-multicrop")
    head = ProjectionHead(golden.CHANNELS[-1], golden.OUT, hidden_dim=golden.HIDDEN, bottleneck_dim=golden.BOTTLENECK)
    search_heads = [
        SearchHead(channels, golden.SEARCH_OUT, hidden_dim=golden.HIDDEN, bottleneck_dim=golden.BOTTLENECK)
        for channels in golden.CHANNELS
    ]
    student = Encoder(
        StoredBackbone(given.student_global, given.student_local), head, search_heads if with_maps else []
    )
    consts = {name: float(arrays[f"const.{name}"]) for name in ("student_temp", "center_momentum")}
    model = SCFS(student, layers=golden.LAYERS, contrast=contrast, variant="paper", **consts).double().train()
    model.teacher.backbone = StoredBackbone(given.teacher_global)
    with torch.no_grad():
        for encoder, weights in ((model.student, given.student_weights), (model.teacher, given.teacher_weights)):
            for name, parameter in encoder.named_parameters():
                parameter.copy_(weights[name])
        for name, center in zip(golden.LAYERS, model.search_centers, strict=False):
            center.value.copy_(torch.from_numpy(arrays[f"in.center.{name}"]))
        model.center.value.copy_(torch.from_numpy(arrays["in.center.head"]))
    return model


@pytest.mark.parametrize("contrast", golden.CONTRASTS)
def test_paper_variant_reproduces_the_golden_file(contrast, arrays):
    given = golden.given_of(arrays)
    model = build(contrast, arrays, given)
    batch = stored_batch(golden.IMAGES, golden.LOCAL_VIEWS)._replace(
        **{
            f"{kind}_{what}": torch.from_numpy(arrays[f"in.{kind}_{what}"])
            for kind in ("global", "local")
            for what in ("boxes", "flips")
        }
    )
    losses = model(batch, given.teacher_temp).losses
    sum(losses.values()).backward()
    for center in model.centers():
        center.commit()

    parameters = dict(model.student.named_parameters())
    leaves = {name: parameters.get(name, leaf) for name, leaf in golden.gradient_leaves(given).items()}
    found = {f"loss.{name}": loss.detach() for name, loss in losses.items()}
    found |= {f"grad.{name}": leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    found |= {f"center.{name}": torch.tensor(value, dtype=torch.float64) for name, value in centers_of(model).items()}
    if contrast in ("dino", "dino-no-multicrop"):  # no search centers: the loops leave them where they were
        found |= {f"center.{name}": torch.from_numpy(arrays[f"in.center.{name}"]) for name in golden.LAYERS}

    prefix = f"out.{contrast}."
    expected = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], torch.from_numpy(value), rtol=1e-8, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_file_is_what_its_script_makes(arrays):
    made = golden.make_arrays()
    assert made.keys() == arrays.keys()
    for name, value in made.items():
        np.testing.assert_allclose(arrays[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def test_file_is_small_and_its_pairs_differ(arrays):
    """Under 100 kB; and roi-crop's pairs are some in, some out, some mirrored."""
    assert golden.PATH.stat().st_size < 100_000
    fractions = []
    for g in range(2):
        for n in range(golden.LOCAL_VIEWS):
            for b in range(golden.IMAGES):
                box, view = arrays["in.local_boxes"][n, b].tolist(), arrays["in.global_boxes"][g, b].tolist()
                fractions.append(box_in_view(box, view, False)[1])
    assert min(fractions) < 0.1 < max(fractions)
    assert 0 < arrays["in.global_flips"].mean() < 1
