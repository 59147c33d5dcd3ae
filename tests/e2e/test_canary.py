"""A key in every place where a key can be, and then everything that was written, printed, logged, exported or sent away
is searched for it: whole folders, so that a new file cannot be forgotten. Every command is a process of its own, which
knows of no key but those it meets itself."""

from __future__ import annotations

import json
import os
import pty
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_runs import Workshop, lines, rows
from echo_model import KEY_SHAPED, EchoModel
from hub_server import HubServer
from sightings import sightings
from terminals import read_all

REDACTED = "[redacted]"

CANARIES = {
    place: f"canary{number}x7f3a/{number}+c="
    for number, place in enumerate(
        (
            "a variable that the run names", ".env", "a header that was typed", "a header of the registry",
            "a header of the suite", "the judge's variable", "a key in code", "the Hub's token",
            "a variable of somebody else",
            "a literal of a model", "another literal", "an agent's key", "a baseline's key", "an address",
            "an argument",
        )
    )
}  # fmt: skip
"""Keys by where they are. No pattern knows them, and they have what is escaped in addresses."""

WORDS = {place: key.partition("/")[0] for place, key in CANARIES.items()}
"""What is looked for: the part that no escaping changes."""

NOSY = """
import json, logging, os, sys, warnings
from harness import JudgeRubric, ToolEnv
from openai import AsyncOpenAI

logger = logging.getLogger("nosy")

def told(text=""):
    found = {name: value for name, value in os.environ.items() if "x7f3a" in value}
    return f"{text} {json.dumps(found)}"

def look(at: str) -> str:
    '''Look around.'''
    print("the tool prints", told(at))
    if "tools" in at:
        raise KeyError(told(at))
    return told(at)

async def fine(completion, state, judge=None):
    text = told(str(completion))
    print("the rubric prints", text)
    print("and on stderr", text, file=sys.stderr)
    logger.info("the rubric logs %s", text)
    logger.warning("and warns %s", text)
    warnings.warn(text)
    state["late"] = {text: [text]}
    if "score" in str(state["prompt"]):
        raise ValueError(text)
    return 1.0

async def judged(judge, prompt, completion, answer, state):
    state["judges"] = await judge(prompt, completion, answer, state)
    return float(len(state["judges"]))

class Nosy(ToolEnv):
    async def setup_state(self, state, **kwargs):
        state["seen"] = {told(): [told()], "row": {"deep": told()}}
        return await super().setup_state(state, **kwargs)

    async def env_response(self, messages, state, **kwargs):
        state["heard"] = told(str(messages))
        if "raise" in str(messages[0]):
            try:
                raise KeyError(told(str(messages)))
            except KeyError as error:
                raise RuntimeError(told(str(messages))) from error
        return await super().env_response(messages, state, **kwargs)

def load_environment(judge_base_url, api_key="", questions=QUESTIONS):
    print("loading", told(api_key))
    info = {"told": told(), told(): 1}
    rows = [{"question": f"{each} {told()}", "answer": told(api_key), "info": info} for each in questions]
    rubric = JudgeRubric([fine, judged], [1.0, 0.0], judge_model="judge", judge_base_url=judge_base_url,
                         judge_api_key_var="JUDGE_KEY")
    return Nosy(tools=[look], dataset=rows, rubric=rubric)
"""

QUESTIONS = ("say", "say more", "tools", "raise", "score", "refuse", "break")


@pytest.fixture
def model() -> Iterator[EchoModel]:
    with EchoModel() as served:
        yield served


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as standing:
        standing.hub.account(CANARIES["the Hub's token"], "alice")
        yield standing


def nowhere(shop: Workshop, *given: str) -> None:
    """No key is in any file of the working directory but those that were given, nor on any screen."""
    found = sightings(WORDS, shop.cwd, shop.logs, given=[shop.cwd / name for name in given])
    assert not found, "\n".join(found)


def arrived(model: EchoModel, *places: str) -> None:
    """The keys were really used."""
    assert [place for place in places if CANARIES[place] not in model.heard] == []


