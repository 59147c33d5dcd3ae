"""The web server of `bench view`: routes, checks of every request, static files, and answers as JSON."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias, cast

from aiohttp import web

from harness.core.errors import HarnessError, UsageError
from harness.core.types import JsonDict
from harness.plugins.view.access import SECURITY_HEADERS, Access, bracketed, refused
from harness.plugins.view.compare_page import SHOWN, SORTS, Examples, compare_page, pair_page, pair_step
from harness.plugins.view.events import stream
from harness.plugins.view.groups import frequent_values, groups_page
from harness.plugins.view.index_file import cache_folder
from harness.plugins.view.index_sweep import sweep
from harness.plugins.view.note_page import LARGEST_BODY, note_page, write_note
from harness.plugins.view.open_indexes import Indexes
from harness.plugins.view.rollout_page import rollout_page
from harness.plugins.view.run_index import RunIndex
from harness.plugins.view.run_info import run_info
from harness.plugins.view.run_list import MOST_COMPARED, RunList, RunNotFound, RunRemoved, listed
from harness.plugins.view.suite_table import SuiteTables
from harness.plugins.view.tables import Selection, examples_page, rollouts_page, step
from harness.store.atomic import translated
from harness.store.codec import to_text
from harness.store.query import QueryError
from harness.store.safe_files import refuse_links

logger = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
"""Folder with the page: HTML, scripts, styles, fonts."""

SHUTDOWN_TIMEOUT = 0.5
"""Seconds that open requests have to end when the server stops."""

PATIENCE = 0.5
"""Seconds for which an answer waits for an index that is being built."""

LINK_PATIENCE = 15.0
"""Seconds for which a link to a rollout waits for the index, if that does not have the rollout yet."""

_NAME = re.compile(r"[\w-][\w.-]*", re.ASCII)
"""Pattern of the parts of a static file's path: no hidden files, no parent folder."""

