"""Small questions to a server on this machine, without proxies and without the event loop."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing
from dataclasses import dataclass

HOST = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One HTTP answer; `status` is None when there was none and `text` then says why."""

    status: int | None
    text: str


def pick_port() -> int:
    """A port that is free now. The engine may still lose it to somebody else; `Server` then tries another."""
    with closing(socket.socket()) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def ask(port: int, path: str, timeout: float = 2.0) -> Answer:
    """GET `path`; never raises for a server that is absent, slow or broken."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Answer(status=response.status, text=response.read(1 << 20).decode(errors="replace"))
    except TimeoutError:
        return Answer(status=None, text="no answer in time")
    except (OSError, http.client.HTTPException) as error:
        return Answer(status=None, text=str(error) or type(error).__name__)
    finally:
        connection.close()


def served_models(port: int) -> tuple[str, ...] | None:
    """The model names that /v1/models lists; None if it gives no such list."""
    answer = ask(port, "/v1/models")
    try:
        return tuple(str(entry["id"]) for entry in json.loads(answer.text)["data"])
    except (ValueError, KeyError, TypeError):
        return None


def server_version(port: int) -> str | None:
    """What /version says; None if it does not."""
    answer = ask(port, "/version")
    try:
        return str(json.loads(answer.text)["version"])
    except (ValueError, KeyError, TypeError):
        return None