@pytest.mark.slow
def test_no_key_of_a_run_is_anywhere(shop: Workshop, model: EchoModel, hub: HubServer) -> None:
    shop.environment("nosy", NOSY.replace("QUESTIONS", repr(QUESTIONS)))
    shop.write(".env", f"MODEL_KEY='{CANARIES['.env']}'\n")
    shop.write(
        "configs/endpoints.toml",
        f'[[endpoint]]\nendpoint_id = "echo"\nurl = "{model.url}"\nkey = "MODEL_KEY"\n'
        f'headers = {{X-Api-Key = "{CANARIES["a header of the registry"]}"}}\n',
    )
    env = {
        "JUDGE_KEY": CANARIES["the judge's variable"],
        "HF_TOKEN": CANARIES["the Hub's token"],
        "HF_ENDPOINT": hub.url,
        "OPENAI_API_KEY": CANARIES["a variable of somebody else"],
    }
    asked = [
        "run", "nosy", "-a", json.dumps({"judge_base_url": model.url, "api_key": CANARIES["an argument"]}),
        "-n", "-1", "-r", "1", "-m", "echo", "-S", json.dumps({"user": CANARIES["the judge's variable"]}),
        "--header", f"X-Auth-Token: {CANARIES['a header that was typed']}", "--max-retries", "0",
        "--set", "model.request_retries=0", "-C", "seen,heard,late,judges",
    ]  # fmt: skip
    done = shop.bench(*asked, "-v", "-H", "--json", env=env)
    print(done.err[-1500:])
    arrived(model, ".env", "a header of the registry", "a header that was typed", "the judge's variable")
    nowhere(shop, ".env", "configs/endpoints.toml")
    [repo] = hub.hub.repos.values()
    sent = [json.dumps([commit.summary, *commit.files]).encode() for commit in repo.commits]
    sent += [entry.data for commit in repo.commits for entry in commit.files.values()]
    for number, data in enumerate(sent):
        (shop.cwd / f"sent-{number}").write_bytes(data)
    after(shop, "latest", "--set", f"env.env_args.api_key={CANARIES['an argument']}")
    nowhere(shop, ".env", "configs/endpoints.toml")


def test_no_key_of_a_run_in_processes_of_its_own_is_anywhere(shop: Workshop, model: EchoModel) -> None:
    shop.environment("nosy", NOSY.replace("QUESTIONS", repr(QUESTIONS)))
    env = {
        "MINE": CANARIES["a variable that the run names"],
        "JUDGE_KEY": CANARIES["the judge's variable"],
        "OPENAI_API_KEY": CANARIES["a variable of somebody else"],
    }
    args = {"judge_base_url": model.url, "api_key": CANARIES["an argument"]}
    done = shop.bench(
        "run", "nosy", "-a", json.dumps(args), "-n", "-1", "-r", "1", "-m", "echo", "-b", model.url, "-k", "MINE",
        "--header", f"X-Auth-Token: {CANARIES['a header that was typed']}", "--max-retries", "0", "--workers", "2",
        "--worker-vars", "OPENAI_API_KEY", "--set", "model.request_retries=0", "-C", "seen,heard,late", "-v", "--json",
        env=env,
    )  # fmt: skip
    print(done.err[-3000:])
    assert done.code in (0, 1), done.err
    arrived(model, "a variable that the run names", "the judge's variable", "a header that was typed")
    nowhere(shop)


FRAMES = """
import json
from harness.report.frames import messages_df, rollouts_df, runs_df
runs = runs_df(settings=["model.extra_headers", "env.env_args"])
frames = [runs, rollouts_df(runs), messages_df(runs)]
print(json.dumps([frame.to_json(default_handler=str) for frame in frames]))
"""


