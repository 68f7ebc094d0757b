import subprocess
import sys
import time

import pytest
from conftest import read_flags

from scfs.commands import COMMANDS
from scfs.config import Config
from scfs.errors import UserError
from scfs.recipe import Change, changes, check, read_toml, setting_names


def test_defaults_are_the_papers_200_epochs_on_imagenet():
    config = Config()
    assert (config.backbone.name, config.method.contrast, config.method.variant) == ("resnet50", "scfs", "paper")
    assert (config.method.out_dim, config.method.search_out_dim, config.method.momentum) == (65536, 256, 0.996)
    assert (config.optim.epochs, config.optim.batch_size, config.optim.peak_lr) == (200, 256, 0.1)
    assert (config.optim.weight_decay, config.optim.clip, config.optim.clip_norm) == (1e-4, "per-tensor", 3.0)
    assert (config.views.global_size, config.views.local_size, config.views.num_local_views) == (224, 96, 8)


def test_flags_override_the_recipe_and_nothing_else():
    recipe = {"seed": 3, "optim": {"epochs": 7, "batch_size": 8, "final_lr": 0.0, "warmup_epochs": 1}}
    config = check(Config, recipe, read_flags(["--optim.epochs", "9", "--views.global_scale=auto"]))
    assert (config.seed, config.optim.epochs, config.optim.batch_size) == (3, 9, 8)
    assert recipe["optim"]["epochs"] == 7


def test_flags_take_lists_and_dashes():
    flags = ["--backbone.layers", "layer3", "layer4", "--views.local-scale", "0.1", "0.2", "--method.data_term", "no"]
    config = check(Config, {}, read_flags([*flags, "--method.contrast", "scfs", "--seed=4"]))
    assert config.backbone.layers == ("layer3", "layer4")
    assert config.views.local_scale == (0.1, 0.2)
    assert config.method.data_term is False
    assert config.seed == 4
    assert check(Config, {}, {"backbone.layers": "layer4"}).backbone.layers == ("layer4",)


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 1


def test_a_setting_in_the_wrong_section_gets_a_hint():
    with pytest.raises(UserError, match=r"Did you mean 'method\.momentum'\?"):
        check(Config, {"optim": {"momentum": 0.9}})


def test_no_multicrop_modes_use_no_local_views():
    config = check(Config, {"method": {"contrast": "scfs-no-multicrop"}})
    assert (config.views.num_local_views, config.num_local_views) == (8, 0)


def test_help_shows_the_recipes_values(scfs, tiny_recipe):
    code, out, _ = scfs("pretrain", tiny_recipe, "--help")
    assert code == 0
    assert "scenes:12,8" in out
    for name in setting_names(Config):
        assert f"--{name}" in out


def test_help_of_every_command(scfs):
    assert "usage: scfs" in scfs("--help")[1]
    assert "--temperature" in scfs("knn", "--help")[1]
    assert "(default: 65536)" in scfs("pretrain", "--help")[1]
    for command in COMMANDS:
        code, out, err = scfs(*command.split(), "--help")
        assert code == 0, err
        assert out.startswith(f"usage: scfs {command}")
    assert scfs("--version")[1].startswith("scfs 0.")


def test_the_command_line_imports_torch_only_for_a_job():
    code = "import sys; from scfs.cli import main; main(['pretrain', '--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_help_may_be_piped_to_head(tiny_recipe):
    words = f"{sys.executable} -m scfs pretrain {tiny_recipe} --help | head -n 3"
    done = subprocess.run(words, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("usage: scfs pretrain")
    assert done.stderr == ""


def test_changes_of_a_recipe():
    values = {"optim": {"epochs": 3, "warmup_epochs": 1}, "views": {"global_scale": [0.2, 1.0]}}
    flags = {"optim.epochs": "4", "optim.lr": "0.1", "views.global_scale": ["0.2", "1"], "seed": "5"}
    config = check(Config, values, flags)
    assert changes(config, values, flags) == [Change("optim.epochs", 4, 3), Change("seed", 5, 0)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a=" + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a=" + "{a=" * 3000 + "1" + "}" * 3000, "nested too deeply"),
        ("data.source" + ".a" * 50_000 + "=1", "nested too deeply"),
        ("data" + ".a" * 20 + "=1", "sections more than 10 deep"),
        ("".join(f"k{i}=1\n" for i in range(2000)), "more than 1000 values"),
        ("#" * 2**19, "more than 262,144 bytes"),
        ("seed=" + "9" * 5000, "is not valid TOML"),
    ],
)
def test_absurd_recipes(tmp_path, text, sentence):
    path = tmp_path / "absurd.toml"
    path.write_text(text)
    start = time.process_time()
    with pytest.raises(UserError, match=sentence) as error:
        read_toml(path)
    assert time.process_time() - start < 2
    assert len(str(error.value)) < 500 + len(str(path))


@pytest.mark.parametrize("values", [{"seed": 2**50_000}, {"x" * 100_000: 1}, {"data": {"source": ["y" * 9999] * 9}}])
def test_absurd_values_are_shortened(values):
    with pytest.raises(UserError) as error:
        check(Config, values)
    assert len(str(error.value)) < 500
