"""Looks at pages of `plimsoll plan --html` and `bench --html` in a browser: three widths, light and dark, the keyboard alone, frames.

    python scripts/check_page.py PAGE... [--shots FOLDER]

Needs chromedriver and Chromium (Debian: chromium, chromium-driver), and nothing else: it speaks WebDriver by the standard library. Exit
status 1 where a page fails, with the reasons; 0 with a note where there is no browser.
"""

import argparse
import base64
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

WIDTHS = (390, 820, 1440)
# Frames while zooming and moving: no slower than this many milliseconds for nine of ten.
FRAME_MS = 50.0
OPEN_MS = 1000.0

FRAMES = """
const done = arguments[0], canvas = document.querySelector("canvas.memory");
const box = canvas.getBoundingClientRect(), times = [];
let step = 0, last = performance.now();
function frame(now) {
  times.push(now - last);
  last = now;
  const turn = step % 60, options = { bubbles: true, cancelable: true, clientX: box.left + box.width / 2, clientY: box.top + 100 };
  if (turn < 40) canvas.dispatchEvent(new WheelEvent("wheel", { ...options, ctrlKey: true, deltaY: turn < 20 ? -60 : 60 }));
  else canvas.dispatchEvent(new WheelEvent("wheel", { ...options, shiftKey: true, deltaY: turn < 50 ? 40 : -40 }));
  if (++step < 180) requestAnimationFrame(frame); else done(times.slice(2));
}
requestAnimationFrame(frame);
"""

SCROLL = """
const done = arguments[0], times = [];
let step = 0, last = performance.now();
function frame(now) {
  times.push(now - last);
  last = now;
  window.scrollBy(0, step < 60 ? 25 : -25);
  if (++step < 120) requestAnimationFrame(frame); else done(times.slice(2));
}
requestAnimationFrame(frame);
"""

WIDER = """
return [...document.querySelectorAll("main *")].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.right > document.documentElement.clientWidth + 1 && !element.closest(".rows");
}).slice(0, 5).map((element) => element.tagName + "." + element.className);
"""


class Browser:
    """A session of WebDriver."""

    def __init__(self, dark):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = ["chromedriver", f"--port={port}", "--silent"]
        self.driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.base = f"http://127.0.0.1:{port}"
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        arguments.append(f"--blink-settings=preferredColorScheme={0 if dark else 1}")
        capabilities = {"goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        for _ in range(100):
            try:
                answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        else:
            raise SystemExit("chromedriver does not answer")
        self.base += f"/session/{answer['sessionId']}"

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.base + path, data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, page):
        self.call("POST", "/url", {"url": page.resolve().as_uri()})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_until_done(self, script):
        return self.call("POST", "/execute/async", {"script": script, "args": []})

    def width(self, width, height=1000):
        self.call("POST", "/window/rect", {"width": width, "height": height})
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})
        time.sleep(0.3)

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def complaints(self):
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def shot(self, path):
        height = min(6000, int(self.run("return document.documentElement.scrollHeight")))
        width = int(self.run("return window.innerWidth"))
        self.width(width, height)
        path.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))
        self.width(width)

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()


TAB, RIGHT, LEFT, UP, DOWN, ESCAPE, HOME, END, ENTER = (
    "\ue004", "\ue014", "\ue012", "\ue013", "\ue015", "\ue00c", "\ue011", "\ue010", "\ue007")


