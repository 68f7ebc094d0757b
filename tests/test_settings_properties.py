"""Properties of settings: whatever is accepted is written and read back unchanged, the rest refused in a sentence."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tomli_w
from hypothesis import assume, given
from hypothesis import strategies as st
from properties import JUNK, TEXT, quick, values_of

from scfs.config import Config
from scfs.errors import UserError
from scfs.evaluate.detect.settings import Detect
from scfs.evaluate.finetune.settings import Finetune
from scfs.evaluate.training_folder import open_folder, task_settings
from scfs.recipe import check, read_toml, setting_names
from scfs.runs.layout import SETTINGS, write_settings

MODELS = [Config, Finetune, Detect]  # those that are written


def accepted(model: type, values: dict[str, Any]) -> Any:
    """Settings of some values; None if they are refused, which must take one sentence."""
    try:
        return check(model, values)
    except UserError as error:
        sentence = str(error)
        assert sentence.endswith((".", "?")), sentence
        assert len(sentence) < 1000
        return None


@quick
@given(values_of(Config))
def test_an_accepted_recipe_is_read_back_as_it_was(values):
    config = accepted(Config, values)
    assume(config is not None)
    assert read_back(config) == config


@quick
@given(TEXT, st.lists(TEXT, min_size=1, max_size=3))
def test_any_text_is_read_back_as_it_was(source, layers):
    config = check(Config, {"data": {"source": source}, "backbone": {"layers": layers}})
    assert read_back(config) == config


def read_back(config: Config) -> Config:
    with TemporaryDirectory() as folder:
        write_settings(Path(folder), config.model_dump(mode="json"))
        return check(Config, read_toml(Path(folder) / SETTINGS))


@pytest.mark.parametrize("model", [Finetune, Detect])
def test_settings_of_an_evaluation_are_read_back_and_found_again(model):
    @quick
    @given(values_of(model))
    def holds(values):
        settings = accepted(model, values)
        assume(settings is not None)
        written = settings.model_dump(mode="json")
        with TemporaryDirectory() as root:
            out = str(Path(root) / "out")
            assert open_folder("task", "random:resnet10_half", out, written) == Path(out)
            assert check(model, task_settings(Path(out), "task")) == settings
            assert open_folder("task", "random:resnet10_half", out, written) == Path(out)  # the same unfinished work

    holds()


@pytest.mark.parametrize("model", MODELS)
def test_a_value_that_does_not_fit_is_refused_in_a_sentence(model):
    names = sorted(setting_names(model))

    @quick
    @given(st.sampled_from(names), JUNK)
    def holds(name, value):
        settings = accepted(model, _nested(name, value))
        if settings is not None:  # it fits, perhaps converted
            assert check(model, settings.model_dump()) == settings

    holds()


SECTIONS = st.sampled_from([*Config.model_fields, "optimizer", ""]) | st.text(max_size=6)


@quick
@given(st.dictionaries(SECTIONS, JUNK, max_size=3))
def test_any_toml_is_a_recipe_or_refused_in_a_sentence(values):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.toml"
        path.write_text(tomli_w.dumps(values), encoding="utf-8")
        accepted(Config, read_toml(path))


@quick
@given(st.sampled_from(sorted(setting_names(Config))), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_no_setting_is_infinite_or_not_a_number(name, value):
    assert accepted(Config, _nested(name, value)) is None


def _nested(name: str, value: Any) -> dict[str, Any]:
    """The values of a recipe with one setting."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return value