_TYPES = {
    ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css",
    ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2",
    ".json": "application/json", ".txt": "text/plain",
}  # fmt: skip
"""Content types of static files by suffix; other files are not served. Not taken from the machine's own table."""

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ViewServer:
    """The server: it listens on one address and shows the runs of a list.

    Args:
        runs: The runs to show.
        author: Author of the notes that are written.
    """

    def __init__(self, runs: RunList, author: str = "unknown") -> None:
        self.runs, self.author = runs, author
        self.indexes = Indexes()
        self._suite_tables = SuiteTables(runs)
        self._is_stopping = False
        self._access: Access | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start listening.

        Args:
            host: Address to listen on.
            port: Port to listen on; 0 picks a free one.

        Returns:
            The link to open, which contains the token.

        Raises:
            OSError: the address is in use or not on this machine.
        """

        @web.middleware
        async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._checked(request, handler)

        app = web.Application(middlewares=[checked], client_max_size=LARGEST_BODY)
        app.add_routes(
            [
                web.get("/api/runs", self._list),
                web.get("/api/runs/{run}", self._run),
                web.get("/api/runs/{run}/examples", self._page(examples_page)),
                web.get("/api/runs/{run}/rollouts", self._page(rollouts_page)),
                web.get("/api/runs/{run}/rollouts/{index}/{rollout}", self._rollout),
                web.get("/api/runs/{run}/notes/{index}/{rollout}", self._notes),
                web.post("/api/runs/{run}/notes/{index}/{rollout}", self._write_note),
                web.get("/api/runs/{run}/groups", self._groups),
                web.get("/api/runs/{run}/step", self._step),
                web.get("/api/compare", self._compare),
                web.get("/api/compare/step", self._compare_step),
                web.get("/api/compare/{index}", self._compared_example),
                web.get("/api/columns/{run}/values", self._values),
                web.get("/api/suites/{suite}/table", self._suite_table),
                web.get("/api/events", self._events),
                web.get("/{path:.*}", self._static),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        threading.Thread(target=sweep, args=[cache_folder()], name="sweep of old indexes", daemon=True).start()
        port = cast("int", runner.addresses[0][1])
        self._access = Access(host, port)
        return f"http://{bracketed(host)}:{port}/?token={self._access.token}"

    async def stop(self) -> None:
        """Stop listening and abort open requests."""
        self._is_stopping = True
        self.indexes.close()
        if self._runner is not None:
            server = self._runner.server
            await self._runner.cleanup()
            for _ in range(4):  # a connection that was accepted meanwhile is opened now, and closed with the others
                await asyncio.sleep(0)
            if server is not None:
                await server.shutdown(0)

    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check a request, answer it, and add the security headers."""
        response = self._refused(request) or await answered(request, handler)
        if not response.prepared:
            response.headers.update(SECURITY_HEADERS)
        return response

    def _refused(self, request: web.Request) -> web.Response | None:
        """Response to a request that is refused or that opens the link; None for all others."""
        access = self._access
        if access is None:
            return refused("The server is starting.")
        if reason := access.refusal(request):
            return refused(reason)
        if request.method not in ("GET", "HEAD"):
            if request.method != "POST" or request.match_info.http_exception is not None:
                return error_response(405, f"{request.method} is not supported.")
            if reason := access.refusal_to_write(request):
                return refused(reason)
        if request.path == "/" and access.is_valid(request.query.get("token")):
            return access.signed_in()
        return None if access.has_cookie(request) else refused()

    async def _list(self, request: web.Request) -> web.Response:
        return json_response(await asyncio.to_thread(listed, self.runs))

    def _page(self, page: Callable[[RunIndex, Selection, int, int], JsonDict]) -> Handler:
        """Make the handler of a table with pages."""

        async def handler(request: web.Request) -> web.Response:
            choice, offset, limit = selection(request), whole(request, "offset", 0), whole(request, "limit", 100)
            return await self._read(request, lambda index: page(index, choice, offset, limit))

        return handler

    async def _read(
        self, request: web.Request, read: Callable[[RunIndex], JsonDict | str], patience: float | None = None
    ) -> web.Response:
        """Answer with a value that a function reads from the index of the run. By default, the answer waits a moment
        for all of a short run, or for the beginning of a long one."""

        def reading() -> str:
            index = self.indexes.of(self.runs.find(request.match_info["run"]))
            index.wait(patience or PATIENCE, seen=0 if patience is None and index.is_long() else None)
            with index.reading():
                found = read(index)
            return found if isinstance(found, str) else to_text(found)

        return text_response(await asyncio.to_thread(reading))

    async def _run(self, request: web.Request) -> web.Response:
        def read(index: RunIndex) -> JsonDict:
            suite = index.manifest.suite
            others = [each for each in self.runs.entries() if suite and each.manifest and each.id != index.entry.id]
            siblings = [each.id for each in others if each.manifest and each.manifest.suite == suite]
            return run_info(index, index.entry, siblings)

        return await self._read(request, read)

    async def _groups(self, request: web.Request) -> web.Response:
        query, by, limit = request.query.get("q", ""), request.query.get("by", ""), whole(request, "limit", 50)
        return await self._read(request, lambda index: groups_page(index, query, by, limit))

    async def _values(self, request: web.Request) -> web.Response:
        name, prefix = request.query.get("name", ""), request.query.get("q", "")
        return await self._read(request, lambda index: frequent_values(index, name, prefix))

    async def _step(self, request: web.Request) -> web.Response:
        choice, by = selection(request), request.query.get("by", "example")
        if by not in ("example", "rollout", "failed"):
            raise BadRequest("The parameter `by` must be example, rollout or failed.")
        place, rollout = whole(request, "index", 0), whole(request, "r", 0)
        direction = -1 if request.query.get("dir") == "-1" else 1
        return await self._read(request, lambda index: step(index, choice, place, rollout, by, direction))

    async def _rollout(self, request: web.Request) -> web.Response:
        place, rollout = natural(request, "index"), natural(request, "rollout")
        is_whole = request.query.get("whole") == "1"

        def read(index: RunIndex) -> str:
            return rollout_page(index, place, rollout, whole=is_whole)

        try:
            return await self._read(request, read)
        except RunNotFound:
            return await self._read(request, read, LINK_PATIENCE)

    async def _compared(self, request: web.Request, read: Callable[[list[RunIndex]], JsonDict]) -> web.Response:
        """Answer with a value that a function reads from the indexes of several runs."""
        run_ids = list(dict.fromkeys(each for each in request.query.get("runs", "").split(",") if each))
        if not 2 <= len(run_ids) <= MOST_COMPARED:
            raise BadRequest(f"A comparison needs two different runs, and has at most {MOST_COMPARED}.")

        def reading() -> str:
            indexes = [self.indexes.of(self.runs.find(each)) for each in run_ids]
            for index in indexes:
                index.wait(PATIENCE)
            return to_text(read(indexes))

        return text_response(await asyncio.to_thread(reading))

    async def _compare(self, request: web.Request) -> web.Response:
        examples, measure = compared_examples(request), request.query.get("measure", "")
        offset, limit = whole(request, "offset", 0), whole(request, "limit", 100)
        return await self._compared(request, lambda indexes: compare_page(indexes, measure, examples, offset, limit))

    async def _compared_example(self, request: web.Request) -> web.Response:
        place, measure = natural(request, "index"), request.query.get("measure", "")

        def read(indexes: list[RunIndex]) -> JsonDict:
            found = pair_page(indexes, measure, place)
            if found is None:
                raise RunNotFound(f"The runs do not share the example at position {place} of {indexes[0].entry.id}.")
            return found

        return await self._compared(request, read)

    async def _compare_step(self, request: web.Request) -> web.Response:
        examples, measure = compared_examples(request), request.query.get("measure", "")
        place, by = whole(request, "index", 0), request.query.get("by", "example")
        if by not in ("example", "flip"):
            raise BadRequest("The parameter by is example or flip.")
        direction = -1 if request.query.get("dir") == "-1" else 1
        return await self._compared(
            request, lambda indexes: pair_step(indexes, measure, examples, place, by, direction)
        )

    async def _notes(self, request: web.Request) -> web.Response:
        place, rollout = natural(request, "index"), natural(request, "rollout")
        return await self._read(request, lambda index: note_page(index, place, rollout, self.author))

    async def _write_note(self, request: web.Request) -> web.Response:
        place, rollout = natural(request, "index"), natural(request, "rollout")
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return error_response(413, f"A note has at most {LARGEST_BODY:,} bytes.")

        def write(index: RunIndex) -> JsonDict:
            with translated("write", index.entry.run.path):
                refuse_links(self.runs.output_dir, index.entry.run.path)
            return write_note(index, place, rollout, self.author, body)

        return await self._read(request, write)

    async def _suite_table(self, request: web.Request) -> web.Response:
        return json_response(await asyncio.to_thread(self._suite_tables.of, request.match_info["suite"]))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        run_ids = [run_id for run_id in request.query.get("runs", "").split(",") if run_id]
        try:
            return await stream(request, self.runs, self.indexes, run_ids, lambda: self._is_stopping)
        except ConnectionResetError:
            return web.Response()  # the client has gone

    async def _static(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.match_info["path"].split("/") if part] or ["index.html"]
        path = STATIC.joinpath(*parts)
        known = all(_NAME.fullmatch(part) for part in parts) and path.suffix in _TYPES
        if not known or not await asyncio.to_thread(os.path.isfile, path):
            return error_response(404, f"There is no page {request.path}.")
        kind = _TYPES[path.suffix]
        charset = "; charset=utf-8" if kind.startswith("text/") else ""
        return web.FileResponse(path, headers={"Content-Type": kind + charset, "Cache-Control": "no-cache"})


