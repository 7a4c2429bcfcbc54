"""One request inside the engine core."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avbench.reference.messages import FinishReason, Submit


class Sequence:
    """Prompt and output tokens of a request, and the slot it occupies once it runs."""

    def __init__(self, submit: Submit, key: np.uint64) -> None:
        self.request_id = submit.request_id
        self.temperature = submit.temperature
        self.top_p = submit.top_p
        self.key = key
        self.slot = -1
        self._ignore_eos = submit.ignore_eos
        self._prompt = len(submit.prompt)
        self._end = self._prompt + submit.max_tokens
        self._tokens = np.empty(self._end, np.int64)
        self._tokens[: self._prompt] = submit.prompt
        self.length = self._prompt

    @property
    def known(self) -> NDArray[np.int64]:
        """Prompt and output so far."""
        return self._tokens[: self.length]

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return self._prompt

    @property
    def is_new(self) -> bool:
        """Nothing has been generated yet."""
        return self.length == self._prompt

    def extend(self, tokens: list[int], eos: frozenset[int]) -> tuple[tuple[int, ...], FinishReason | None]:
        """Append what is still wanted of `tokens`; return it, and why the request ends if it does."""
        kept = tokens[: self._end - self.length]
        finish: FinishReason | None = None
        if not self._ignore_eos:
            for i, token in enumerate(kept):
                if token in eos:
                    kept, finish = kept[: i + 1], "stop"
                    break
        self._tokens[self.length : self.length + len(kept)] = kept
        self.length += len(kept)
        if finish is None and self.length == self._end:
            finish = "length"
        return tuple(kept), finish
