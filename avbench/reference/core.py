"""The engine step: schedule, run the target, verify, hand out tokens, draft."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from avbench.reference.clock import Clock, RealClock
from avbench.reference.llama import Llama
from avbench.reference.messages import RequestTokens, SpecStep, StepOutput, Submit
from avbench.reference.ragged import Ints, Ragged
from avbench.reference.sampling import Floats, Verdict, target_weights, verify
from avbench.reference.scheduler import Scheduler
from avbench.reference.sequence import Sequence
from avbench.reference.speculation import Speculator
from avbench.reference.trace import Trace
from avbench.reference.uniforms import request_key, uniforms

Emit = Callable[[StepOutput], None]


@dataclass(frozen=True, kw_only=True)
class _Step:
    """The rows of one step: decoding requests first, then those whose prompt is read."""

    sequences: list[Sequence]
    decoding: int
    slots: Ints  # [rows]
    scheduled: Ints  # [rows] drafts that could be verified
    admitted: Ints  # [rows] drafts that are


class EngineCore:
    """Continuous batching over one target, with or without speculation."""

    def __init__(
        self,
        target: Llama,
        speculation: Speculator,
        trace: Trace,
        *,
        slots: int,
        length: int,
        seed: int,
        clock: Clock | None = None,
    ) -> None:
        self._target, self._speculation, self._trace = target, speculation, trace
        self._clock = RealClock() if clock is None else clock
        self._length = length
        self._scheduler = Scheduler(slots)
        self._eos = frozenset(target.shape.eos_token_ids)
        self._seeds = random.Random(seed)  # keys of requests that bring no seed
        self._keys = np.zeros(slots, np.uint64)
        self._steps = np.zeros(slots, np.int64)
        self._temperature = np.ones(slots, np.float32)
        self._top_p = np.ones(slots, np.float32)
        self._k = speculation.k
        self._step_number = 0

    @property
    def idle(self) -> bool:
        """No request runs or waits."""
        return self._scheduler.idle

    def add(self, submit: Submit) -> None:
        """Queue a request."""
        seed = submit.seed if submit.seed is not None else self._seeds.getrandbits(64)
        prompt = np.array(submit.prompt, np.uint32).tobytes()
        self._scheduler.add(Sequence(submit, request_key(seed, prompt)))

    def abort(self, request_id: int) -> None:
        """Drop a request; its slot is free for the next step."""
        self._scheduler.abort(request_id)

    @property
    def unwritten(self) -> bool:
        """There is something to `flush`."""
        return self._speculation.unwritten

    def flush(self) -> None:
        """Write what was gathered: the steps of the trace, and labelled drafts."""
        self._trace.flush()
        self._speculation.flush()

    def standing(self) -> StepOutput:
        """Who runs and waits, when that changed without a step: the last requests were aborted."""
        running, waiting = len(self._scheduler.running), self._scheduler.waiting
        return StepOutput(requests=(), running=running, waiting=waiting, prompt_tokens=0, spec=None)

    def step(self, emit: Emit) -> None:
        """One engine step. Tokens are emitted before the next drafts are made: a stream should not wait for those."""
        self._clock.begin()
        step = self._schedule()
        draws = uniforms(self._keys[step.slots], self._steps[step.slots], 2 * self._k + 1)
        self._steps[step.slots] += 1
        verdict, states = self._verify(step, draws)
        going_on = self._commit(step, verdict, emit)
        self._speculation.observe(
            self._step_number,
            step.slots,
            scheduled=step.scheduled,
            verified=step.admitted,
            accepted=verdict.accepted,
        )
        self._draft(step, going_on, states, draws)
        self._trace.step(
            self._step_number,
            self._clock.elapsed(),
            requests=len(step.sequences),
            scheduled=int(step.scheduled.sum()),
            admitted=int(step.admitted.sum()),
        )
        self._step_number += 1

    def _schedule(self) -> _Step:
        started = self._scheduler.start()
        for sequence in started:
            self._enter(sequence)
        decoding = sorted((s for s in self._scheduler.running.values() if not s.is_new), key=lambda s: s.slot)
        sequences = decoding + started
        slots = np.array([s.slot for s in sequences])
        lengths = np.array([s.length for s in sequences])
        scheduled = np.minimum(self._speculation.made[slots], self._length - lengths)
        scheduled[len(decoding) :] = 0
        plain_tokens = np.where(np.arange(len(slots)) < len(decoding), 1, lengths)
        admitted = self._speculation.admit(slots, scheduled, plain_tokens)
        return _Step(sequences=sequences, decoding=len(decoding), slots=slots, scheduled=scheduled, admitted=admitted)

    def _enter(self, sequence: Sequence) -> None:
        slot = sequence.slot
        self._keys[slot], self._steps[slot] = sequence.key, 0
        self._temperature[slot], self._top_p[slot] = sequence.temperature, sequence.top_p
        self._speculation.enter(slot, request=sequence.request_id, temperature=sequence.temperature)

    def _verify(self, step: _Step, draws: Floats) -> tuple[Verdict, torch.Tensor]:
        """The target's decisions, and what it knew when it drew each row's last token ([rows, width])."""
        batch = self._batch(step)
        hidden = self._target.forward(batch)
        flat_decoding = int(batch.offsets[step.decoding])
        wanted = torch.cat((torch.arange(flat_decoding), batch.last[step.decoding :]))
        logits = self._target.logits(hidden if len(wanted) == len(hidden) else hidden.index_select(0, wanted))
        counts = step.admitted + 1
        per_row = np.repeat(step.slots, counts)
        p = target_weights(logits, self._temperature[per_row], self._top_p[per_row])
        offsets = np.cumsum(counts) - counts
        drafts = self._speculation.drafts(step.slots, step.admitted)
        verdict = verify(p, offsets, drafts, draws[:, : self._k], draws[:, self._k])
        self._clock.verified(len(batch.tokens))
        return verdict, self._target.states(hidden, wanted[torch.from_numpy(offsets + verdict.accepted)])

    def _batch(self, step: _Step) -> Ragged:
        """Decoding rows bring their last token and the admitted drafts, new rows their prompt."""
        parts, counts, starts = [], step.admitted + 1, np.zeros(len(step.slots), np.int64)
        for i, sequence in enumerate(step.sequences):
            if i < step.decoding:
                starts[i] = sequence.length - 1
                parts.append(sequence.known[-1:])
                if step.admitted[i]:
                    parts.append(self._speculation.tokens[sequence.slot, : step.admitted[i]])
            else:
                counts[i] = sequence.prompt_length
                parts.append(sequence.known)
        return Ragged(tokens=np.concatenate(parts), slots=step.slots, starts=starts, counts=counts)

    def _commit(self, step: _Step, verdict: Verdict, emit: Emit) -> Ints:
        """Append tokens, end requests, send the step's output; returns the rows that go on."""
        outputs, going_on = [], []
        accepted = verdict.accepted.tolist()
        final = verdict.token.tolist()
        for i, sequence in enumerate(step.sequences):
            tokens = [*self._speculation.tokens[sequence.slot, : accepted[i]].tolist(), final[i]]
            kept, finish = sequence.extend(tokens, self._eos)
            outputs.append(RequestTokens(request_id=sequence.request_id, tokens=kept, finish=finish))
            if finish is None:
                going_on.append(i)
            else:
                self._scheduler.finish(sequence)
        emit(
            StepOutput(
                requests=tuple(outputs),
                running=len(going_on),
                waiting=self._scheduler.waiting,
                prompt_tokens=sum(s.prompt_length for s in step.sequences[step.decoding :]),
                spec=self._spec_step(step, verdict) if self._k else None,
            )
        )
        return np.array(going_on, np.int64)

    def _spec_step(self, step: _Step, verdict: Verdict) -> SpecStep:
        return SpecStep(
            drafts=int((step.scheduled > 0).sum()),
            draft_tokens=int(step.scheduled.sum()),
            verified=int(step.admitted.sum()),
            accepted=int(verdict.accepted.sum()),
            accepted_per_position=tuple((verdict.accepted[:, None] > np.arange(self._k)).sum(0).tolist()),
        )

    def _draft(self, step: _Step, going_on: Ints, states: torch.Tensor, draws: Floats) -> None:
        order = going_on[np.argsort(step.slots[going_on])]
        self._speculation.propose(
            known=[step.sequences[i].known for i in order],
            slots=step.slots[order],
            states=states[torch.from_numpy(order)],
            temperature=self._temperature[step.slots[order]],
            u=draws[order, self._k + 1 :],
        )
        depth = int(self._speculation.made[step.slots[order]].max()) if len(order) else 0
        self._clock.drafted(len(order), depth)
