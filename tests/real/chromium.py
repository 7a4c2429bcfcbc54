"""A headless Chromium driven over its DevTools protocol: enough to open a file, look at it and listen to it."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # runs as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
LIMIT = 180.0  # s; a busy machine takes half a minute to parse 5 MB of script


def find_chromium() -> str | None:
    """Path of a browser, None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab. `problems` are console errors and exceptions, `requests` the addresses it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._reader = asyncio.create_task(self._read())

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; raises RuntimeError with the browser's words if it fails."""
        self._number += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._number] = answer
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, LIMIT)

    async def prepare(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Sets the window's size and theme and starts to listen."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[theme])

    async def open(self, path: Path) -> None:
        """Loads a file and waits for its load event."""
        self._loaded.clear()
        await self.call("Page.navigate", url=path.resolve().as_uri())
        await asyncio.wait_for(self._loaded.wait(), LIMIT)

    async def run(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises awaited."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    async def until(self, expression: str, seconds: float = LIMIT) -> None:
        """Waits until a JavaScript expression is true."""
        for _ in range(int(seconds / 0.1)):
            if await self.run(expression):
                return
            await asyncio.sleep(0.1)
        raise TimeoutError(f"`{expression}` did not come true within {seconds} s")

    async def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    async def _read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                self._answer(event)
            else:
                self._note(event["method"], event.get("params", {}))

    def _answer(self, event: dict[str, Any]) -> None:
        waiting = self._answers.pop(event["id"])
        if waiting.done():
            return
        if "error" in event:
            waiting.set_exception(RuntimeError(event["error"]["message"]))
        else:
            waiting.set_result(event["result"])

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(event["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(event["args"])[:500])
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.problems.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])


class Browser:
    """One process with an empty profile. `start` and `stop` may be called once each."""

    def __init__(self, executable: str) -> None:
        self._executable = executable
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self._address = ""

    async def start(self) -> None:
        """Returns when the browser listens."""
        self._process = await asyncio.create_subprocess_exec(
            self._executable,
            *FLAGS,
            f"--user-data-dir={self._profile.name}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        port = await _debugging_port(Path(self._profile.name) / "DevToolsActivePort", self._process)
        self._address = f"http://127.0.0.1:{port}"
        self._session = aiohttp.ClientSession()

    async def new_page(self, **window: Any) -> Page:
        """A tab of its own; see `Page.prepare` for `window`."""
        assert self._session is not None
        async with self._session.put(f"{self._address}/json/new?about:blank") as answer:
            address = (await answer.json())["webSocketDebuggerUrl"]
        page = Page(await self._session.ws_connect(address, max_msg_size=0))
        await page.prepare(**window)
        return page

    async def stop(self) -> None:
        """Ends the process and removes its profile."""
        if self._session is not None:
            await self._session.close()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        self._profile.cleanup()


async def _debugging_port(file: Path, process: asyncio.subprocess.Process) -> int:
    for _ in range(int(LIMIT / 0.1)):
        if process.returncode is not None:
            raise RuntimeError(f"the browser ended at once with {process.returncode}")
        if file.is_file() and (lines := file.read_text().split()):
            return int(lines[0])
        await asyncio.sleep(0.1)
    raise TimeoutError("the browser did not open its debugging port")
