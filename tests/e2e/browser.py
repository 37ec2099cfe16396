"""A headless Chromium, driven over a pipe by its DevTools protocol."""

import json
import os
import select
import shutil
import signal
import subprocess
import time

PROGRAMS = ["chromium", "chromium-shell", "chromium-browser", "google-chrome"]
SECONDS = 60


def find_browser():
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Browser:
    """`with Browser(folder) as browser:`; `folder` is for what it keeps."""

    def __init__(self, folder):
        to_browser, self.commands = os.pipe()
        self.answers, from_browser = os.pipe()
        # It reads commands from descriptor 3 and writes answers to descriptor 4.
        redirect = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                   f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", redirect, find_browser(), *options],
                                        pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.unread, self.number, self.session, self.events = b"", 0, {}, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)  # its helpers too
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **self.session}
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def read(self):
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.answers], [], [], SECONDS)
            assert ready, "the browser does not answer"
            received = os.read(self.answers, 1 << 16)
            assert received, "the browser ended"
            self.unread += received
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, width=1600, dark=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")
        self.resize(width)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("location.protocol === 'file:' && document.readyState === 'complete'")

    def resize(self, width):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression):
        """Until the expression is true."""
        deadline = time.monotonic() + SECONDS
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)

    def complaints(self):
        """Exceptions, and what was written to the console."""
        return [event for event in self.events
                if event.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")]

    def requested(self):
        """The URLs that the pages asked for."""
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]