def after(shop: Workshop, run: str, *given: str) -> None:
    """Everything that can be done with a run when it has ended, by processes that know of no key but one that is given
    again."""
    (shop.cwd / ".env").unlink(missing_ok=True)
    shop.bench("runs")
    shop.bench("runs", "list", "--json")
    shop.bench("runs", "show", run, "--json")
    shop.bench("runs", "show", run, "--settings")
    shown = shop.bench("runs", "show", run, "--example", "0")
    assert REDACTED in shown.out and KEY_SHAPED in shown.out, "nobody's key is data"
    for name in ("csv", "jsonl", "parquet", "verifiers", "every-eval-ever", "inspect"):
        done = shop.bench("export", run, "-f", name, "-o", f"exported-{name}")
        assert done.code == 0, done.err
    shop.bench("export", run, "-f", "jsonl", "-o", "-")
    shop.write("frames.json", json.dumps(shop.python(FRAMES)))
    assert shop.bench("replay", run, "--json", "-v", *given).code in (0, 1)
    assert shop.bench("rescore", run, "--only", "fine", "--json", "-v", *given).code in (0, 1)
    made_of_several(shop)


def made_of_several(shop: Workshop) -> None:
    """What is made of two runs together: a page in its three forms, comparisons, a gate's files, a plan."""
    runs = [str(path.parent.relative_to(shop.cwd)) for path in shop.run_dirs()[:2]]
    assert len(runs) == 2
    for form in ("html", "md", "json"):
        done = shop.bench("report", *runs, "-o", f"page.{form}", "--transcripts", "9")
        assert done.code == 0, done.err
    page = (shop.cwd / "page.html").read_text()
    assert REDACTED in page and KEY_SHAPED in page
    assert shop.bench("compare", *runs, "--transcripts", "9").code == 0
    assert shop.bench("compare", *runs, "--json").code == 0
    files = ("--junit", "junit.xml", "--markdown", "gate.md")
    assert shop.bench("gate", runs[1], "--baseline", runs[0], "--margin", "0.1", *files, "--json").code in (0, 1, 3)
    assert (shop.cwd / "junit.xml").exists() and (shop.cwd / "gate.md").exists()
    assert shop.bench("power", "--from", runs[0], "--mde", "0.1").code in (0, 2)


SCORING = """
import json, os, sys

def told(text):
    found = {name: value for name, value in os.environ.items() if "x7f3a" in value}
    return f"{text} {json.dumps(found)}"

def scored(call):
    print("scoring prints", told(call["output"]))
    if call["task"]["id"].startswith("score"):
        raise KeyError(told(call["output"]))
    return {"score": 1.0, "valid": False, "errors": [told(call["output"])]}
"""

NAMED = f"score {CANARIES['a literal of a model']}"


@pytest.mark.slow
def test_no_key_of_a_model_is_anywhere(shop: Workshop, model: EchoModel, hub: HubServer) -> None:
    shop.write("scoring.py", SCORING)
    tasks = [{"id": each, "prompt": each} for each in ("say", "break", "refuse", NAMED)]
    shop.write("tasks.json", json.dumps(tasks))
    headers = {"X-Api-Key": CANARIES["a header of the registry"]}
    models = [
        {"id": "one", "modelId": "echo", "baseUrl": model.url, "apiKey": CANARIES["a literal of a model"]},
        {"id": "two", "modelId": "echo", "baseUrl": model.url, "apiKeyVar": "MODEL_KEY", "headers": headers},
    ]
    shop.write("models.json", json.dumps(models))
    env = {
        "MODEL_KEY": CANARIES["a variable that the run names"],
        "OPENAI_API_KEY": CANARIES["a variable of somebody else"],
        "HF_TOKEN": CANARIES["the Hub's token"],
        "HF_ENDPOINT": hub.url,
    }
    common = ("--score-output", "scoring:scored", "--set", "model.request_retries=0", "--events", "events.jsonl", "-v")
    done = shop.bench("multi", "tasks.json", "models.json", *common, "--persist", "--json", env=env)
    assert done.code in (0, 1), done.err
    assert [len(each["results"]) for each in json.loads(done.out)["models"]] == [4, 4], done.out[:3000]
    assert shop.bench("multi", "tasks.json", "models.json", *common, "--no-save", env=env).code in (0, 1)
    arrived(model, "a literal of a model", "a variable that the run names", "a header of the registry")
    nowhere(shop, "tasks.json", "models.json")
    shop.bench("multi", "tasks.json", "models.json", "--dry-run", env=env)
    for words in (("runs",), ("show", "latest"), ("show", "latest", "--json"), ("replay", "latest", "--json", *common)):
        assert shop.bench("multi", *words).code in (0, 1), words
    for run in shop.run_dirs():
        shop.bench("runs", "show", str(run.parent), "--json")
        for name in ("csv", "verifiers", "every-eval-ever", "inspect"):
            assert shop.bench("export", str(run.parent), "-f", name, "-o", f"{run.parent.name}-{name}").code == 0
    nowhere(shop, "tasks.json", "models.json")
    assert hub.requests == [], "whoever is logged in has not asked for anything to be sent"


