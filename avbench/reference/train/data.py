"""Tokens in memory and the batches drawn from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from avbench.reference.train.corpus import Document


@dataclass(frozen=True, kw_only=True)
class TokenStream:
    """Documents as one id array; `starts` holds the offset of each document and the end."""

    ids: np.ndarray  # [N] uint16
    starts: np.ndarray  # [documents + 1] int64

    @staticmethod
    def of(documents: list[Document], tokenizer: PreTrainedTokenizerFast) -> TokenStream:
        """Encode: begin token, text, end token, for each document in order."""
        encoded = tokenizer([d.text for d in documents])["input_ids"]
        eos = tokenizer.eos_token_id
        rows = [np.asarray([*row, eos], np.uint16) for row in encoded]
        starts = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
        return TokenStream(ids=np.concatenate(rows), starts=starts)

    def save(self, path: Path) -> None:
        """Write to `path` (.npz)."""
        np.savez(path, ids=self.ids, starts=self.starts)

    @staticmethod
    def load(path: Path) -> TokenStream:
        """Read what `save` wrote."""
        with np.load(path) as stored:
            return TokenStream(ids=stored["ids"], starts=stored["starts"])

    def epoch(self, seed: int) -> np.ndarray:
        """The same ids with the documents in a random order, [N] uint16."""
        order = np.random.default_rng(seed).permutation(len(self.starts) - 1)
        return np.concatenate([self.ids[self.starts[i] : self.starts[i + 1]] for i in order])


class Batches:
    """Endless batches of `[rows, length]` windows; epoch after epoch, reshuffled by epoch number."""

    def __init__(self, stream: TokenStream, *, seed: int, position: int = 0) -> None:
        self._stream = stream
        self._seed = seed
        self._epoch = -1
        self._ids = np.empty(0, np.uint16)
        self.position = position  # tokens handed out so far: all that a checkpoint needs

    def next(self, rows: int, length: int) -> torch.Tensor:
        """The next `rows * length` tokens as int64 `[rows, length]`."""
        size, total = rows * length, len(self._stream.ids)
        epoch, offset = divmod(self.position, total)
        if offset + size > total:  # the tail of an epoch is dropped
            epoch, offset = epoch + 1, 0
            self.position = epoch * total
        if epoch != self._epoch:
            self._ids, self._epoch = self._stream.epoch(self._seed + epoch), epoch
        self.position += size
        return torch.from_numpy(self._ids[offset : offset + size].astype(np.int64)).view(rows, length)
