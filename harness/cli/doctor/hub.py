"""Check of the Hub token: its owner, and its rights to push. Sends one request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

from harness.cli.doctor.credentials import key_defect
from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.store.hub_session import Patience, bounded, foreign_errors, read_failure

_LOG_IN = "set HF_TOKEN to a token with write access, or run `hf auth login`"
_WRITE = "repo.write"


def endpoint() -> str:
    """URL of the configured Hub."""
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def request() -> str:
    """Describe the request, for the user."""
    return f"who the token belongs to: {endpoint()}/api/whoami-v2"


def unaskable() -> Diagnosis | None:
    """Finding if the Hub cannot be queried (offline mode, missing or malformed token); None if it can."""
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        return problem("hub", "token", "not asked: HF_HUB_OFFLINE is set, so nothing can be pushed", "unset it")
    token = get_token()
    if not token:
        return problem("hub", "token", "nobody is logged in, so nothing can be pushed", _LOG_IN)
    if odd := key_defect(token):
        fix = "set HF_TOKEN to the token alone, without anything around it"
        return problem("hub", "token", f"not asked: the token is odd: it {odd}", fix)
    return None


def silent(seconds: float) -> Diagnosis:
    """Finding for a Hub that did not answer within the timeout."""
    fix = "check the connection to the Hub (HF_ENDPOINT, proxies, name resolution)"
    return problem("hub", "token", f"{endpoint()} has not answered within {seconds:g} s", fix)


def check_hub(repos: Sequence[str | None], seconds: float) -> list[Diagnosis]:
    """Query the owner of the token, and compare its rights with the planned pushes.

    Args:
        repos: Repositories of the runs: `name`, `namespace/name`, or None for the default.
        seconds: Timeout of the request.
    """
    from huggingface_hub import get_session, get_token
    from huggingface_hub.utils import hf_raise_for_status

    token = get_token() or ""
    redactor.add(token)
    patience = Patience(total=seconds, silence=seconds, longest_wait=0.0)
    try:
        with bounded(patience, time.monotonic() + seconds):
            # Not by the library's `whoami`, whose headers may cost another request, for a list of agents.
            reply = get_session().get(f"{endpoint()}/api/whoami-v2", headers={"Authorization": f"Bearer {token}"})
            hf_raise_for_status(reply)
            who = _table(reply.json())
    except foreign_errors() as error:
        failure = read_failure(error)
        return [problem("hub", "token", f"{endpoint()}: {failure.cause}", failure.advice or _LOG_IN)]
    return judge(who, repos)


def judge(who: JsonDict, repos: Sequence[str | None]) -> list[Diagnosis]:
    """Findings on the planned pushes from the Hub's answer."""
    name = str(who.get("name", "?"))
    auth = _table(who.get("auth"))
    access = _table(auth.get("accessToken"))
    role = str(access.get("role", "")) or str(auth.get("type", "unknown"))
    says = f"of {name} at {endpoint()}, with the role {role}"
    roles = {str(each.get("name")): str(each.get("roleInOrg", "")) for each in _tables(who.get("orgs"))}
    spaces = list(dict.fromkeys(repo.partition("/")[0] if repo and "/" in repo else name for repo in repos or [None]))
    found: list[Diagnosis] = []
    if role == "read":
        found.append(problem("hub", "token", f"{says}: it may not push", _LOG_IN))
    elif role == "fineGrained":
        missing = [space for space in spaces if not _may_write(access, space)]
        if missing:
            fix = f"give the token write access to the repositories of {', '.join(missing)}, or use another"
            found.append(problem("hub", "token", f"{says}, without write access to {', '.join(missing)}", fix))
        else:
            found.append(ok("hub", "token", says))
    elif role == "write":
        found.append(ok("hub", "token", says))
    else:
        found.append(note("hub", "token", f"{says}: whether it may push cannot be told", "try: bench push RUN"))
    for space in spaces:
        if space != name and space not in roles:
            fix = "name a namespace of yours with -D"
            found.append(problem("hub", space, f"{name} does not belong to {space}, where runs are to be pushed", fix))
        elif roles.get(space) == "read":
            fix = f"ask an administrator of {space} for the right to write, or name another namespace with -D"
            found.append(problem("hub", space, f"{name} may only read there", fix))
    return found


def _may_write(access: JsonDict, space: str) -> bool:
    """Whether a fine-grained token may write to any repository of a namespace."""
    scopes = _table(access.get("fineGrained"))
    for scope in _tables(scopes.get("scoped")):
        whose = str(_table(scope.get("entity")).get("name", "")).partition("/")[0]
        if whose == space and _WRITE in cast("list[object]", scope.get("permissions") or []):
            return True
    return False


def _table(value: Any) -> JsonDict:
    return cast("JsonDict", value) if isinstance(value, dict) else {}


def _tables(value: Any) -> list[JsonDict]:
    return [_table(each) for each in cast("list[object]", value)] if isinstance(value, list) else []