API = """
import asyncio, json, sys
from harness.multi import evaluate, list_runs, load_run, replay_run

url, one, two = sys.argv[1:]
tasks = [{"id": each, "prompt": each} for each in ("say", "refuse", "score")]
models = [{"id": each, "modelId": "echo", "baseUrl": url} for each in ("one", "two")]
models[0]["apiKey"] = one
told = []

async def main():
    options = {"apiKeys": {"two": two}, "onEvent": lambda name, payload: told.append([name, payload]),
               "scoreOutput": "scoring:scored", "persist": True}
    result = await evaluate(tasks, models, options)
    told.append(result)
    told.append(list_runs())
    told.append(load_run(result["runId"]))
    told.append(await replay_run(result["runId"], {"apiKeys": {"one": one, "two": two}}))

asyncio.run(main())
print(json.dumps(told, default=str))
"""


def test_no_key_of_the_api_is_anywhere(shop: Workshop, model: EchoModel) -> None:
    shop.write("scoring.py", SCORING.replace("print(", "str("))
    env = {"OPENAI_API_KEY": CANARIES["a variable of somebody else"]}
    told = shop.python(API, model.url, CANARIES["a literal of a model"], CANARIES["another literal"], env=env)
    shop.write("told.json", json.dumps(told))
    arrived(model, "a literal of a model", "another literal")
    nowhere(shop)


AGENT = """
import json, os
from osmosis_ai.rollout import RolloutAgentLoop

class Nosy(RolloutAgentLoop):
    name = "nosy"

    def get_tools(self, request):
        return []

    async def run(self, ctx):
        question = ctx.request.messages[-1]["content"]
        reply = await ctx.chat(list(ctx.request.messages))
        print("the agent prints", reply.message)
        ctx.log_event("heard", key=str(reply.message))
        if "raise" in question:
            raise ValueError(str(reply.message))
        if "give up" in question:
            return ctx.error(str(reply.message))
        return ctx.complete([*ctx.request.messages, reply.message])

def fn(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float:
    if ground_truth == "score":
        raise ValueError(solution_str)
    return 1.0
"""


def test_no_key_of_an_agent_is_anywhere(shop: Workshop, model: EchoModel) -> None:
    shop.environment("agent", AGENT)
    questions = ("say", "raise", "give up", "score", "refuse", "break")
    row = {"system_prompt": "Echo."}
    data = [json.dumps({**row, "user_prompt": each, "ground_truth": each}) for each in questions]
    shop.write("data.jsonl", "\n".join(data))
    asked = [
        "-m", "agent:Nosy", "-d", "data.jsonl", "--model", "echo", "--base-url", model.url,
        "--api-key", CANARIES["an agent's key"], "--set", "model.request_retries=0", "--debug", "-v",
    ]  # fmt: skip
    baseline = [
        "--baseline-model", "other", "--baseline-base-url", model.url,
        "--baseline-api-key", CANARIES["a baseline's key"],
    ]  # fmt: skip
    env = {"OPENAI_API_KEY": CANARIES["a variable of somebody else"]}
    done = shop.bench("eval", "--eval-fn", "agent:fn", *asked, *baseline, "-o", "results.json", env=env)
    assert done.code in (0, 1), done.err
    assert shop.bench("test", *asked, "-o", "-", env=env).code in (0, 1)
    arrived(model, "an agent's key", "a baseline's key")
    assert len(list(shop.cwd.rglob("debug*"))) or len(list(shop.cwd.rglob("*.jsonl"))) > 2
    for run in shop.run_dirs():
        assert shop.bench("runs", "show", str(run.parent), "--json").code == 0
        for name in ("csv", "verifiers", "every-eval-ever", "inspect"):
            assert shop.bench("export", str(run.parent), "-f", name, "-o", f"{run.parent.name}-{name}").code == 0
    nowhere(shop)


