"""The Hub's token: what the Hub says of it, and what that means for what is to be pushed."""

from __future__ import annotations

import json
from pathlib import Path

import nursery
import pytest
from hub_runs import READER, TOKEN, hub_env
from hub_server import HubServer

from harness.cli.doctor.hub import judge
from harness.core.types import JsonDict

CHECK = """
import json, os, sys
from harness.cli.doctor.hub import check_hub, unaskable
told = []
for token, *repos in json.loads(sys.argv[1]):
    os.environ.pop("HF_TOKEN", None)
    os.environ.update({"HF_TOKEN": token} if token else {})
    first = unaskable()
    found = [first] if first else check_hub(repos, 5.0)
    told.append([[each.status, each.name, each.says] for each in found])
print(json.dumps(told))
"""


def ask(server: HubServer, home: Path, *asked: tuple[str | None, ...], **more: str) -> list[list[list[str]]]:
    """What is found for each token and the repositories that are to be pushed with it, in a process of its own."""
    done = nursery.run(["-c", CHECK, json.dumps(asked)], environ={**hub_env(server, home, None), **more})
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_hub_that_is_configured_says_whose_the_token_is(tmp_path: Path) -> None:
    with HubServer() as server:
        server.hub.account(TOKEN, "you", orgs=("lab",))
        server.hub.account(READER, "reader", role="read")
        tokens = (TOKEN, None, "mine", "lab/x"), (READER,), ("hf_unknown0123456789",)
        writer, reader, [[status, _, said]] = ask(server, tmp_path, *tokens)
        # Nothing else was asked, however much the library would like to know.
        assert [seen.route for seen in server.requests] == ["whoami"] * 3
    assert writer == [["ok", "token", f"of you at {server.url}, with the role write"]]
    assert reader == [["problem", "token", f"of reader at {server.url}, with the role read: the token may not push"]]
    assert (status, "401" in said) == ("problem", True)


def test_a_hub_that_is_unwell_is_a_problem(tmp_path: Path) -> None:
    with HubServer() as server:
        server.hub.account(TOKEN, "you")
        server.fail("whoami", 500, times=None)
        [[[status, _, said]]] = ask(server, tmp_path, (TOKEN,))
        assert server.count("whoami") == 1
    assert (status, "500" in said) == ("problem", True)


def test_where_it_cannot_be_asked_it_is_not(tmp_path: Path) -> None:
    with HubServer() as server:
        found = [
            each
            for told in (
                *ask(server, tmp_path, (None,)),
                *ask(server, tmp_path, (TOKEN,), HF_HUB_OFFLINE="1"),
                *ask(server, tmp_path, (f'"{TOKEN}"',)),
            )
            for each in told
        ]
        assert server.requests == []
    assert [(status, name) for status, name, _ in found] == [("problem", "token")] * 3
    assert ["no Hub token is set" in found[0][2], "HF_HUB_OFFLINE" in found[1][2], "is malformed" in found[2][2]] == [
        True
    ] * 3


def who(role: str, scoped: object = None, orgs: object = ()) -> JsonDict:
    access = {"role": role, "fineGrained": {"scoped": scoped}}
    return {"name": "you", "orgs": orgs, "auth": {"type": "access_token", "accessToken": access}}


WRITES = [{"entity": {"type": "user", "name": "you"}, "permissions": ["repo.content.read", "repo.write"]}]
READS = [{"entity": {"type": "user", "name": "you"}, "permissions": ["repo.content.read"]}]


@pytest.mark.parametrize(
    ("answer", "repos", "statuses"),
    [
        (who("write"), [None], ["ok"]),
        (who("write"), ["strangers/x"], ["ok", "problem"]),
        (who("write", orgs=[{"name": "lab", "roleInOrg": "write"}]), ["lab/x"], ["ok"]),
        (who("write", orgs=[{"name": "lab", "roleInOrg": "read"}]), ["lab/x"], ["ok", "problem"]),
        (who("fineGrained", WRITES), [None], ["ok"]),
        (who("fineGrained", READS), [None], ["problem"]),
        (who("fineGrained", WRITES, [{"name": "lab", "roleInOrg": "admin"}]), ["lab/x"], ["problem"]),
        (who("fineGrained", "nonsense"), [None], ["problem"]),
        ({"name": "you", "auth": {"type": "oauth"}}, [None], ["note"]),
        ({}, [], ["note"]),
    ],
)
def test_what_a_token_may_do_is_read_from_the_hubs_answer(
    answer: JsonDict, repos: list[str | None], statuses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judge(answer, repos)
    assert [each.status for each in found] == statuses
    assert all(each.fix for each in found if each.status == "problem")
