"""One request of an emulated client."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

RequestPhase = Literal["warmup", "measured"]


@dataclass(kw_only=True, eq=False)
class Request:
    """As its client sees it; the names are those of the records. Times are virtual seconds from the cell's start."""

    index: int  # in the order of its phase
    prompt_id: str
    sample: int
    seed: int
    phase: RequestPhase
    sent: float
    chunk_times: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None  # what a server would answer
    status: int = 200
    client: int
    filling: bool  # only keeps the load up while the measured requests end

    @property
    def started(self) -> bool:
        """It has its first token, or will not get one."""
        return bool(self.chunk_times) or self.error is not None

    @property
    def ended(self) -> bool:
        """Nothing more will come."""
        return self.finish_reason is not None or self.error is not None

    def take(self, now: float, tokens: int, finish: str | None) -> None:
        """Some tokens arrived, the last ones if `finish` says why."""
        self.chunk_times.append(now)
        self.chunk_tokens.append(tokens)
        self.finish_reason = finish
        if finish is not None:
            self.output_tokens = sum(self.chunk_tokens)

    def record(self) -> dict[str, object]:
        """What is kept of it."""
        return {name: value for name, value in asdict(self).items() if name not in ("client", "filling")}
