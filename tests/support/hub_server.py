"""A stand-in for the Hugging Face Hub on loopback: the part of its HTTP protocol that creating, committing to and
loading a dataset repository needs, and proposing changes to a model repository, as `huggingface_hub` and `datasets`
speak it. Large files go to and come from a second origin, as they do on the Hub, which refuses credentials. No Xet, no
git, no other repository types.

Faults are made on demand: `fail` answers a route with a status, `meddle` runs a function just before a route is
served (another writer commits, the owner deletes the repository).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web
from hub_repos import Account, Commit, Entry, Hub, Refusal, Repo, card_data, card_problems

MAX_BODY = 1 << 30
LARGE_BYTES = 10 << 20
"""The Hub takes files from this size on as large ones only."""
PAGE = 2
"""Pull requests that one answer lists: few, so that a reader must turn pages."""


@dataclass(frozen=True)
class Seen:
    """One request, as it came in."""

    route: str
    method: str
    path: str
    status: int


@dataclass
class Trouble:
    route: str
    times: int | None
    """How many requests it still meets; None: all of them."""
    status: int = 0
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    action: Callable[[], object] | None = None
    late: bool = False
    """The request is served first; only its answer is replaced."""


class HubServer:
    """The stand-in, serving from a thread of its own between `__enter__` and `__exit__`."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.requests: list[Seen] = []
        self.url = ""
        self.storage = ""
        self._troubles: list[Trouble] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="hub-server", daemon=True)

    def __enter__(self) -> HubServer:
        self._thread.start()
        assert self._ready.wait(60), "the stand-in Hub did not start"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def fail(
        self,
        route: str,
        status: int,
        *,
        times: int | None = 1,
        message: str = "made on demand",
        headers: Mapping[str, str] | None = None,
        late: bool = False,
    ) -> None:
        """Answer the next `times` requests to `route` with `status` (None: every one); `late`: after serving them."""
        self._troubles.append(Trouble(route, times, status, message, headers or {}, late=late))

    def meddle(self, route: str, action: Callable[[], object], *, times: int | None = 1) -> None:
        """Run `action` before serving the next `times` requests to `route`."""
        self._troubles.append(Trouble(route, times, action=action))

    def interloper(self, repo: str, path: str = "notes.txt", data: bytes = b"mine\n") -> Callable[[], Commit]:
        """Another writer that commits `path` to `repo` whenever it is called."""
        return lambda: self.hub.repos[repo].add(f"write {path}", {path: Entry(data)})

    def count(self, route: str, status: int | None = None) -> int:
        """How often `route` was asked (and answered with `status`)."""
        return sum(seen.route == route and status in (None, seen.status) for seen in self.requests)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = web.AppRunner(self._application(), access_log=None)
        self._loop.run_until_complete(self._start(runner))
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(runner.cleanup())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _start(self, runner: web.AppRunner) -> None:
        await runner.setup()
        for _ in range(2):
            await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url, self.storage = (f"http://127.0.0.1:{address[1]}" for address in runner.addresses)

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY)
        repo = "/api/{kind:datasets|models}/{space}/{name}"
        for method, path, name, handler in (
            ("GET", "/api/whoami-v2", "whoami", self._whoami),
            ("POST", "/api/repos/create", "create", self._create),
            ("POST", "/api/validate-yaml", "validate", self._validate),
            ("GET", repo, "info", self._info),
            ("GET", repo + "/revision/{rev}", "info", self._info),
            ("GET", repo + "/refs", "refs", self._refs),
            ("GET", repo + "/tree/{rev}", "tree", self._tree),
            ("GET", repo + "/tree/{rev}/{path:.*}", "tree", self._tree),
            ("POST", repo + "/paths-info/{rev}", "paths", self._paths),
            ("POST", repo + "/preupload/{rev}", "preupload", self._preupload),
            ("POST", repo + "/commit/{rev}", "commit", self._commit),
            ("GET", repo + "/discussions", "discussions", self._discussions),
            ("POST", "/datasets/{space}/{name}.git/info/lfs/objects/batch", "lfs", self._lfs),
            ("GET", "/datasets/{space}/{name}/resolve/{rev}/{path:.+}", "resolve", self._resolve),
            ("POST", "/lfs-verify", "verify", self._verify),
            ("PUT", "/large/{oid}", "upload", self._upload),
            ("GET", "/large/{oid}", "download", self._download),
        ):
            app.router.add_route(method, path, self._door(name, handler))
            if method == "GET":
                app.router.add_route("HEAD", path, self._door(name, handler))
        app.router.add_route("*", "/{path:.*}", self._door("unknown", self._unknown))
        return app

    def _door(
        self, route: str, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            await request.read()
            try:
                self._disturb(route)
                response = await handler(request)
                self._disturb(route, late=True)
            except Refusal as no:
                response = web.json_response({"error": no.message}, status=no.status, headers=no.headers)
            self.requests.append(Seen(route, request.method, request.path, response.status))
            return response

        return answer

    def _disturb(self, route: str, *, late: bool = False) -> None:
        for trouble in list(self._troubles):
            if trouble.route != route or trouble.late != late:
                continue
            if trouble.times is not None:
                trouble.times -= 1
                if trouble.times <= 0:
                    self._troubles.remove(trouble)
            if trouble.action is not None:
                trouble.action()
            else:
                raise Refusal(trouble.status, trouble.message, headers=trouble.headers)

    def _account(self, request: web.Request) -> Account | None:
        header = request.headers.get("Authorization")
        if header is None:
            return None
        account = self.hub.accounts.get(header.removeprefix("Bearer "))
        if account is None:
            raise Refusal(401, "Invalid credentials in Authorization header")
        return account

    def _repo(self, request: web.Request, *, write: bool = False) -> Repo:
        full = f"{request.match_info['space']}/{request.match_info['name']}"
        kind = request.match_info.get("kind", "datasets")
        return self.hub.repo(self._account(request), full, write=write, kind=kind)

    async def _unknown(self, request: web.Request) -> web.Response:
        raise Refusal(404, f"no such route: {request.method} {request.path}")

    async def _whoami(self, request: web.Request) -> web.Response:
        account = self._account(request)
        if account is None:
            raise Refusal(401, "Invalid username or password.")
        orgs = [{"type": "org", "name": name, "roleInOrg": account.role} for name in account.orgs]
        access = {"displayName": "test", "role": account.role}
        return web.json_response(
            {
                "type": "user",
                "name": account.name,
                "orgs": orgs,
                "auth": {"type": "access_token", "accessToken": access},
            }
        )

    async def _create(self, request: web.Request) -> web.Response:
        account = self._account(request)
        if account is None:
            raise Refusal(401, "Invalid username or password.")
        body = await request.json()
        if body.get("type") != "dataset":
            raise Refusal(400, "only datasets here")
        private = body.get("visibility") == "private" or body.get("private") is True
        space, name = body.get("organization") or account.name, body["name"]
        url = f"{self.url}/datasets/{space}/{name}"
        try:
            self.hub.create(account, space, name, private)
        except Refusal as no:
            if no.status != 409:
                raise
            return web.json_response({"error": no.message, "url": url}, status=409)
        return web.json_response({"url": url, "name": f"{space}/{name}"})

    async def _validate(self, request: web.Request) -> web.Response:
        body = await request.json()
        errors = [{"message": text} for text in card_problems(body["content"])]
        return web.json_response({"errors": errors, "warnings": []}, status=400 if errors else 200)

    async def _info(self, request: web.Request) -> web.Response:
        repo = self._repo(request)
        commit = repo.at(request.match_info.get("rev", "main"))
        card = commit.files.get("README.md")
        return web.json_response(
            {
                "_id": "0" * 24,
                "id": repo.name,
                "author": repo.name.partition("/")[0],
                "sha": commit.oid,
                "lastModified": "2025-01-01T00:00:00.000Z",
                "createdAt": "2025-01-01T00:00:00.000Z",
                "private": repo.private,
                "gated": False,
                "disabled": False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "cardData": card_data(card.data.decode()) if card and not card_problems(card.data.decode()) else None,
                "siblings": [{"rfilename": path} for path in sorted(commit.files)],
            }
        )

    async def _refs(self, request: web.Request) -> web.Response:
        main = {"name": "main", "ref": "refs/heads/main", "targetCommit": self._repo(request).head.oid}
        return web.json_response({"branches": [main], "tags": [], "converts": []})

    async def _tree(self, request: web.Request) -> web.Response:
        commit = self._repo(request).at(request.match_info["rev"])
        folder = request.match_info.get("path", "").strip("/")
        deep = request.query.get("recursive", "").lower() in ("true", "1")
        nodes = [node for node in _nodes(commit) if _inside(node["path"], folder, deep)]
        if folder and not nodes:
            raise Refusal(404, f"{folder} does not exist on revision", code="EntryNotFound")
        return web.json_response(nodes)

    async def _paths(self, request: web.Request) -> web.Response:
        commit = self._repo(request).at(request.match_info["rev"])
        wanted = set((await request.post()).getall("paths", []))
        return web.json_response([node for node in _nodes(commit) if node["path"] in wanted])

    async def _preupload(self, request: web.Request) -> web.Response:
        rev = request.match_info["rev"]
        repo = self._repo(request, write=request.query.get("create_pr") != "1" and not rev.startswith("refs/pr/"))
        commit = repo.at(rev)
        files: list[dict[str, Any]] = []
        for file in (await request.json())["files"]:
            path = file["path"]
            large = path.endswith(".parquet") or file["size"] >= LARGE_BYTES
            files.append({"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False})
            if path in commit.files:
                files[-1]["oid"] = commit.files[path].etag
        return web.json_response({"commitOid": commit.oid, "files": files})

    async def _lfs(self, request: web.Request) -> web.Response:
        self._repo(request, write=True)
        body = await request.json()
        assert body["operation"] == "upload" and body["hash_algo"] == "sha256" and "basic" in body["transfers"]
        objects: list[dict[str, Any]] = []
        for item in body["objects"]:
            objects.append({"oid": item["oid"], "size": item["size"], "authenticated": True})
            if item["oid"] not in self.hub.large:
                upload = {"href": f"{self.storage}/large/{item['oid']}?signature=put", "header": {}}
                objects[-1]["actions"] = {"upload": upload, "verify": {"href": f"{self.url}/lfs-verify"}}
        return web.json_response({"transfer": "basic", "objects": objects})

    async def _upload(self, request: web.Request) -> web.Response:
        if "Authorization" in request.headers or request.query.get("signature") != "put":
            raise Refusal(400, "storage takes a signed address and no credentials")
        entry = Entry(await request.read(), lfs=True)
        if entry.sha256 != request.match_info["oid"]:
            raise Refusal(400, "XAmzContentSHA256Mismatch")
        self.hub.large[entry.sha256] = entry.data
        return web.Response(headers={"ETag": f'"{entry.sha256}"'})

    async def _verify(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self._account(request) is None or len(self.hub.large.get(body["oid"], b"")) != body["size"]:
            raise Refusal(404, "Object does not exist")
        return web.json_response({"message": "ok"})

    async def _commit(self, request: web.Request) -> web.Response:
        lines = (await request.text()).splitlines()
        rev, proposed = request.match_info["rev"], request.query.get("create_pr") == "1"
        account = self._account(request)
        answer: dict[str, Any] = {"success": True, "hookOutput": ""}
        if proposed or rev != "main":
            repo = self._repo(request)
            if proposed:
                opened = self.hub.open_request(account, repo, lines)
                commit = opened.head
                answer["pullRequestUrl"] = f"{self._page(repo)}/discussions/{opened.num}"
            elif found := repo.request(rev):
                commit = self.hub.commit_to(account, found, lines)
            else:
                raise Refusal(400, "only main and pull requests are here")
        else:
            repo = self._repo(request, write=True)
            commit = self.hub.commit(repo, lines)
        return web.json_response(
            {**answer, "commitOid": commit.oid, "commitUrl": f"{self._page(repo)}/commit/{commit.oid}"}
        )

    def _page(self, repo: Repo) -> str:
        return f"{self.url}/{repo.name}" if repo.kind == "models" else f"{self.url}/datasets/{repo.name}"

    async def _discussions(self, request: web.Request) -> web.Response:
        repo, query = self._repo(request), request.query
        if query.get("type", "pull_request") not in ("all", "pull_request"):
            raise Refusal(400, "only pull requests are here")
        wanted = [
            each
            for each in reversed(repo.requests)
            if query.get("author", each.author) == each.author
            and query.get("status", "all") in ("all", "closed" if each.status != "open" else "open")
        ]
        start = int(query.get("p", 0)) * PAGE
        shown = [
            {
                "title": each.title,
                "num": each.num,
                "author": {"name": each.author},
                "createdAt": "2026-01-01T00:00:00.000Z",
                "status": each.status,
                "repo": {"name": repo.name, "type": repo.kind.removesuffix("s")},
                "isPullRequest": True,
            }
            for each in wanted[start : start + PAGE]
        ]
        return web.json_response({"discussions": shown, "count": len(wanted), "start": start})

    async def _resolve(self, request: web.Request) -> web.Response:
        commit = self._repo(request).at(request.match_info["rev"])
        entry = commit.files.get(request.match_info["path"])
        headers = {"X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        if entry is None:
            raise Refusal(404, "Entry not found", code="EntryNotFound", headers=headers)
        if not entry.lfs:
            return _ranged(request, entry.data, {**headers, "ETag": f'"{entry.blob}"'})
        headers |= {"X-Linked-Size": str(len(entry.data)), "X-Linked-Etag": f'"{entry.sha256}"'}
        location = f"{self.storage}/large/{entry.sha256}?signature=get"
        return web.Response(status=302, headers={**headers, "Location": location})

    async def _download(self, request: web.Request) -> web.Response:
        if "Authorization" in request.headers or request.query.get("signature") != "get":
            raise Refusal(400, "storage takes a signed address and no credentials")
        data = self.hub.large[request.match_info["oid"]]
        return _ranged(request, data, {"ETag": f'"{request.match_info["oid"]}"', "Accept-Ranges": "bytes"})


def _ranged(request: web.Request, data: bytes, headers: Mapping[str, str]) -> web.Response:
    if "Range" not in request.headers:
        return web.Response(body=data, headers=headers)
    part = request.http_range
    start, stop, _ = slice(part.start, part.stop).indices(len(data))
    extra = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
    return web.Response(status=206, body=data[start:stop], headers={**headers, **extra})


def _inside(path: str, folder: str, deep: bool) -> bool:
    if folder and not path.startswith(folder + "/"):
        return False
    rest = path[len(folder) + 1 :] if folder else path
    return deep or "/" not in rest


def _nodes(commit: Commit) -> list[dict[str, Any]]:
    """Files and folders in the shape of the tree and paths-info routes."""
    folders = {path[:at] for path in commit.files for at, letter in enumerate(path) if letter == "/"}
    nodes: list[dict[str, Any]] = [
        {"type": "directory", "oid": "0" * 40, "size": 0, "path": path} for path in sorted(folders)
    ]
    for path, entry in sorted(commit.files.items()):
        nodes.append({"type": "file", "oid": entry.blob, "size": len(entry.data), "path": path})
        if entry.lfs:
            nodes[-1]["lfs"] = {"oid": entry.sha256, "size": len(entry.data), "pointerSize": 130}
    return nodes