async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request; an error becomes JSON with one sentence."""
    try:
        return await handler(request)
    except QueryError as error:
        return json_response({"error": str(error.problem), "start": error.start, "end": error.end}, 400)
    except BadRequest as error:
        return error_response(400, str(error))
    except RunNotFound as error:
        return error_response(410 if isinstance(error, RunRemoved) else 404, str(error))
    except UsageError as error:
        return error_response(400, str(error))
    except HarnessError as error:
        return error_response(500, str(error))
    except web.HTTPException as error:
        return error_response(error.status, f"There is no page {request.path}.")
    except Exception as error:
        logger.warning("%s %s: %s", request.method, request.path, error, exc_info=True)
        return error_response(500, f"The server failed to answer: {type(error).__name__}.")


class BadRequest(Exception):
    """A parameter of the request has a wrong value."""


def whole(request: web.Request, name: str, default: int) -> int:
    """Return a non-negative integer from the parameters of the request.

    Raises:
        BadRequest: it is not one.
    """
    text = request.query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest(f"The parameter {name} must be an integer, 0 or more.")
    return int(text)


def selection(request: web.Request) -> Selection:
    """Query and order among the parameters of the request."""
    query = request.query
    return Selection(query.get("q", ""), query.get("sort", ""), query.get("desc", "") == "1")


def compared_examples(request: web.Request) -> Examples:
    """Which examples of a comparison to show, from the parameters of the request.

    Raises:
        BadRequest: the order, or the choice of examples, is unknown.
    """
    found = Examples(selection(request), request.query.get("show", ""))
    for name, value, known in (("sort", found.choice.sort, SORTS), ("show", found.show, SHOWN)):
        if value not in known:
            raise BadRequest(f"The parameter {name} is one of: {', '.join(filter(None, known))}.")
    return found


def natural(request: web.Request, name: str) -> int:
    """Parse a part of the path as a non-negative integer.

    Raises:
        RunNotFound: the part is not such a number.
    """
    text = request.match_info[name]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise RunNotFound(f"There is no {name} {text}.")
    return int(text)


def json_response(value: object, status: int = 200) -> web.Response:
    """Return a response with a value as JSON."""
    return text_response(to_text(value), status)


def text_response(text: str, status: int = 200) -> web.Response:
    """Response with text that is already JSON."""
    return web.Response(
        body=text.encode(), status=status, content_type="application/json", charset="utf-8",
        headers={"Cache-Control": "no-store"},
    )  # fmt: skip


def error_response(status: int, sentence: str) -> web.Response:
    """Response with an error."""
    return json_response({"error": sentence}, status)
