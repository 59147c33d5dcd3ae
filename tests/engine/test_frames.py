"""Functions that a request passes through in one single-turn rollout of `bench run`, as the server sees them."""

from __future__ import annotations

from pathlib import Path

from bench_runs import Workshop

MOST = 20
"""Frames of `harness/` from the command to the HTTP request: those of the main thread's stack, and those of the task
that waits for the reply."""

WATCH = """
import asyncio, json, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
import harness
from harness.cli.main import main

HOUSE = Path(harness.__file__).parent
seen = []

def ours(code):
    file = Path(code.co_filename)
    return [f"{file.relative_to(HOUSE)}:{code.co_qualname}"] if HOUSE in file.parents else []

def stack():
    frame, found = sys._current_frames()[threading.main_thread().ident], []
    while frame is not None:
        found += ours(frame.f_code)
        if frame.f_code is asyncio.BaseEventLoop.run_forever.__code__:
            found.clear()  # what a callback of the loop is doing at this moment
        frame = frame.f_back
    return found[::-1]

def awaits(task):
    waiting, found, is_http = task.get_coro(), [], False
    while waiting is not None:
        codes = [code for name in ("cr_code", "gi_code", "ag_code") if (code := getattr(waiting, name, None))]
        for code in codes:
            found += ours(code)
            is_http |= "aiohttp" in code.co_filename
        names = ("cr_await", "gi_yieldfrom", "ag_await")
        waiting = next((after for name in names if (after := getattr(waiting, name, None)) is not None), None)
    return found if is_http else []

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        tasks = [task for task in list(asyncio.tasks._all_tasks) if not task.done()]
        [chain] = [found for task in tasks if (found := awaits(task))]
        seen.append([*stack(), *chain])
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "0"}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        body = json.dumps({"model": "m", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
stdout = os.dup(1)
os.dup2(2, 1)
sys.argv = ["bench", "run", "sums", "-n", "1", "-r", "1", "-m", "m", "-b", f"http://127.0.0.1:{server.server_port}/v1"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
os.write(stdout, json.dumps(seen).encode())
"""


def test_a_request_passes_through_few_functions(tmp_path: Path) -> None:
    [frames] = Workshop(tmp_path).python(WATCH)
    assert frames[0] == "cli/main.py:main" and "models/" in frames[-1], frames
    assert len(frames) <= MOST, "\n".join(frames)