ADDRESS = CANARIES["an address"].replace("/", "") + 80 * "0"
"""So long that messages shorten it: half a key is too much."""

REFUSED = {
    "userinfo of -b": ("run", "sums", "-m", "m", "-b", f"http://user:{ADDRESS}@127.0.0.1:9/v1"),
    "a user that is a key": ("run", "sums", "-m", "m", "-b", f"http://{ADDRESS}@127.0.0.1:9/v1"),
    "a query of -b": ("run", "sums", "-m", "m", "-b", f"http://127.0.0.1:9/v1?api_key={ADDRESS}"),
    "userinfo of --set": ("run", "sums", "-m", "m", "--set", f"model.api_base_url=http://u:{ADDRESS}@h/v1"),
    "userinfo of eval": (
        "eval", "-m", "agent:Nosy", "-d", "data.jsonl", "--eval-fn", "agent:fn", "--model", "m",
        "--base-url", f"http://user:{ADDRESS}@127.0.0.1:9/v1", "-v",
    ),
    "userinfo of multi": (
        "multi", "tasks.json", "-m", "openai/m", "-b", f"http://user:{ADDRESS}@127.0.0.1:9/v1", "-v",
    ),
    "userinfo of a variable": ("multi", "tasks.json", "-m", "openai/m"),
    "a key of an unknown setting": ("run", "sums", "--set", f"model.api_key={ADDRESS}"),
    "a header that is none": ("run", "sums", "--header", f"X Api Key: {ADDRESS}", "-v"),
    "a header with a stray letter": ("run", "sums", "-m", "m", "--header", f"X-Key: {ADDRESS}\x07"),
    "userinfo in the registry": ("run", "sums", "-m", "aliased", "-v"),
    "userinfo in a suite": ("run", "suite.toml", "-v"),
    "userinfo in a file of models": ("multi", "tasks.json", "models.toml", "-v"),
    "userinfo of doctor": ("doctor", "-m", "m", "-b", f"http://user:{ADDRESS}@127.0.0.1:9/v1", "--json"),
    "a judge's address": ("run", "judged", "-m", "reference/oracle", "-v"),
    "a key for a variable": ("run", "sums", "-m", "m", "-k", ADDRESS, "-v"),
    "a key for a variable of eval": (
        "eval", "-m", "agent:Nosy", "-d", "data.jsonl", "--eval-fn", "agent:fn", "--model", "m",
        "--api-key-var", ADDRESS,
    ),
    "a key for a variable of multi": ("multi", "tasks.json", "-m", "openai/m", "-k", ADDRESS),
}  # fmt: skip

JUDGED = """
from harness import JudgeRubric, SingleTurnEnv

def load_environment():
    rubric = JudgeRubric(judge_model="j", judge_base_url="http://user:ADDRESS@127.0.0.1:9/v1")
    return SingleTurnEnv(dataset=[{"question": "1", "answer": "1"}], rubric=rubric)
"""


@pytest.mark.parametrize("how", REFUSED)
def test_a_key_in_the_wrong_place_is_refused_without_a_word_of_it(shop: Workshop, how: str) -> None:
    shop.environment("agent", AGENT)
    shop.environment("judged", JUDGED.replace("ADDRESS", ADDRESS))
    address = f"http://user:{ADDRESS}@127.0.0.1:9/v1"
    shop.write("data.jsonl", '{"system_prompt": "s", "user_prompt": "u", "ground_truth": "g"}\n')
    shop.write("tasks.json", '[{"id": "say", "prompt": "say"}]')
    given = ["configs/endpoints.toml", "suite.toml", "models.toml"]
    if how == "userinfo in the registry":
        shop.write(given[0], f'[[endpoint]]\nendpoint_id = "aliased"\nurl = "{address}"\n')
    shop.write(given[1], f'[[eval]]\nenv_id = "sums"\nmodel = "m"\napi_base_url = "{address}"\n')
    shop.write(given[2], f'[[model]]\nid = "m"\nbaseUrl = "{address}"\n')
    env = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none"} if how == "userinfo of a variable" else {}
    done = shop.bench(*REFUSED[how], env=env)
    assert done.code in (1, 2) and done.out + done.err
    nowhere(shop, *given)
    assert not (shop.cwd / "outputs").exists()


