"""What callers pass: numbers, taken by value as Python numbers; elements; names of arguments. Or the error that helps.

NumPy's integers have 8 to 64 bits and wrap. An array without dimensions can change after it was checked. So only Python
numbers leave this module.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from functools import partial, wraps
from inspect import Parameter, signature
from itertools import islice
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from dmlvk.errors import BindingError, DescriptorError, shown

Function = TypeVar("Function", bound=Callable[..., Any])

# What other libraries call an argument, and what it may be called here: names that no similarity finds.
OTHER_NAMES = {
    "depth": ("output_length",),
    "dtype": ("data_type",),
    "groups": ("group_count",),
    "indexes": ("indices",),
    "kernel": ("filter",),
    "num_classes": ("output_length",),
    "padding": ("start_padding", "end_padding"),
    "pads": ("start_padding", "end_padding"),
    "shape": ("sizes",),
    "size": ("sizes",),
    "starts": ("input_window_offsets", "offsets"),
    "steps": ("input_window_strides", "strides"),
    "weight": ("filter", "filter_tensor"),
    "weights": ("filter", "filter_tensor"),
    "x": ("input", "input_tensor"),
}

# Similarities of two names, from 0 to 1: the least at which one may stand for the other; how far below the best the
# other suggestions may be; and the one from which there is a single suggestion.
LEAST_LIKE, ALIKE, ALMOST = 0.55, 0.1, 0.9

# More than any field has: one element for each dimension. At most this many are taken from an endless iterator.
MOST_ELEMENTS = 64
# An error names the element that is no number. It is looked for among at most this many elements of an array.
MOST_SEARCHED = 100_000


def similar(name: str, known: Iterable[str]) -> str:
    """ "; did you mean a or b?", of the known names that an unknown one may stand for; "" if there are none."""
    from difflib import SequenceMatcher  # here, because no program that is right needs it

    names, given = list(known), name[:64].lower()
    close = [each for each in OTHER_NAMES.get(given, ()) if each in names]
    if not close:
        ratios = {each: SequenceMatcher(None, given, each).ratio() for each in names}
        best = max(ratios.values(), default=0.0)
        close = [each for each in names if len(given) > 2 and given in each and best < ALMOST]
        close = close or [each for each in names if ratios[each] >= max(LEAST_LIKE, best - ALIKE)]
    return f"; did you mean {' or '.join(close[:4])}?" if close else ""


def unknown_argument(call: str, given: Iterable[str], known: Iterable[str]) -> TypeError | None:
    """The error of a call with an argument by an unknown name; None if all names are known."""
    names = list(known)
    for name in given:
        if name not in names:
            hint = similar(name, names) or f"; it takes {', '.join(names)}"
            return TypeError(f"{call} has no argument {shown(name)}{hint}")
    return None


def named_arguments(function: Function) -> Function:
    """Have a function suggest what an unknown argument may stand for, as Python does since 3.13 in some cases."""
    names: list[str] = []

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except TypeError:
            if not names:
                kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
                names.extend(each.name for each in signature(function).parameters.values() if each.kind in kinds)
            text = function.__qualname__.removesuffix(".__init__")
            error = unknown_argument(f"{text}()", named, [name for name in names if name not in ("self", "cls")])
            if error is None:
                raise
        raise error

    return cast("Function", call)


def as_array(values: Any, name: str = "elements", *, is_converted: bool = False) -> npt.NDArray[Any]:
    """What `numpy.asarray` makes of values, if its elements are numbers, or may be of a type that stands for numbers.

    name: what messages call them.
    is_converted: whether the elements get another type, so that integers may be too large for any: their array has
        objects then.
    Raises TypeError: the values are no numbers: text, a path, None, a dict, Python objects, ... The message says which,
        and what to do.
    Raises OverflowError: an integer that no data type holds.
    Raises ValueError: lists of unequal lengths, or an array with masked elements, which would lose their mask.
    """
    if isinstance(values, np.ndarray):
        array = values
    elif values is None or isinstance(values, (str, bytes, os.PathLike, Mapping, Set, Iterator, type)):
        raise TypeError(_not_elements(name, values))
    else:
        try:
            array = np.asarray(values)
        except ValueError as error:
            if not isinstance(values, (list, tuple)):
                raise
            rule = "the lists have unequal lengths, and a tensor has one size in each dimension"
            raise ValueError(f"{name} = {shown(values)}: {rule}") from error
    require_unmasked(array)
    if array.dtype.kind == "O" and array.size and all(type(each) is int for each in array.flat):
        worst = max(array.flat, key=abs)
        if not is_converted and abs(worst) >= 2**63:
            rule = "no data type holds this integer, and dtype='float64' would round it"
            raise OverflowError(f"{name} = {shown(values)}: {shown(worst)}: {rule}")
        if not is_converted:
            raise TypeError(_not_elements(name, values, array))
    elif array.dtype.kind in "OSU" or array.dtype.names is not None:
        raise TypeError(_not_elements(name, values, array))
    return np.asarray(array)


def _not_elements(name: str, values: Any, array: npt.NDArray[Any] | None = None) -> str:
    """Why values are no elements of a tensor, and what would be."""
    given, kind = f"{name} = {shown(values)}", type(values).__name__
    if isinstance(values, (str, os.PathLike)):
        reads = "np.load(path), np.asarray(PIL.Image.open(path)), np.fromfile(path, dtype)"
        return f"{given}: must be numbers or an array, not text; a file is read first: {reads}"
    if isinstance(values, bytes):
        return f"{given}: must be numbers or an array, not bytes; np.frombuffer(data, dtype) makes one of them"
    if values is None:
        return f"{given}: must be numbers or an array; device.empty(sizes, data_type) makes a tensor without contents"
    if isinstance(values, Mapping):
        return f"{given}: must be numbers or an array, not a {kind}; pass one of its values"
    if isinstance(values, Set):
        return f"{given}: must be numbers or an array, not a {kind}, which has no order; sorted(values) has one"
    if isinstance(values, Iterator):
        return f"{given}: must be numbers or an array, not an iterator, which has no size; list(values) has one"
    if isinstance(values, type):
        return f"{given}: must be numbers or an array, not a class; a type of elements is passed as dtype="
    if array is not None and array.dtype.names is not None:
        names = array.dtype.names
        return f"{name}: a structured array has the fields {', '.join(names)}: pass one of them, array['{names[0]}']"
    if array is not None and array.ndim:
        places = zip(np.ndindex(array.shape), array.flat, strict=True)
        for place, element in islice(places, MOST_SEARCHED):
            if not isinstance(element, numbers.Number):
                index = "".join(f"[{k}]" for k in place)
                plain = element.item() if isinstance(element, np.generic) else element
                return f"{name}{index} = {shown(plain)}: must be a number, not {type(plain).__name__}"
        advice = "array.astype(np.int64), for example, gives them a type"
        return f"{name}: the elements of the array are Python objects (dtype {array.dtype}); {advice}"
    return f"{given}: must be numbers, a list of them, or an array of NumPy or another library, not {kind}"


def require_unmasked(array: object) -> None:
    """Raise a ValueError for an array with masked elements, which would lose their mask."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        count = int(np.ma.getmaskarray(array).sum())
        raise ValueError(
            f"{count} of the {array.size} elements of a masked array are masked, and a tensor has no mask: "
            "array.filled(value) gives them a value, array.data is what lies under the mask"
        )


