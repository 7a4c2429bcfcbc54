"""From a prompt and a cell's request to what the engine core gets, as over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from avbench.reference.emulate_job import CellJob, Draw
from avbench.reference.fields import ApiError
from avbench.reference.messages import Submit
from avbench.reference.protocol import fitting_max_tokens, parse_call
from avbench.reference.tokens import ModelTokenizer

MODEL = "emulated"


class PromptDesk:
    """Tokenises the prompts of one cell, each once, and checks its requests."""

    def __init__(
        self, cell: CellJob, prompts: Mapping[str, Mapping[str, Any]], tokenizer: ModelTokenizer, *, context: int
    ) -> None:
        self._cell, self._prompts, self._tokenizer, self._context = cell, prompts, tokenizer, context
        self._ids: dict[str, tuple[int, ...]] = {}

    def submit(self, draw: Draw, request_id: int) -> Submit:
        """The request as the core gets it. Raises ApiError where the server would answer with an error."""
        body = {"model": MODEL, **self._cell.request, **self._prompts[draw.prompt_id], "seed": draw.seed}
        call = parse_call(orjson.dumps(body), chat=self._cell.chat, served=MODEL)
        prompt = self._tokens(draw.prompt_id)
        return Submit(
            request_id=request_id,
            prompt=prompt,
            max_tokens=fitting_max_tokens(call.max_tokens, len(prompt), self._context),
            temperature=call.temperature,
            top_p=call.top_p,
            seed=call.seed,
            ignore_eos=call.ignore_eos,
        )

    def _tokens(self, prompt_id: str) -> tuple[int, ...]:
        if prompt_id not in self._ids:
            self._ids[prompt_id] = self._tokenizer.encode(self._text(prompt_id), special=not self._cell.chat)
        return self._ids[prompt_id]

    def _text(self, prompt_id: str) -> str:
        prompt = self._prompts[prompt_id]
        if not self._cell.chat:
            return str(prompt["prompt"])
        try:
            return self._tokenizer.render(list(prompt["messages"]))
        except ValueError as error:
            raise ApiError(str(error), param="messages") from None
