"""Types of settings, with the values they may have, and their base class."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from scfs.errors import UserError

Auto = Literal["auto"]
PrecisionName = Literal["float32", "bfloat16", "float16"]
Positive = Annotated[int, Field(gt=0, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
MAX_EPOCHS = 1_000_000
Epochs = Annotated[int, Field(gt=0, le=MAX_EPOCHS)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # the range of integers in TOML
Side = Annotated[int, Field(ge=8, lt=2**15)]  # of a view, in pixels: in fewer, nothing can be recognized
Fraction = Annotated[float, Field(ge=0, le=1)]
Temperature = Annotated[float, Field(gt=0)]
CropScale = tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(gt=0, le=1)]]


def _expand_home(path: str) -> str:
    """Replace a leading ~ by the home folder: a shell does so in flags, nobody in recipes."""
    return str(Path(path).expanduser()) if path.startswith("~") else path


NewPath = Annotated[str, AfterValidator(_expand_home)]  # of what a command writes


UNITS = {"min": 60, "h": 3600}  # of a time, in seconds


def seconds_of(time: str) -> float:
    """The seconds of "30min" or "1.5h"; 0 if it is no time."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(min|h)", time)
    return float(match[1]) * UNITS[match[2]] if match else 0.0


def _checked_time(time: Any) -> Any:
    if not isinstance(time, str) or seconds_of(time) <= 0:
        raise PydanticCustomError("time", "a time such as 30min or 1.5h")
    return time


Time = Annotated[str, BeforeValidator(_checked_time)]


def as_names(value: Any) -> Any:
    """Turn a single name or number into a list of one."""
    return (value,) if isinstance(value, str | int | float) and value != "auto" else value


def each_once(values: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
    """Refuse a list that names a value twice."""
    if len({*values}) < len(values):
        raise UserError(f"Setting '{info.field_name}' names a value twice; give each once.")
    return values


class Settings(BaseModel):
    """Typed, strict and frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    def refuse_unused(self, names: Iterable[str], with_what: str) -> None:
        """Raise a `UserError` if one of these settings was given: it would have no effect."""
        for name in names:
            if name in self.model_fields_set:
                raise UserError(f"--{name} has no effect with {with_what}; omit one of them.")

    @model_validator(mode="before")
    @classmethod
    def _paths_as_text(cls, values: Any) -> Any:
        """Accept a `Path` where a path is a string: from Python, people give either."""
        if not isinstance(values, Mapping):
            return values
        return {name: os.fspath(each) if isinstance(each, os.PathLike) else each for name, each in values.items()}
