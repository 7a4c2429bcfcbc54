"""The keys of a sweep file. The one source of what is allowed: the reader, its messages and the JSON schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from avbench.spec.fields import (
    MAX_K,
    Interval,
    K,
    OptionalText,
    PositiveSeconds,
    Seconds,
    Temperature,
    Text,
    TopP,
    arm_form,
    as_adaptive,
    as_list,
    engine_kind,
    known_form,
    pair_method,
)


class Section(BaseModel):
    """Strict: no unknown keys, no conversion between types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class PairSection(Section):
    """Target and draft model."""

    name: OptionalText = Field(default=None, description="Name for tables and the report.")
    target: Text = Field(description="Target model: a folder in Hugging Face format, or `avbench:target` (shipped).")
    draft: OptionalText = Field(
        default=None,
        description="Draft model: a folder, or `avbench:draft` or `avbench:dspark` (shipped). Needed by arms that "
        "draft.",
    )
    method: Annotated[Literal["draft_model", "dspark"], BeforeValidator(pair_method)] = Field(
        default="draft_model",
        description="How drafts are made, as in vLLM's `--speculative-config`: `draft_model` token by token, `dspark` "
        "a block in one pass.",
    )
    draft_sampling: Literal["greedy", "probabilistic"] = Field(
        default="probabilistic",
        description="vLLM's `draft_sample_method`, the same in every arm. vLLM's own default is `greedy`.",
    )


class EngineSection(Section):
    """How the engine is launched."""

    kind: Annotated[Literal["reference"], BeforeValidator(engine_kind)] = Field(
        default="reference", description="`reference`: the embedded CPU engine."
    )
    args: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Flags of the engine by vLLM's names, without dashes in front."
    )
    env: dict[str, str | int] = Field(default_factory=dict, description="Environment variables of the engine.")
    gpus: int = Field(
        default=1, ge=1, le=4096, description="GPUs that the engine occupies: divides throughput per GPU."
    )
    start_timeout: PositiveSeconds = Field(
        default=300.0, description="Longest start of a server, until `/health` answers."
    )
    clock: Literal["real", "emulated"] = Field(
        default="real",
        description="`emulated`: real models and sampling in virtual time, every step lasting what `costs` says.",
    )
    costs: OptionalText = Field(
        default=None,
        description="Cost table of `clock: emulated`: a JSON file or an engine's trace, relative to the sweep file.",
    )


class FixedArm(Section):
    """A fixed number of drafted tokens: one arm for each K."""

    fixed: Annotated[
        list[K],
        BeforeValidator(as_list),
        Field(min_length=1),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": MAX_K},
                    {
                        "type": "array",
                        "items": {"type": "integer", "minimum": 1, "maximum": MAX_K},
                        "minItems": 1,
                        "uniqueItems": True,
                    },
                ]
            }
        ),
    ] = Field(description="Drafted tokens per step (K), or a list of them: one arm each.")


class AdaptiveOptions(Section):
    """Adaptive verification (AV)."""

    k: K = Field(description="Drafted tokens per step; AV decides how many of them are verified.")
    source: Literal["estimator", "head"] = Field(
        default="estimator",
        description="Where confidences come from: the online estimator, or the confidence head of the draft.",
    )
    refit_interval: Interval | SkipJsonSchema[None] = Field(
        default=None, description="Engine steps between two refits; the engine's default is 100, as in vLLM."
    )
    depth: Literal["nested"] | SkipJsonSchema[None] = Field(
        default=None,
        description="`nested`: the draft depth is chosen together with the budget, an extension of avbench for the "
        "embedded engine. Leave it away for vLLM's rule, which always drafts K.",
    )


class AdaptiveArm(Section):
    """Adaptive verification with K drafted tokens."""

    adaptive: Annotated[AdaptiveOptions, BeforeValidator(as_adaptive)] = Field(
        description="Drafted tokens per step (K), or a mapping with `k` and options.",
        json_schema_extra=lambda schema: _or_integer(schema),
    )


def _or_integer(schema: dict[str, Any]) -> None:
    """`adaptive: 7` is short for `adaptive: {k: 7}`."""
    reference = schema.pop("$ref", None)
    if reference is not None:
        schema["anyOf"] = [{"type": "integer", "minimum": 1, "maximum": MAX_K}, {"$ref": reference}]


