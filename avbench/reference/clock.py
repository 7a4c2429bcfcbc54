"""How long an engine step takes: as long as it takes, as long as a cost table says, or only as if it did."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from avbench.reference.step_costs import StepCosts


class Clock(Protocol):
    """Told of everything that takes time in a step, in this order: `begin`, `verified`, `drafted`."""

    costs: StepCosts | None  # the table that decides; None: this machine does
    emulated: bool  # its seconds are virtual

    def now(self) -> float:
        """Unix seconds, or virtual ones since the engine's start."""
        ...

    def begin(self) -> None:
        """A step begins."""
        ...

    def verified(self, tokens: int) -> None:
        """The target has seen `tokens`; when this returns they may be handed out."""
        ...

    def drafted(self, requests: int, depth: int) -> None:
        """`depth` tokens are drafted for each of `requests`; when this returns the step is over."""
        ...

    def elapsed(self) -> float:
        """Seconds since the step began."""
        ...


class RealClock:
    """This machine's time."""

    costs: StepCosts | None = None
    emulated = False

    def __init__(self) -> None:
        self._began = 0.0

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def begin(self) -> None:
        """A step begins."""
        self._began = time.perf_counter()

    def verified(self, tokens: int) -> None:
        """It took what it took."""

    def drafted(self, requests: int, depth: int) -> None:
        """It took what it took."""

    def elapsed(self) -> float:
        """Seconds since the step began."""
        return time.perf_counter() - self._began


class VirtualClock:
    """Stands still but for what the table says. Each measurement starts at 0 `seconds`, so that its times do not
    depend on what ran before it, to the last bit."""

    emulated = True

    def __init__(self, costs: StepCosts) -> None:
        self.costs: StepCosts | None = costs
        self.origin = 0.0  # virtual seconds from the engine's start to the last `restart`
        self.seconds = 0.0  # since then
        self.steps = 0  # that have begun since the engine's start
        self._table = costs
        self._began = 0.0

    def restart(self) -> None:
        """A measurement begins."""
        self.origin += self.seconds
        self.seconds = 0.0

    def wait_until(self, seconds: float) -> None:
        """Nothing happens before that moment."""
        self.seconds = max(self.seconds, seconds)

    def now(self) -> float:
        """Virtual seconds since the engine's start."""
        return self.origin + self.seconds

    def begin(self) -> None:
        """A step begins."""
        self._began = self.seconds
        self.steps += 1

    def verified(self, tokens: int) -> None:
        """Pay for `tokens`."""
        self.seconds += self._table.verify_seconds(tokens)

    def drafted(self, requests: int, depth: int) -> None:
        """Pay for the drafts."""
        self.seconds += self._table.draft_seconds(requests, depth)

    def elapsed(self) -> float:
        """Virtual seconds since the step began."""
        return self.seconds - self._began


class PacedClock:
    """This machine's time, but nothing is faster than the table says. Work that takes longer is counted."""

    emulated = False
    # A sleep ends late, by milliseconds on a busy machine, and between two steps messages are read. A step that follows
    # within this time begins when the one before it was due, else these moments would add up.
    SLACK = 0.005  # s

    def __init__(
        self,
        costs: StepCosts,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.costs: StepCosts | None = costs
        self.steps = self.overran = 0
        self.behind = 0.0  # s, of all that overran
        self._table, self._clock, self._sleep = costs, clock, sleep
        self._due = self._began = self._ended = self._late = 0.0

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def begin(self) -> None:
        """A step begins."""
        now = self._clock()
        self._began = self._due if now - self._ended < self.SLACK else now
        self._due, self._late = self._began, 0.0

    def verified(self, tokens: int) -> None:
        """Wait until the target would have been ready."""
        self._wait(self._table.verify_seconds(tokens))

    def drafted(self, requests: int, depth: int) -> None:
        """Wait until the drafter would have been ready."""
        self._wait(self._table.draft_seconds(requests, depth))
        self._ended = self._clock()
        self.steps += 1
        if self._late:
            self.overran += 1
            self.behind += self._late

    def elapsed(self) -> float:
        """Seconds since the step began."""
        return self._clock() - self._began

    def report(self) -> dict[str, float | int]:
        """What the trace says about the pace: steps, how many took longer than the table, and by how much in all."""
        return {"steps": self.steps, "overran": self.overran, "behind": round(self.behind, 4)}

    def _wait(self, seconds: float) -> None:
        self._due += seconds
        left = self._due - self._clock()
        if left > 0:
            self._sleep(left)
        elif left < -self.SLACK:
            self._late -= left
            self._due -= left
