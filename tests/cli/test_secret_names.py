"""Settings whose names say that they are secrets: hidden wherever a run is recorded, shown or sent."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nursery
import pytest
from hub_runs import TOKEN, hub_env
from hub_server import HubServer
from recorded_runs import Bench, Write, change
from sightings import sightings

from harness.store.rundir import RunDir

pytestmark = pytest.mark.plugins

SECRET = (
    "db_password", "password", "dbpassword", "DBPassword", "db-password", "passphrase", "password_value", "smtp_pass",
    "db_pwd", "provider_key", "openai_key", "api_key", "apiKey", "APIKEY", "secretKey", "ssh_key", "hf_token",
    "authToken", "access_token", "client_secret", "secret", "jwt", "session_cookie", "github_pat", "weather_key",
    "key", "token", "basic_auth",
)  # fmt: skip
ORDINARY = (
    "max_tokens", "token_limit", "key_column", "answer_key", "tokenizer", "keyword", "api_key_var", "stop_token",
    "eos_token", "sort_key", "monkey", "turkey", "password_file", "secret_word", "first_pass", "public_key", "keys",
    "key_name", "pass_threshold", "tokens_per_second", "author", "path",
)  # fmt: skip
TEXT = "hunter2!"
NESTED = {
    "api_keys": [f"{TEXT}a", f"{TEXT}b"], "credentials": {"user": f"{TEXT}c", "deep": [f"{TEXT}d"]},
    "servers": [{"password": f"{TEXT}e"}], "dsn": f"postgres://me:{TEXT}f@host/db?password={TEXT}g",
    "connection": f"Server=host;Password={TEXT}h", "as_json": json.dumps({"password": f"{TEXT}i"}), "none": None,
    "pin_password": 20_770_123,
}  # fmt: skip
LOOSE = """
from harness import Rubric, SingleTurnEnv

class Rows(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return "a"

def load_environment(**arguments):
    assert "[redacted]" not in repr(arguments)
    return Rows(dataset=[{"question": "q", "answer": "a"}], rubric=Rubric([lambda answer: 1.0]))
"""


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        server.hub.account(TOKEN, "alice")
        yield server


def test_secrets_are_hidden_by_name_and_ordinary_settings_are_not(
    bench: Bench, write: Write, hub: HubServer, tmp_path: Path
) -> None:
    write("loose.py", LOOSE)
    secret = {name: f"{TEXT}{number}" for number, name in enumerate(SECRET)}
    ordinary = {name: f"plain3!{number}" for number, name in enumerate(ORDINARY)}
    arguments = {**secret, **ordinary, **NESTED}
    sampling = {"extra_body": {"provider_key": f"{TEXT}x"}, "max_tokens": 7}
    usual = ["run", "./loose.py", "-n", "1", "-r", "1", "-m", "reference/oracle", "-S", json.dumps(sampling)]
    usual += ["-a", json.dumps(arguments), "--set", f"env.env_args.late_password={TEXT}y", "-a", f"db_pw={TEXT}z"]
    shown = [bench(*usual, "--dry-run"), bench(*usual, "--dry-run", "--json"), bench(*usual, "-q", "--json")]
    assert [done.code for done in shown] == [0, 0, 0], shown[-1].err
    run = Path(json.loads(shown[-1].out)["runs"][0]["path"])
    commands = [("runs", "show", str(run)), ("runs", "show", str(run), "--json"), ("runs", "list", "--json")]
    commands += [("report", "--force"), ("report", "--force", "-f", "md"), ("report", "--force", "-f", "json")]
    commands += [("export", str(run), "-f", name) for name in ("csv", "jsonl", "inspect", "verifiers", "parquet")]
    shown += [bench(*command) for command in commands]
    pushed = nursery.run(["bench", "push", str(run)], cwd=Path.cwd(), environ=hub_env(hub, tmp_path / "home"))
    assert pushed.returncode == 0, pushed.stderr
    assert [done.code for done in shown] == [0] * len(shown), [done.err for done in shown if done.code]
    [repo] = hub.hub.repos.values()
    for number, commit in enumerate(repo.commits):
        for name, entry in commit.files.items():
            (tmp_path / f"sent-{number}-{Path(name).name}").write_bytes(entry.data)
    assert not sightings({"a secret": "hunter2", "a number": "20770123"}, tmp_path)
    assert not [done for done in shown if "hunter2" in done.out + done.err or "20770123" in done.out + done.err]
    settings = json.loads((run / "run.json").read_text())["settings"]["env.env_args"]
    recorded = tomllib.loads((run / "config.toml").read_text())["eval"][0]["env"]["env_args"]
    for found in (settings, json.loads(recorded)):
        assert {name: found[name] for name in ORDINARY} == ordinary
        assert {found[name] for name in SECRET} == {"[redacted]"}
    assert "[redacted]" in (run.parent / "README.md").read_text()

    again = bench("rescore", str(run), "-q")
    assert again.code == 2 and "--set PATH=VALUE: env.env_args.db_password" in again.err, again.err
    assert "extra_body" not in again.err, "a rescore sends no request"
    again = bench("run", str(run / "config.toml"), "-q")
    assert again.code == 2 and "model.sampling_args.extra_body.provider_key" in again.err, again.err
    assert bench(*usual, "--resume", "-q").code == 0, "the same settings are the same run"
    assert len(list(run.parent.glob("2*"))) == 1


def test_a_resume_takes_the_secret_again(bench: Bench, write: Write) -> None:
    write("loose.py", LOOSE)
    usual = ("run", "./loose.py", "-n", "1", "-r", "1", "-m", "reference/oracle", "-q", "--json")
    done = bench(*usual, "-a", f"db_password={TEXT}", "-a", "answer_key=plain3!")
    run = Path(json.loads(done.out)["runs"][0]["path"])
    change(run / "run.json", status="interrupted")
    done = bench("resume", str(run), "-q")
    assert done.code == 2 and "--set PATH=VALUE: env.env_args.db_password" in done.err
    done = bench("resume", str(run), "-q", "--set", f"env.env_args.db_password={TEXT}", "--json")
    assert done.code == 0 and json.loads(done.out)["runs"][0]["path"] == str(run), done.err
    assert TEXT not in (run / "config.toml").read_text() + (run / "run.json").read_text()


def test_what_an_older_version_recorded_in_clear_is_hidden_by_readers_and_repeats_the_run(
    bench: Bench, write: Write
) -> None:
    write("loose.py", LOOSE)
    usual = ("run", "./loose.py", "-n", "1", "-r", "1", "-m", "reference/oracle", "-q", "--json")
    run = Path(json.loads(bench(*usual, "-a", f"db_password={TEXT}").out)["runs"][0]["path"])
    for name in ("config.toml", "run.json"):
        (run / name).write_text((run / name).read_text().replace("[redacted]", TEXT))
    manifest = RunDir(run).read_manifest()
    assert TEXT not in json.dumps(manifest.settings)
    assert TEXT not in json.dumps(manifest.origins)
    assert TEXT not in json.dumps(manifest.identity)
    assert TEXT not in manifest.command and "[redacted]" in manifest.command
    shown = [bench("runs", "show", str(run)), bench("report", "--force"), bench("export", str(run), "-f", "inspect")]
    assert [done.code for done in shown] == [0, 0, 0]
    assert not [done for done in shown if TEXT in done.out]
    assert not sightings({"a secret": "hunter2"}, Path(), given=[run / "config.toml", run / "run.json"])
    done = bench("rescore", str(run), "-q")
    assert done.code == 0, done.err
