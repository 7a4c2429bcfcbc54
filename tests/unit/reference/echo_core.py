"""A core without a model: each request gets its own prompt back, again and again, ECHO_TOKENS ids a step.

Environment: ECHO_TOKENS (3), ECHO_STEP_SECONDS (0.002), ECHO_LOAD_SECONDS (0), ECHO_CONTEXT (4096), ECHO_FAIL (fail to
load), ECHO_DEAF (ignore Shutdown). Writes `echo core PID` on stderr.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from avbench.reference.corelink import CoreLink
from avbench.reference.messages import (
    Abort,
    FinishReason,
    Ready,
    RequestTokens,
    Shutdown,
    SpecStep,
    StepOutput,
    Submit,
)
from avbench.reference.options import parse_options

VOCABULARY = 400
EOS = 1


class EchoRequest:
    def __init__(self, submit: Submit) -> None:
        self.submit = submit
        self.done = 0

    def step(self, limit: int) -> RequestTokens:
        tokens: list[int] = []
        finish: FinishReason | None = None
        while len(tokens) < limit and finish is None:
            token = self.submit.prompt[self.done % len(self.submit.prompt)]
            tokens.append(token)
            self.done += 1
            if token == EOS and not self.submit.ignore_eos:
                finish = "stop"
            elif self.done == self.submit.max_tokens:
                finish = "length"
        return RequestTokens(request_id=self.submit.request_id, tokens=tuple(tokens), finish=finish)


class EchoCore:
    def __init__(self, link: CoreLink, slots: int, depth: int | None) -> None:
        self.link, self.slots, self.depth = link, slots, depth
        self.running: dict[int, EchoRequest] = {}
        self.waiting: dict[int, EchoRequest] = {}
        self.tokens = int(os.environ.get("ECHO_TOKENS", "3"))
        self.seconds = float(os.environ.get("ECHO_STEP_SECONDS", "0.002"))

    def loop(self) -> None:
        while True:
            for message in self.link.receive_all(block=not (self.running or self.waiting)):
                if isinstance(message, Submit):
                    self.waiting[message.request_id] = EchoRequest(message)
                elif isinstance(message, Abort):
                    self.running.pop(message.request_id, None)
                    self.waiting.pop(message.request_id, None)
                elif isinstance(message, Shutdown) and "ECHO_DEAF" not in os.environ:
                    return
            self.step()
            time.sleep(self.seconds)

    def step(self) -> None:
        prompt_tokens = 0
        while self.waiting and len(self.running) < self.slots:
            request_id = next(iter(self.waiting))
            self.running[request_id] = self.waiting.pop(request_id)
            prompt_tokens += len(self.running[request_id].submit.prompt)
        outputs = [request.step(self.tokens) for request in self.running.values()]
        for output in outputs:
            if output.finish is not None:
                del self.running[output.request_id]
        self.link.send(
            StepOutput(
                requests=tuple(outputs),
                running=len(self.running),
                waiting=len(self.waiting),
                prompt_tokens=prompt_tokens,
                spec=None if self.depth is None else self.spec(outputs, self.depth),
            )
        )

    def spec(self, outputs: list[RequestTokens], depth: int) -> SpecStep:
        accepted = [min(len(output.tokens) - 1, depth) for output in outputs]
        return SpecStep(
            drafts=len(outputs),
            draft_tokens=len(outputs) * depth,
            verified=sum(accepted) + len(outputs),
            accepted=sum(accepted),
            accepted_per_position=tuple(sum(count > position for count in accepted) for position in range(depth)),
        )


def main() -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr.write(f"echo core {os.getpid()}\n")
    if "ECHO_FAIL" in os.environ:
        sys.stderr.write("error: the echo has no voice\n")
        return 3
    options = parse_options(sys.argv[3:])
    link = CoreLink.from_fd(int(sys.argv[2]))
    time.sleep(float(os.environ.get("ECHO_LOAD_SECONDS", "0")))
    context = int(os.environ.get("ECHO_CONTEXT", "4096"))
    try:
        link.send(Ready(vocabulary=VOCABULARY, max_model_len=context, eos_token_id=EOS))
        depth = None if options.speculative is None else options.speculative.num_speculative_tokens
        EchoCore(link, options.max_num_seqs, depth).loop()
    except EOFError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