def keyboard(browser):
    """What fails by keyboard alone."""
    failures = []
    browser.run("document.activeElement.blur(); window.scrollTo(0, 0);")
    seen = []
    for _ in range(40):
        browser.press(TAB)
        seen.append(browser.run("const at = document.activeElement; return at.tagName + '.' + at.className"))
        if seen[-1] == "CANVAS.plot memory":
            break
    else:
        return [f"the picture is not reached by Tab: {seen}"]
    spoken = "return document.querySelector('[aria-live]').textContent"
    has_commands = browser.run("return document.querySelector('canvas.queue') !== null")
    if not has_commands:
        return []
    browser.press(HOME)
    first = browser.run(spoken)
    browser.press(RIGHT)
    second = browser.run(spoken)
    if not first.startswith("command 1 of") or (second == first and " of 1," not in first):
        failures.append(f"arrows: {first!r}, then {second!r}")
    browser.press("p")
    has_buffers = browser.run("return document.querySelector('.side li button') !== null")
    browser.press(UP)
    chosen = browser.run("const chosen = document.querySelector('.chosen'); return chosen && chosen.textContent")
    if has_buffers and (not chosen or "written by" not in chosen and "used by" not in chosen):
        failures.append(f"a buffer is not chosen by the keyboard: {chosen!r}")
    browser.press("+", "+", "0", "t", ESCAPE)
    if browser.run("return document.querySelector('.chosen') !== null"):
        failures.append("Escape leaves the buffer chosen")
    # Tables open by the keyboard, and have a row for everything.
    for _ in range(60):
        browser.press(TAB)
        if browser.run("return document.activeElement.tagName === 'SUMMARY'"):
            break
    else:
        return failures + ["no table is reached by Tab"]
    title = browser.run("return document.activeElement.textContent")
    browser.press(ENTER)
    for _ in range(50):
        rows = browser.run("return document.activeElement.closest('details').querySelectorAll('tbody tr').length")
        if f"{rows:,} row" in title:
            break
        time.sleep(0.2)
    else:
        failures.append(f"{title!r} has {rows} rows")
    # The other ones open too, and keep the focus.
    browser.run("document.activeElement.blur(); document.querySelectorAll('details').forEach((one) => { one.open = false; });")
    opened, tables = 0, browser.run("return document.querySelectorAll('details').length")
    for _ in range(200):
        if opened == tables:
            break
        browser.press(TAB)
        place = browser.run("const at = document.activeElement; return at.tagName + (at.parentElement && at.parentElement.open)")
        if place != "SUMMARYfalse":
            continue
        browser.press(ENTER)
        time.sleep(0.1)
        opened += 1
        shown = "const of = document.activeElement.closest('details'); return of && of.querySelector('tbody tr, li') !== null"
        if not browser.run(shown):
            failures.append(f"table {opened} is empty once it is opened, or loses the focus")
    if opened < tables:
        failures.append(f"{opened} of {tables} tables are opened by keyboard alone")
    return failures


def choosers(browser):
    """What fails of the boxes that choose a model, an N or a stage, by keyboard alone."""
    failures = []
    for label in browser.run("return [...document.querySelectorAll('header select')].map((box) => box.ariaLabel)"):
        browser.run("document.activeElement.blur(); window.scrollTo(0, 0);")
        for _ in range(10):
            browser.press(TAB)
            if browser.run("return document.activeElement.ariaLabel") == label:
                break
        else:
            failures.append(f"the box {label!r} is not reached by Tab")
            continue
        chosen = "const box = document.activeElement; return box.ariaLabel + ' ' + box.value"
        before = browser.run(chosen)
        browser.press(DOWN if before.endswith(" 0") else UP)
        after = browser.run(chosen)
        if after == before or not after.startswith(label):
            failures.append(f"the box {label!r} is {before!r} and then {after!r}")
    return failures


def quantile(times, part):
    return sorted(times)[int(part * (len(times) - 1))]


def look(browser, page, scheme, shots):
    """What fails of a page."""
    failures = []
    for width in WIDTHS:
        browser.width(width)
        browser.open(page)
        wider = browser.run(WIDER)
        if wider:
            failures.append(f"at {width} something is wider than the page: {wider}")
        if shots:
            browser.shot(shots / f"{page.stem}-{width}-{scheme}.png")
    taken = browser.run("const [it] = performance.getEntriesByType('navigation'); return it.loadEventEnd - it.startTime")
    zoom, scroll = browser.run_until_done(FRAMES), browser.run_until_done(SCROLL)
    said = f"{page.name} {scheme}: {page.stat().st_size} bytes, open after {taken:.0f} ms; frames while zooming: "
    said += f"median {quantile(zoom, .5):.1f} ms, nine of ten within {quantile(zoom, .9):.1f} ms, slowest {max(zoom):.1f} ms; "
    said += f"scrolling: median {quantile(scroll, .5):.1f} ms, nine of ten within {quantile(scroll, .9):.1f} ms"
    print(said)
    if taken > OPEN_MS:
        failures.append(f"it takes {taken:.0f} ms to open")
    for what, times in (("zooming", zoom), ("scrolling", scroll)):
        if quantile(times, 0.9) > FRAME_MS:
            failures.append(f"frames while {what} take {quantile(times, .9):.0f} ms")
    if page.stat().st_size >= 1_000_000:
        failures.append("it has a megabyte or more")
    browser.open(page)
    failures += choosers(browser)
    browser.open(page)
    failures += keyboard(browser)
    failures += [f"the browser complains: {said}" for said in browser.complaints()]
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--shots", type=pathlib.Path, help="a folder for screenshots")
    asked = parser.parse_args()
    if shutil.which("chromedriver") is None:
        print("skipped: there is no chromedriver")
        return 0
    if asked.shots:
        asked.shots.mkdir(parents=True, exist_ok=True)
    failures = []
    for scheme in ("light", "dark"):
        browser = Browser(scheme == "dark")
        try:
            for page in asked.pages:
                failures += [f"{page.name} {scheme}: {reason}" for reason in look(browser, page, scheme, asked.shots)]
        finally:
            browser.close()
    for failure in failures:
        print("FAIL", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