def test_no_key_is_in_what_doctor_and_serve_say(shop: Workshop, model: EchoModel) -> None:
    env = {
        "MINE": CANARIES["a variable that the run names"],
        "OPENAI_API_KEY": CANARIES["a variable of somebody else"],
        "HF_TOKEN": CANARIES["the Hub's token"],
    }
    header = ("--header", f"X-Auth: {CANARIES['a header that was typed']}")
    asked = ("sums", "-m", "deny", "-b", model.url, "-k", "MINE", *header)
    for more in ((), ("--json",), ("--hub", "--json", "--set", 'save.hf_hub_dataset_name="a/b"')):
        shop.bench("doctor", *asked, *more, env={**env, "HF_ENDPOINT": model.url})
    arrived(model, "a variable that the run names", "a header that was typed")
    with shop.bench_serve("--env", "sums", "--fault", "429@every=2,retry_after=0") as server:
        run = ("run", "sums", "-m", "reference/oracle", "-b", server.url, "-k", "MINE", *header, "-n", "4", "-r", "1")
        assert shop.bench(*run, "-v", env=env).code == 0
        for page in ("/faults", "/stats?rollouts"):
            with urllib.request.urlopen(server.url.removesuffix("/v1") + page, timeout=60) as reply:
                shop.write(page.strip("/").partition("?")[0], reply.read().decode())
    assert (shop.cwd / "faults").read_text()
    nowhere(shop)


@pytest.mark.slow
def test_no_key_is_on_a_terminal(shop: Workshop, model: EchoModel) -> None:
    shop.environment("nosy", NOSY.replace("QUESTIONS", repr(QUESTIONS)))
    env = {"MINE": CANARIES["a variable that the run names"], "JUDGE_KEY": CANARIES["the judge's variable"]}
    master, terminal = pty.openpty()
    args = ("-a", json.dumps({"judge_base_url": model.url}), "-n", "-1", "-r", "1", "--set", "model.request_retries=0")
    running = shop.start_on(
        terminal, "run", "nosy", "-m", "echo", "-b", model.url, "-k", "MINE", "-v", *args, piped=None,
        env={**env, "NO_COLOR": "", "TERM": "xterm"},
    )  # fmt: skip
    os.close(terminal)
    shop.write("terminal", seen := read_all(master))
    running.process.wait(60)
    arrived(model, "a variable that the run names", "the judge's variable")
    assert REDACTED in seen and "the rubric prints" in seen
    nowhere(shop)


CRASH = """
import os, threading

def load_environment():
    def fail():
        raise KeyError(os.environ["MINE"])
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    raise MemoryError(os.environ["MINE"] + " and " + os.environ["SOME_TOKEN"])
"""


@pytest.mark.parametrize(
    "command",
    [("run", "crash", "--json"), ("run", "crash", "-v"), ("env", "info", "crash"), ("env", "check", "crash")],
    ids=" ".join,
)
def test_no_key_is_in_what_a_crash_leaves(shop: Workshop, command: tuple[str, ...]) -> None:
    shop.environment("crash", CRASH)
    env = {"SOME_TOKEN": CANARIES["a variable of somebody else"]}
    if command[0] == "run":
        command = (*command, "-m", "m", "-b", "http://127.0.0.1:9/v1", "-k", "MINE")
        env["MINE"] = CANARIES["a variable that the run names"]  # whose name does not say that it is a key
    else:
        shop.environment("crash", CRASH.replace("MINE", "SOME_TOKEN"))
    done = shop.bench(*command, env=env)
    assert done.code == 1 and REDACTED in done.out + done.err
    nowhere(shop)