ArmEntry = Annotated[
    Annotated[Literal["none"], Tag("none")]
    | Annotated[FixedArm, Tag("fixed")]
    | Annotated[AdaptiveArm, Tag("adaptive")],
    Discriminator(arm_form),
]


class SamplingSection(Section):
    """What every request asks for."""

    temperature: Temperature | SkipJsonSchema[None] = Field(
        default=None, description="0 is greedy. vLLM raises what lies between 0 and 0.01 to 0.01. Default: 1."
    )
    top_p: TopP | SkipJsonSchema[None] = Field(default=None, description="Nucleus sampling; 1 is off. Default: 1.")


class WorkloadSection(Section):
    """Prompts with their sampling and output limit."""

    prompts: Text = Field(description="A shipped set (`code`, `prose`), or a JSONL file relative to the sweep file.")
    name: OptionalText = Field(default=None, description="Default: the name of the set or file.")
    max_tokens: int = Field(ge=1, le=1_048_576, description="Most output tokens of a request.")
    chat: bool = Field(
        default=True, description="Chat endpoint with the model's template; `false`: completion of the raw text."
    )
    ignore_eos: bool = Field(
        default=False, description="Generate up to `max_tokens` whatever the model says (flagged)."
    )
    samples_per_prompt: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="How often the set is walked, each time with other request seeds (flagged if > 1).",
    )
    sampling: SamplingSection = Field(
        default_factory=SamplingSection, description="Replaces single values of the sweep's `sampling`."
    )


class LoadSection(Section):
    """Closed loop: so many requests are always in flight."""

    concurrency: list[Annotated[int, Field(ge=1, le=16_384)]] = Field(
        min_length=1,
        json_schema_extra={"uniqueItems": True},
        description="Requests in flight, in the order they run. The largest is `max-num-seqs` unless `engine.args` "
        "sets it.",
    )


class CellSection(Section):
    """How long one cell is warmed up and measured."""

    seconds: PositiveSeconds = Field(default=10.0, description="Least length of the steady window.")
    min_requests: int = Field(default=0, ge=0, le=1_000_000, description="Least number of requests sent inside it.")
    warmup_seconds: Seconds = Field(
        default=2.0, description="Least warm-up; never fewer requests than the concurrency."
    )
    timeout: PositiveSeconds = Field(default=600.0, description="A cell that takes longer fails.")


class SweepFile(Section):
    """A sweep of avbench: which ways to speculate are compared, on which traffic and load."""

    pair: PairSection = Field(description="Target and draft model.")
    engine: EngineSection = Field(default_factory=EngineSection, description="How the engine is launched.")
    arms: list[Annotated[ArmEntry, BeforeValidator(known_form)]] = Field(
        min_length=1, description="Ways to speculate: `none`, `fixed: [1, 3, 7]`, `adaptive: 7`."
    )
    workloads: list[WorkloadSection] = Field(min_length=1, description="Prompts, each with an output limit.")
    sampling: SamplingSection = Field(
        default_factory=SamplingSection, description="Sampling of every workload that does not set its own."
    )
    load: LoadSection = Field(description="How many requests are in flight.")
    passes: int = Field(
        default=2,
        ge=1,
        le=1000,
        description="Server starts per arm. Odd passes run forward, even ones reversed: use an even number.",
    )
    cell: CellSection = Field(default_factory=CellSection, description="How long one cell is warmed up and measured.")
    labels: bool = Field(
        default=False, description="Write every draft with its features and verdict beside the trace (takes time)."
    )
    observe: bool = Field(
        default=False,
        description="Adaptive arms compute everything and trim nothing, so that no label is missing: for studies, not "
        "for speed.",
    )
    seed: int = Field(
        default=0, ge=0, le=4_294_967_295, description="Decides prompt order, request seeds and the engine's seed."
    )


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a sweep file, for editors: `avbench schema`."""
    schema = _tidied(SweepFile.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "avbench sweep", **schema}


def _tidied(schema: Any) -> Any:
    """Without what pydantic adds and an editor would show as noise: titles made of key names, `default: null`."""
    if isinstance(schema, list):
        return [_tidied(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    noise = {key for key in ("title", "default") if key in schema and not isinstance(schema[key], dict)}
    noise -= {"default"} if schema.get("default") is not None else set()
    return {key: _tidied(value) for key, value in schema.items() if key not in noise}
