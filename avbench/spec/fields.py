"""Types of single values in a sweep file, and the forms they may be written in."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from avbench.spec.durations import PATTERN, POSITIVE_PATTERN, parse_duration

MAX_K = 64
# Known, but not to this version.
LATER_ENGINES = ("vllm", "endpoint")
LATER_ARMS = ("schedule", "as-deployed")
LATER_METHODS = ("eagle", "eagle3", "mtp", "deepseek_mtp", "dflash", "medusa", "ngram", "mlp_speculator")


def _known_later(what: str, value: str, instead: str) -> PydanticCustomError:
    """A thing that avbench knows but that this version cannot do: not the same as a typing mistake."""
    message = "`{value}` is known, but this version of avbench does not support {what} yet"
    return PydanticCustomError("later", message, {"value": value, "what": what, "hint": instead})


def _seconds_of(value: object) -> object:
    """Text becomes seconds; what is no duration is left for the number check to refuse."""
    seconds = parse_duration(value) if isinstance(value, str) else None
    return value if seconds is None else seconds


def _seconds(pattern: str, **bounds: float) -> Any:
    return WithJsonSchema({"anyOf": [{"type": "number", **bounds}, {"type": "string", "pattern": pattern}]})


def engine_kind(value: object) -> object:
    """Refuses kinds of later versions by name."""
    if value in LATER_ENGINES:
        raise _known_later("this engine kind", str(value), "use `kind: reference`.")
    return value


def pair_method(value: object) -> object:
    """Refuses vLLM's other methods by name."""
    if value in LATER_METHODS:
        raise _known_later("this method", str(value), "use `method: draft_model` or `method: dspark`.")
    return value


def as_list(value: object) -> object:
    """`fixed: 3` is short for `fixed: [3]`."""
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def as_adaptive(value: object) -> object:
    """`adaptive: 7` is short for `adaptive: {k: 7}`."""
    return {"k": value} if isinstance(value, int) and not isinstance(value, bool) else value


def _not_tiny(value: float) -> float:
    """vLLM raises temperatures between 0 and 0.01 to 0.01 (`SamplingParams`): not what the file would say."""
    if 0 < value < LEAST_TEMPERATURE:
        raise ValueError
    return value


WEEK = 604800
LEAST_TEMPERATURE, MOST_TEMPERATURE = 0.01, 100
PositiveSeconds = Annotated[
    float,
    BeforeValidator(_seconds_of),
    Field(gt=0, le=WEEK),
    _seconds(POSITIVE_PATTERN, exclusiveMinimum=0, maximum=WEEK),
]
Seconds = Annotated[
    float, BeforeValidator(_seconds_of), Field(ge=0, le=WEEK), _seconds(PATTERN, minimum=0, maximum=WEEK)
]
K = Annotated[int, Field(ge=1, le=MAX_K)]
Text = Annotated[str, Field(min_length=1)]
# Absent is None inside; an explicit null in the file is refused by `read_document`, so the schema does not offer it.
OptionalText = Text | SkipJsonSchema[None]
Temperature = Annotated[
    float,
    Field(ge=0, le=MOST_TEMPERATURE),
    AfterValidator(_not_tiny),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "const": 0},
                {"type": "number", "minimum": LEAST_TEMPERATURE, "maximum": MOST_TEMPERATURE},
            ]
        }
    ),
]
TopP = Annotated[float, Field(gt=0, le=1)]
Interval = Annotated[int, Field(ge=1, le=1_000_000)]


def arm_form(value: object) -> str | None:
    """Which of the forms an entry of `arms` takes, None for none of them."""
    if value == "none":
        return "none"
    if isinstance(value, dict) and len(value) == 1:
        (form,) = value
        return form if form in {"fixed", "adaptive"} else None
    return None


def known_form(value: object) -> object:
    """Refuses what is no arm, and arms of later versions by name."""
    name = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else value
    if name in LATER_ARMS:
        raise _known_later("this kind of arm", str(name), "use `none`, `fixed: [1, 3]` or `adaptive: 7`.")
    if arm_form(value) is None:
        raise PydanticCustomError("arm", "no arm")
    return value
