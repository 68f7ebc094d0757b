"""What tests of properties share: examples that are the same in every run, and values of settings."""

import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from hypothesis import settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

quick = settings(deadline=None, derandomize=True, max_examples=60)

# Names of files and folders, with what TOML must escape.
TEXT = st.text(st.sampled_from("ab./\\\"'#=[]\n\r\t\0") | st.characters(codec="utf-8"), max_size=12)
JUNK = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.dates(),
        st.datetimes(timezones=st.just(datetime.UTC)),
        st.times(),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)  # whatever TOML can hold


def allowed(annotation: Any, bounds: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Values of an annotated type, within its bounds; validators may still refuse them."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        extra = [bound for each in args[1:] for bound in (each.metadata if isinstance(each, FieldInfo) else [each])]
        return allowed(args[0], (*bounds, *extra))
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, UnionType):
        return st.one_of([allowed(each, bounds) for each in args if each is not NoneType])
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(allowed(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(allowed, args))
    return _plain(annotation, bounds)


def _plain(kind: type, bounds: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if issubclass(kind, BaseModel):
        return values_of(kind)
    if kind is bool:
        return st.booleans()
    if kind is str:
        return TEXT
    low = next((each.gt if isinstance(each, Gt) else each.ge for each in bounds if isinstance(each, Gt | Ge)), None)
    high = next((each.lt if isinstance(each, Lt) else each.le for each in bounds if isinstance(each, Lt | Le)), None)
    open_low, open_high = (any(isinstance(each, kind_) for each in bounds) for kind_ in (Gt, Lt))
    if kind is int:
        return st.integers(None if low is None else low + open_low, None if high is None else high - open_high)
    assert kind is float, kind
    return st.floats(low, high, exclude_min=open_low, exclude_max=open_high, allow_nan=False, allow_infinity=False)


def values_of(model: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    """Values of some settings of a model, each within its bounds."""
    fields = {name: allowed(field.annotation, tuple(field.metadata)) for name, field in model.model_fields.items()}
    return st.fixed_dictionaries({}, optional=fields)
