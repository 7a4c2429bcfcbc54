"""From token ids to text, as they come: whole characters only, and cut at a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence


class TextStream:
    """The text of one request. O(1) amortised per token.

    A token of a byte-level vocabulary is a fixed string of bytes, so decoding is a UTF-8 decoder that keeps the bytes
    of an unfinished character: the deltas joined are the decode of all ids, whatever bytes the model emits. (Decoding
    a window of ids again, the usual way, costs more and stalls on a run of invalid bytes.)

    With stop strings the last `longest - 1` characters are held back, as vLLM does: they may be the start of one.
    """

    def __init__(self, pieces: Mapping[int, bytes], stop: Sequence[str] = ()) -> None:
        self._pieces = pieces
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._stop = tuple(stop)
        self._hold = max((len(string) - 1 for string in stop), default=0)
        self._held = ""
        self.stop_reason: str | None = None

    def push(self, tokens: Sequence[int], last: bool) -> str:
        """The text that `tokens` make final; with `last` everything that is left. Ids without a piece have no text.

        After a stop string was found (`stop_reason` is set) the text ends before it and nothing more is to be pushed.
        """
        piece = self._pieces.get
        text = self._decode(b"".join([piece(token, b"") for token in tokens]), last)
        return self._until_stop(text, last) if self._stop else text

    def _until_stop(self, text: str, last: bool) -> str:
        text = self._held + text
        found = [(at, string) for string in self._stop if (at := text.find(string)) >= 0]
        if found:
            at, self.stop_reason = min(found)
            return text[:at]
        final = len(text) if last else max(len(text) - self._hold, 0)
        self._held = text[final:]
        return text[:final]