def test_what_looks_like_a_key_stays_in_what_was_recorded(shop: Workshop, model: EchoModel) -> None:
    shop.environment("nosy", NOSY.replace("QUESTIONS", repr(("say", "refuse " + KEY_SHAPED))))
    args = ("-a", json.dumps({"judge_base_url": model.url}), "-n", "-1", "-r", "1", "--set", "model.request_retries=0")
    done = shop.bench("run", "nosy", "-m", "echo", "-b", model.url, "-k", "", *args)
    assert done.code == 0, done.err
    said = [line["completion"][-1]["content"] for line in lines(shop.run_dir()) if line["type"] == "generated"]
    assert all(f"Not yours: {KEY_SHAPED}." in each for each in said) and len(said) == 1
    assert KEY_SHAPED in json.dumps(rows(shop.run_dir()))


def test_the_search_finds_a_key_in_every_form(tmp_path: Path) -> None:
    import gzip
    import zipfile

    import pyarrow as pa
    import pyarrow.parquet as pq

    word = {"key": "canary-x7f3a"}
    (tmp_path / "plain").write_text("a canary-x7f3a b")
    (tmp_path / "canary-x7f3a").write_text("")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"canary-x7f3a"))
    pq.write_table(pa.table({"deep": [{"a": ["canary-x7f3a"]}]}), tmp_path / "a.parquet", compression="zstd")
    pq.write_table(pa.table({"canary-x7f3a": [1]}), tmp_path / "b.parquet")
    with zipfile.ZipFile(tmp_path / "zipped.eval", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("inner.json", "canary-x7f3a" * 9)
    found = [each.partition(": ")[2].partition("!")[0] for each in sightings(word, tmp_path)]
    assert sorted(set(found)) == ["a.parquet", "b.parquet", "canary-x7f3a", "packed.gz", "plain", "zipped.eval"]
    assert sightings(word, tmp_path, given=tmp_path.iterdir()) == []


CLASSIC = """
import verifiers as vf
from datasets import Dataset
from openai import AsyncOpenAI

def load_environment(url: str):
    client = AsyncOpenAI(base_url=url, api_key="KEY")
    rubric = vf.JudgeRubric(judge_client=client, judge_model="judge")

    async def judged(judge, prompt, completion, answer, state, **kwargs) -> float:
        said = await judge(prompt, completion, answer, state)
        print("the judge said", said)
        state["verdict"] = said
        if "score" in str(prompt):
            raise ValueError(said)
        return 1.0

    rubric.add_reward_func(judged)
    rows = [{"question": each, "answer": each} for each in ("say", "score")]
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=rubric)
"""


@pytest.mark.slow
def test_no_key_of_code_and_of_a_suite_is_anywhere(shop: Workshop, model: EchoModel) -> None:
    shop.environment("classic", CLASSIC.replace("KEY", CANARIES["a key in code"]))
    shop.write(
        "suite.toml",
        f'[[eval]]\nenv_id = "classic"\nmodel = "echo"\napi_base_url = "{model.url}"\napi_key_var = ""\n'
        f"num_examples = -1\nrollouts_per_example = 1\nrequest_retries = 0\nstate_columns = [\"verdict\"]\n"
        f'env_args = {{url = "{model.url}"}}\n'
        f'extra_headers = {{X-Auth = "{CANARIES["a header of the suite"]}", X-Lane = "seven"}}\n',
    )  # fmt: skip
    done = shop.bench("run", "suite.toml", "-v", "--json")
    assert done.code == 0, done.err
    arrived(model, "a key in code", "a header of the suite")
    assert 'X-Lane = "seven"' in (shop.run_dir() / "config.toml").read_text()
    shop.bench("runs", "show", "latest", "--settings")
    shop.bench("run", "suite.toml", "--dry-run")
    shop.bench("doctor", "suite.toml", "--json")
    nowhere(shop, "suite.toml")