def converted(array: npt.NDArray[Any], dtype: np.dtype[Any], type_name: str, name: str) -> npt.NDArray[Any]:
    """An array with its elements converted, where the type can hold them.

    array: of bools, integers or floats.
    dtype: of integers or floats. To integers, fractions are cut off. To floats, elements are rounded to the nearest
        value, which is an infinity past the largest.
    type_name, name: what messages call the data type, and the array.
    Raises OverflowError: an element is an integer, or an infinity, that the type cannot hold: NumPy's own error for a
        Python number.
    Raises ValueError: an element is NaN, and the type has integers.
    """
    if np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype, copy=False)
    if dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        whole = np.trunc(array.astype(np.float64, copy=False)) if array.dtype.kind not in "iuO" else array
        fits = (whole >= limits.min) & (whole <= limits.max)
        if whole.dtype.kind == "f" and limits.max > 2**53:  # the float nearest to the limit is one too large
            fits &= whole < float(limits.max)
        if not fits.all():
            place = tuple(int(k) for k in np.argwhere(~fits)[0])
            element = array[place]
            text = f"{name}{''.join(f'[{k}]' for k in place)} = {element}: {type_name} has {limits.min} to {limits.max}"
            if element != element:
                raise ValueError(f"{text}, and no NaN; np.nan_to_num(array) puts 0 in its place")
            raise OverflowError(f"{text}; array.astype(np.{dtype.name}) wraps, np.clip(array, low, high) does not")
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def integer_of(value: object) -> int | None:
    """The Python int of a Python or NumPy integer; None for everything else: bools, floats, arrays, text."""
    if type(value) is int:
        return value
    if isinstance(value, (int, np.integer)) and is_number(value):
        return int.__int__(value) if isinstance(value, int) else int(value)
    return None


