"""A page in a browser without windows, driven through the DevTools protocol over a pair of pipes.

The protocol is JSON with a zero byte after each message, so that no library for WebSockets is needed.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from tools.browser import Browser

# A browser that has not answered by then hangs.
SECONDS = 60.0
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars")
# The browser reads from file descriptor 3 and writes to 4.
START = """
import fcntl, os, sys
incoming, outgoing = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(incoming, 3)
os.dup2(outgoing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Page:
    """One page. Used in a `with` statement, which ends the browser.

    Attributes
    ----------
    messages : list of str
        What the page wrote to its console, the errors of its script, and every address that it asked for.
    """

    def __init__(self, browser: Browser) -> None:
        self.messages: list[str] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._loaded = threading.Event()
        self._arrived = threading.Condition()
        self._count = 0
        self._profile = tempfile.TemporaryDirectory(prefix="dmlvk-browser-")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 closed with the browser
        incoming, self._to = os.pipe()
        self._from, outgoing = os.pipe()
        command = [str(browser.program), *OPTIONS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(incoming), str(outgoing), *command],
            env={**os.environ, **browser.variables},
            pass_fds=(incoming, outgoing),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        os.close(incoming)
        os.close(outgoing)
        threading.Thread(target=self._read, daemon=True).start()
        self._session = ""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")

    def _read(self) -> None:
        with os.fdopen(self._from, "rb") as pipe:
            rest = b""
            while part := pipe.read1(1 << 16):
                *messages, rest = (rest + part).split(b"\0")
                for message in messages:
                    self._receive(json.loads(message))
        self._process.wait()
        with self._arrived:
            self._arrived.notify_all()

    def _receive(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(f"console: {[each.get('value') for each in parameters['args']]}")
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.messages.append(f"error: {details.get('exception', details).get('description', details)}")
        elif method == "Log.entryAdded":
            self.messages.append(f"log: {parameters['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            address = parameters["request"]["url"]
            if not address.startswith(("file:", "data:")):  # what a page has in itself is no request
                self.messages.append(f"request: {address}")
        with self._arrived:
            if "id" in message:
                self._answers[message["id"]] = message
            self._arrived.notify_all()

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and wait for its result."""
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        with self._arrived:
            self._arrived.wait_for(lambda: number in self._answers or self._process.poll() is not None, SECONDS)
            if number not in self._answers:
                self._errors.seek(0)
                errors = self._errors.read().decode(errors="replace")[-2000:]
                raise TimeoutError(f"the browser did not answer {method} within {SECONDS:.0f} s: {errors}")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def open(self, path: Path, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Show a file in a window of some width, and wait until it is loaded."""
        self._send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded.clear()
        self._send("Page.navigate", url=path.resolve().as_uri())
        if not self._loaded.wait(SECONDS):
            raise TimeoutError(f"{path} was not loaded within {SECONDS:.0f} s")

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript on the page."""
        answer = self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press and release the mouse in the middle of an element."""
        name = json.dumps(selector)
        place = self.value(
            f"(() => {{ const e = document.querySelector({name}); e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def enter(self, selector: str, text: str) -> None:
        """Put the focus on a field and type into it."""
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        self._send("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option, as a user's choice announces it."""
        name, chosen = json.dumps(selector), json.dumps(value)
        self.value(
            f"(() => {{ const e = document.querySelector({name}); e.value = {chosen};"
            f" if (e.value !== {chosen}) throw new Error('no such option');"
            " e.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of the window, or of the whole page."""
        answer = self._send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        self._errors.close()
        self._profile.cleanup()
