import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from scfs.errors import UserError
from scfs.regular_file import read_regular

S = TypeVar("S", bound=BaseModel)
MAX_BYTES, MAX_KEYS, MAX_DEPTH, MAX_DOTS = 2**18, 1000, 10, 100  # of a recipe; dots of a line
MAX_SHOWN = 200  # characters of a value in a message


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML recipe."""
    try:
        text = read_regular(path, limit=MAX_BYTES).decode("utf-8")
        if any(line.count(".") > MAX_DOTS for line in text.splitlines() if not line.startswith("#")):
            raise RecursionError  # a key like a.a.a.a: tomllib takes memory with the square of its length
        values = tomllib.loads(text)
        _refuse_absurd(path, values)
        return values
    except FileNotFoundError:
        raise UserError(f"No recipe at {path}; scfs recipes lists the built-in ones.") from None
    except UserError:
        raise
    except RecursionError:
        raise UserError(f"{path} is not a recipe: its values are nested too deeply.") from None
    except ValueError as error:  # not TOML, not text, or a number of thousands of digits
        if path.suffix != ".toml":
            raise UserError(f"{path} is not a recipe, which is a .toml file; give images as --data.source.") from None
        reason = "it is not text" if isinstance(error, UnicodeDecodeError) else error
        raise UserError(f"{path} is not valid TOML: {reason}.") from None
    except OSError as error:
        raise UserError(f"Cannot read recipe {path}: {error.strerror}.") from None


def _refuse_absurd(path: Path, values: dict[str, Any]) -> None:
    """Refuse what no recipe has, before it is compared with the settings."""
    pending, num_keys = [(values, 1)], 0
    while pending:
        section, depth = pending.pop()
        num_keys += len(section)
        if num_keys > MAX_KEYS or depth > MAX_DEPTH:
            what = f"more than {MAX_KEYS} values" if num_keys > MAX_KEYS else f"sections more than {MAX_DEPTH} deep"
            raise UserError(f"{path} is not a recipe: it has {what}.")
        pending += [(value, depth + 1) for value in section.values() if isinstance(value, dict)]


def check(model: type[S], values: Mapping[str, Any], flags: Mapping[str, Any] | None = None) -> S:
    """Settings from the values of a recipe, overridden by flags; raises a UserError for the first mistake."""
    merged = {name: dict(value) if isinstance(value, dict) else value for name, value in values.items()}
    known = set(setting_names(model))
    for name, value in (flags or {}).items():
        if name not in known:
            raise unknown_setting(name, known)
        section_values = merged
        *sections, key = name.split(".")
        for section in sections:
            section_values = section_values.setdefault(section, {})
            if not isinstance(section_values, dict):
                raise UserError(f"'{section}' in the recipe must be a section, [{section}], not a value.")
        section_values[key] = value
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise _as_user_error(error, known) from None


class Change(NamedTuple):
    """A setting whose value is not the recipe's."""

    setting: str
    value: Any
    before: Any  # in the recipe, or the default


def changes(settings: BaseModel, values: Mapping[str, Any], flags: Iterable[str]) -> list[Change]:
    """What flags have changed in the values of a recipe, as checked settings have it."""
    defaults, found = type(settings)().model_dump(mode="json"), settings.model_dump(mode="json")
    both = ((name, _value(found, name), _value(values, name, _value(defaults, name))) for name in flags)
    return [Change(*each) for each in both if each[1] != each[2]]


def _value(values: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """The value of section.setting."""
    *sections, key = name.split(".")
    for section in sections:
        values = values.get(section, {})
    return values.get(key, default)


def setting_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every setting as section.setting."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from setting_names(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def unknown_setting(name: str, known: set[str]) -> UserError:
    """The error for an unknown setting, with the closest match."""
    nearest = difflib.get_close_matches(_shortened(name), known, n=1, cutoff=0.5)
    if not nearest:  # the right setting in the wrong section, or none
        nearest = [full for full in known if full.rpartition(".")[2] == name.rpartition(".")[2]]
    hint = f"Did you mean '{nearest[0]}'?" if nearest else "--help lists the settings."
    return UserError(f"Unknown setting '{_shortened(name)}'. {hint}")


def _as_user_error(error: ValidationError, known: set[str]) -> UserError:
    """The first mistake; if a setting may take several forms, all of them."""
    first, *rest = error.errors()
    if isinstance(raised := first.get("ctx", {}).get("error"), UserError):
        return raised
    path = [str(part) for part in first["loc"]]
    name = next((n for n in (".".join(path[:2]), ".".join(path[:1])) if n in known), ".".join(path))
    if first["type"] == "extra_forbidden":
        return unknown_setting(name, known)
    depth = len(name.split("."))
    same = [first, *(other for other in rest if [str(part) for part in other["loc"]][:depth] == path[:depth])]
    allowed = dict.fromkeys(map(_allowed, same))
    given = first["input"] if len(same) == 1 or not isinstance(first["input"], dict) else "that"
    return UserError(f"Setting '{name}' cannot be {_shown(given)}; it should be {' or '.join(allowed)}.")


def _shown(value: Any) -> str:
    try:
        return _shortened(repr(value))
    except (ValueError, RecursionError):  # a number of thousands of digits; lists in lists in lists
        return "that"


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _allowed(error: ErrorDetails) -> str:
    """What a setting should be, in words for users."""
    if error["type"] == "too_long":
        return f"at most {error['ctx']['max_length']} values"
    if error["type"] == "missing":  # one of a pair
        return "one more value"
    if error["type"] == "tuple_type":
        return "a list of values"
    return error["msg"].removeprefix("Input should be ").partition(", unable")[0]
