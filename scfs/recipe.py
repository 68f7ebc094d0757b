import contextlib
import difflib
import io
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro
from pydantic import BaseModel, ValidationError

from scfs.errors import UserError

S = TypeVar("S", bound=BaseModel)


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML recipe."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"No recipe at {path}; recipes are TOML files such as recipes/quickstart.toml.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}.") from None
    except OSError as error:
        raise UserError(f"Cannot read recipe {path}: {error.strerror}.") from None


def read_flags(flags: Sequence[str]) -> dict[str, Any]:
    """`--section.setting value ...` as {"section.setting": value or list of values}.

    Written here, not left to tyro, so that a recipe and the flags meet one judge (pydantic) and a mistake in
    either gets the same single sentence; tyro shows the help.
    """
    words: dict[str, list[str]] = {}
    name = ""
    for flag in flags:
        if flag.startswith("--"):
            name, equals, value = flag[2:].partition("=")
            name = name.replace("-", "_")
            if name in words:
                raise UserError(f"Setting '{name}' is given twice on the command line; give it once.")
            words[name] = [value] if equals else []
        elif name:
            words[name].append(flag)
        else:
            raise UserError(f"Unexpected '{flag}'; settings are given as --section.setting value.")
    for name, values in words.items():
        if not values:
            raise UserError(f"Setting '{name}' has no value; give it as --{name} VALUE.")
    return {name: values[0] if len(values) == 1 else values for name, values in words.items()}


def check(model: type[S], values: Mapping[str, Any], flags: Mapping[str, Any] | None = None) -> S:
    """Values of a recipe, with flags on top, as settings; or the first mistake in one sentence."""
    merged = {name: dict(value) if isinstance(value, dict) else value for name, value in values.items()}
    known = set(setting_names(model))
    for name, value in (flags or {}).items():
        if name not in known:
            raise _unknown(name, known)
        place = merged
        *sections, key = name.split(".")
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise UserError(f"'{section}' in the recipe must be a section, [{section}], not a value.")
        place[key] = value
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise _sentence(error, known) from None


def setting_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every setting as section.setting."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from setting_names(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def help_text(settings: BaseModel, command: str, description: str) -> str:
    """The flags of a command with the values they have now."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        tyro.cli(
            type(settings),
            default=settings,
            args=["--help"],
            prog=command,
            description=description,
            use_underscores=True,
            config=(tyro.conf.FlagConversionOff,),
        )
    return said.getvalue()


def _unknown(name: str, known: set[str]) -> UserError:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if not nearest:  # the right setting in the wrong section, or none
        nearest = [full for full in known if full.rpartition(".")[2] == name.rpartition(".")[2]]
    hint = f"Did you mean '{nearest[0]}'?" if nearest else "See --help for the settings there are."
    return UserError(f"Unknown setting '{name}'. {hint}")


def _sentence(error: ValidationError, known: set[str]) -> UserError:
    """The first mistake; where a setting has several forms, all that it could have been."""
    first, *rest = error.errors()
    if isinstance(raised := first.get("ctx", {}).get("error"), UserError):
        return raised
    path = [str(part) for part in first["loc"]]
    name = next((n for n in (".".join(path[:2]), ".".join(path[:1])) if n in known), ".".join(path))
    if first["type"] == "extra_forbidden":
        return _unknown(name, known)
    depth = len(name.split("."))
    same = [first, *(other for other in rest if [str(part) for part in other["loc"]][:depth] == path[:depth])]
    wishes = dict.fromkeys(e["msg"].removeprefix("Input should be ").partition(", unable")[0] for e in same)
    given = first["input"] if len(same) == 1 or not isinstance(first["input"], dict) else "that"
    return UserError(f"Setting '{name}' cannot be {given!r}; it should be {' or '.join(wishes)}.")