def is_number(value: object) -> bool:
    """Whether a value is one real number. Bools and NumPy's durations claim to be numbers, but are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_, np.timedelta64))


def as_integer(descriptor: str, field: str, value: object, low: int, high: int, rule: str) -> int:
    """The integer in [low, high] that a descriptor's field holds.

    Raises DescriptorError: it is no integer, or breaks the rule.
    """
    return _in_range(value, low, high, rule, partial(DescriptorError, descriptor, field))


def as_boolean(descriptor: str, field: str, value: object) -> bool:
    """The truth value that a descriptor's field holds, given as Python's or NumPy's.

    Raises DescriptorError: it is neither True nor False.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise DescriptorError(descriptor, field, value, f"must be True or False, not {type(value).__name__}")
    return bool(value)


def as_integers(descriptor: str, field: str, values: Any, low: int, high: int, rule: str) -> tuple[int, ...]:
    """The integers in [low, high] of a descriptor's field, given as any sequence. An error names the element."""
    if type(values) is tuple or type(values) is list:
        taken = tuple(values)  # at once, because a list may change
        wrong = [item for item in taken[:MOST_ELEMENTS] if type(item) is not int or not low <= item <= high]
        if not wrong and len(taken) <= MOST_ELEMENTS:
            return taken  # the usual case
    items = None
    if not isinstance(values, (str, bytes, bytearray, set, frozenset, dict)):  # text, or without an order of their own
        with suppress(TypeError):
            items = list(islice(values, MOST_ELEMENTS + 1))
    expected = "such as (1, 2, 3)"
    if items is None:
        raise DescriptorError(
            descriptor, field, values, "must be a sequence of integers, one for each dimension", expected
        )
    if len(items) > MOST_ELEMENTS:
        raise DescriptorError(descriptor, field, values, f"must have at most {MOST_ELEMENTS} elements", expected)
    return tuple([as_integer(descriptor, f"{field}[{i}]", item, low, high, rule) for i, item in enumerate(items)])


def as_argument(
    name: str, value: object, low: int, high: int | None, rule: str, error: type[Exception] = BindingError
) -> int:
    """An argument as an integer from `low` to `high`, or without an upper limit.

    Raises BindingError, or `error`: it is no integer, or breaks the rule.
    """

    def refusal(value: object, rule: str, expected: str) -> Exception:
        return error(f"{name} = {shown(value)}: {rule}; expected {expected}")

    return _in_range(value, low, high, rule, refusal)


def as_seconds(name: str, value: object) -> float:
    """An argument as seconds, from 0 to infinity.

    Raises TypeError: it is no real number.
    Raises ValueError: it is negative or NaN.
    """
    kinds = (int, float, np.integer, np.floating)
    if not isinstance(value, kinds) or not is_number(value):
        raise TypeError(f"{name} = {shown(value)}: must be seconds as an int or a float, not {type(value).__name__}")
    try:
        seconds = float(value)
    except OverflowError:  # an integer that no float holds
        seconds = math.inf if value >= 0 else -math.inf
    if not seconds >= 0:
        raise ValueError(f"{name} = {shown(value)}: must be 0 seconds or more; None waits without a limit")
    return seconds


def _in_range(
    value: object, low: int, high: int | None, rule: str, refusal: Callable[[object, str, str], Exception]
) -> int:
    integer = integer_of(value)
    if integer is None or integer < low or (high is not None and integer > high):
        if integer is None:
            kind = "a bool" if isinstance(value, (bool, np.bool_)) else type(value).__name__
            rule = f"must be an integer, not {kind}"
        expected = f"an integer of {low} or more" if high is None else f"an integer from {low} to {high}"
        raise refusal(value if integer is None else integer, rule, expected)
    return integer
