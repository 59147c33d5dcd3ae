from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.errors import ConfigError, EnvironmentNotFound
from harness.settings.resolver import resolve

Write = Callable[[str, str], Path]


def refused(text: str, write: Write, flags: dict[str, object] | None = None, sets: tuple[str, ...] = ()) -> str:
    write("suite.toml", text)
    with pytest.raises(ConfigError) as caught:
        resolve("suite.toml", flags or {}, sets)
    return str(caught.value)


def test_both_forms_mean_the_same(write: Write) -> None:
    write(
        "grouped.toml",
        """
        [env]
        num_examples = 7
        [model]
        sampling_args = {temperature = 0.5}
        [save]
        save_every = 10
        [[eval]]
        [eval.env]
        env_id = "toy-env"
        env_args = {a = 1}
        [eval.model]
        model = "m"
        api_base_url = "http://localhost:1/v1"
        api_key_var = "K"
        extra_headers = {X = "1"}
        """,
    )
    write(
        "flat.toml",
        """
        num_examples = 7
        sampling = {temperature = 0.5}
        save_every = 10
        [[eval]]
        id = "toy-env"
        args = {a = 1}
        endpoint_id = "m"
        url = "http://localhost:1/v1"
        key = "K"
        headers = {X = "1"}
        """,
    )
    (grouped,), (flat,) = resolve("grouped.toml", {}).runs, resolve("flat.toml", {}).runs
    assert grouped.settings == flat.settings
    assert {path: origin.layer for path, origin in grouped.origins.items()} == {
        path: origin.layer for path, origin in flat.origins.items()
    }


def test_the_forms_may_be_mixed_in_one_table(write: Write) -> None:
    write("suite.toml", '[[eval]]\nid = "toy-env"\nmodel = "m"\n[eval.env]\nnum_examples = 9\n')
    (run,) = resolve("suite.toml", {}).runs
    assert (run.settings.env.num_examples, run.settings.model.model) == (9, "m")


def test_a_comma_list_is_several_runs_with_the_same_flags(here: Path) -> None:
    runs = resolve("toy-env, other-env,", {"num_examples": 2}).runs
    assert [run.settings.env.env_id for run in runs] == ["toy-env", "other-env"]
    assert {run.settings.env.num_examples for run in runs} == {2}
    assert runs[0].origins["env.env_id"].layer == "cli"


def test_one_environment_with_many_models(write: Write) -> None:
    write("suite.toml", '[env]\nenv_id = "toy-env"\n[[eval]]\nmodel = "a"\n[[eval]]\nmodel = "b"\n')
    runs = resolve("suite.toml", {}).runs
    assert [(run.settings.env.env_id, run.settings.model.model) for run in runs] == [("toy-env", "a"), ("toy-env", "b")]


def test_a_file_without_eval_is_one_run(write: Write) -> None:
    write("suite.toml", '[env]\nenv_id = "toy-env"\n')
    assert len(resolve("suite.toml", {}).runs) == 1


def test_name_runs_one_environment_twice(write: Write) -> None:
    write("suite.toml", '[[eval]]\nid = "toy-env"\n[[eval]]\nid = "toy-env"\nname = "hard"\n')
    resolution = resolve("suite.toml", {})
    assert [run.settings.env.name for run in resolution.runs] == ["toy-env", "hard"]
    assert resolution.notices == ()


def test_runs_that_look_alike_are_told(write: Write) -> None:
    write("suite.toml", '[[eval]]\nid = "toy-env"\n[[eval]]\nid = "toy-env"\nargs = {a = 1}\n')
    (notice,) = resolve("suite.toml", {}).notices
    assert "2 runs have the name 'toy-env'" in notice


def test_the_resolution_knows_its_file(here: Path, write: Write) -> None:
    write("suite.toml", 'id = "toy-env"\n')
    assert resolve("suite.toml", {}).source == here / "suite.toml"
    assert resolve("toy-env", {}).source is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[sav]\nsave_results = true\n[[eval]]\nid = "toy-env"',
            'suite.toml: sav: unknown table; did you mean "save"?',
        ),
        (
            'nmu_examples = 1\n[[eval]]\nid = "toy-env"',
            'suite.toml: nmu_examples: unknown key; did you mean "num_examples"?',
        ),
        ('[[evals]]\nid = "toy-env"', 'suite.toml: evals: unknown table; did you mean "eval"?'),
        ('[env]\nnum_exmaples = 1', 'suite.toml: env.num_exmaples: unknown key; did you mean "num_examples"?'),
        ('[model]\nmax_concurent = 1', 'suite.toml: model.max_concurent: unknown key; did you mean "max_concurrent"?'),
        ('[save]\nsave_evry = 1', 'suite.toml: save.save_evry: unknown key; did you mean "save_every"?'),
        (
            '[[eval]]\nid = "toy-env"\nnum_exmaples = 9',
            'suite.toml: eval[0].num_exmaples: unknown key; did you mean "num_examples"?',
        ),
        (
            '[[eval]]\nid = "toy-env"\n[[eval]]\n[eval.env]\nenv_id = "toy-env"\nnum_exmaples = 9',
            'suite.toml: eval[1].env.num_exmaples: unknown key; did you mean "num_examples"?',
        ),
        (
            '[[eval]]\nid = "toy-env"\n[eval.sve]\nsave_every = 1',
            'suite.toml: eval[0].sve: unknown table; did you mean "save"?',
        ),
        ('[model]\nurl = "http://h"', 'suite.toml: model.url: unknown key; did you mean "api_base_url"?'),
        ('[env]\nmodel = "m"', 'suite.toml: env.model: unknown key; "model" belongs in [model]'),
        (
            '[model]\nclient_config = {}',
            "suite.toml: model.client_config: unknown key; valid here: model, api_base_url",
        ),
        ('[env]\nnum_examples = "ten"', 'suite.toml: env.num_examples = "ten": must be an integer'),
        ('num_examples = 0\nid = "toy-env"', "suite.toml: num_examples = 0: must be -1 (all of them) or at least 1"),
        ('[[eval]]\nid = "toy-env"\nmodel = 5', "suite.toml: eval[0].model = 5: must be a string"),
        ('[[eval]]\nid = "toy-env"\nenv = "x"', "suite.toml: eval[0].env: must be a table of env settings; "
         'to select an environment, write env_id = "x"'),
        ('[[eval]]\nid = "toy-env"\nenv = 1', "suite.toml: eval[0].env: must be a table of env settings"),
        ('[[eval]]\nid = "toy-env"\nsave = true', "suite.toml: eval[0].save: must be a table of save settings"),
        ('[[env]]\nenv_id = "toy-env"', "suite.toml: env: [[env]] cannot be a list; write [[eval]] with [eval.env]"),
        ('[eval]\nid = "toy-env"', "suite.toml: eval: must be a list of tables: write [[eval]]"),
        ('eval = [1]', "suite.toml: eval[0]: must be a table"),
        ('[[eval]]\nid = "toy-env"\nsweep = {}', "suite.toml: eval[0].sweep: a sweep belongs in [[ablation]]"),
        ('[[eval]]\nnum_examples = 3', "suite.toml: eval[0]: the environment is missing"),
        ('[env]\nnum_examples = 3', "suite.toml: no environment to run; add [[eval]]"),
        ("", "suite.toml: no environment to run"),
        ('id = "a"\nenv_id = "b"', "suite.toml: env_id: means the same as suite.toml: id; keep only one of them"),
        (
            '[[eval]]\nid = "toy-env"\nnum_examples = 1\n[eval.env]\nnum_examples = 2',
            "suite.toml: eval[0].env.num_examples: means the same as suite.toml: eval[0].num_examples",
        ),
        ("a = = 1", "suite.toml: not valid TOML: "),
        ('[env.env_args]\nday = 2024-01-01\n[[eval]]\nid = "toy-env"', "contains a date at day, which JSON cannot"),
        ('id = "toy-env"\nendpoints_path = 5', "suite.toml: endpoints_path = 5: must be a path"),
        ('id = "toy-env"\n[[endpoint]]\nendpoint_id = "a"', "suite.toml: endpoint[0].url: missing"),
    ],
)  # fmt: skip
def test_what_a_suite_may_not_say(write: Write, text: str, expected: str) -> None:
    assert expected in refused(text, write)


def test_a_wrong_value_is_refused_even_where_a_higher_layer_wins(write: Write) -> None:
    message = refused('[env]\nnum_examples = "ten"\n[[eval]]\nid = "toy-env"\nnum_examples = 3', write)
    assert message.startswith("suite.toml: env.num_examples")


def test_a_missing_file_is_no_environment(here: Path, write: Write) -> None:
    write("configs/suite.toml", 'id = "toy-env"')
    with pytest.raises(ConfigError, match=r"^nope\.toml: no such file$"):
        resolve("nope.toml", {})
    with pytest.raises(ConfigError, match=r"^configs/siute\.toml: no such file; did you mean configs/suite\.toml\?$"):
        resolve("configs/siute.toml", {})
    with pytest.raises(ConfigError, match=r"no such file \(and no folder conf\)"):
        resolve("conf/suite.toml", {})
    with pytest.raises(ConfigError, match="must be the only target"):
        resolve("toy-env,configs/suite.toml", {})


@pytest.mark.parametrize("target", ["", ",", " , "])
def test_a_target_names_something(here: Path, target: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid target"):
        resolve(target, {})


def test_an_unknown_environment_says_where_and_how_to_install_it(here: Path, write: Write) -> None:
    write("environments/toy_two/pyproject.toml", '[project]\nname = "toy-two"\n')
    write("suite.toml", '[[eval]]\nid = "toy-env"\n[[eval]]\nid = "toy-tow"\n')
    with pytest.raises(EnvironmentNotFound) as caught:
        resolve("suite.toml", {})
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert message.startswith("suite.toml: eval[1].id: no environment 'toy-tow' is installed; did you mean 'toy-two'?")
    assert "install toy-tow" not in message  # nobody should install a typo
    with pytest.raises(EnvironmentNotFound, match=r"not installed; run: bench env install environments/toy_two"):
        resolve("toy-two", {})


def test_hub_runs_need_names_of_their_own(write: Write) -> None:
    twice = '[[eval]]\nid = "toy-env"\n[[eval]]\nid = "toy-env"\nargs = {a = 1}\n'
    message = refused("[save]\nsave_to_hf_hub = true\n" + twice, write)
    assert "suite.toml: eval[1]: would be pushed to the Hub as 'toy-env'" in message
    assert "like suite.toml: eval[0]" in message
    write("suite.toml", "[save]\nsave_to_hf_hub = true\n" + twice + 'name = "other"\n')
    assert len(resolve("suite.toml", {}).runs) == 2
    message = refused(
        '[save]\nsave_to_hf_hub = true\nhf_hub_dataset_name = "me/data"\n[[eval]]\nid = "toy-env"\nmodel = "a"\n'
        '[[eval]]\nid = "toy-env"\nmodel = "b"\n[eval.save]\nhf_hub_dataset_name = "Me/Data"\n',
        write,
    )
    assert "in Me/Data" in message
    write("suite.toml", twice)
    assert len(resolve("suite.toml", {}).runs) == 2  # nothing is pushed


def test_pushing_what_is_not_kept_is_refused(write: Write) -> None:
    assert refused('id = "toy-env"\nsave_results = false', write, {"save_to_hf_hub": True}) == (
        "-H cannot push the run, because suite.toml: save_results does not save it; remove one of the two settings"
    )


def test_pushing_implies_keeping(here: Path) -> None:
    (run,) = resolve("toy-env", {"save_to_hf_hub": True}).runs
    assert run.settings.save.save_results


def test_a_repository_name_without_a_push_is_told(here: Path) -> None:
    assert (
        "-D me/data has no effect: nothing is pushed without -H"
        in resolve("toy-env", {"hf_hub_dataset_name": "me/data"}).notices
    )
    assert resolve("toy-env", {"hf_public": True}).notices[-1:] == (
        "--hf-public has no effect: nothing is pushed without -H",
    )
    assert resolve("toy-env", {"hf_public": True, "save_to_hf_hub": True, "hf_hub_dataset_name": "a/b"}).notices == ()


def test_a_bound_on_processes_that_there_are_not_is_told(here: Path) -> None:
    words = "has no effect: no environment runs in a process of its own without --workers or --isolate or --executor"
    alone: dict[str, object] = {"worker_memory_mb": 512, "worker_vars": ("HF_TOKEN",)}
    assert resolve("toy-env", alone).notices[-2:] == (f"--worker-memory-mb 512 {words}", f"--worker-vars {words}")
    assert resolve("toy-env", {**alone, "workers": 1}).notices == ()


def test_name_flag_is_for_one_run(here: Path) -> None:
    assert resolve("toy-env", {"name": "mine"}).runs[0].settings.env.name == "mine"
    with pytest.raises(ConfigError, match="name sets the name of one run"):
        resolve("toy-env,other-env", {"name": "mine"})


def test_env_dir_path_puts_results_beside_the_environment(here: Path) -> None:
    (here / "envs" / "toy_env").mkdir(parents=True)
    resolution = resolve("toy-env,other-env", {"env_dir_path": "envs"})
    assert [run.settings.save.output_dir for run in resolution.runs] == ["envs/toy_env/outputs", "outputs"]
    assert resolution.runs[0].origins["save.output_dir"].source == "-p envs"
    assert "-p envs has no effect on other_env: there is no folder envs/other_env" in resolution.notices
    resolution = resolve("toy-env", {"env_dir_path": "envs", "output_dir": "mine"})
    assert resolution.runs[0].settings.save.output_dir == "mine"
    assert resolution.notices == ("-p envs has no effect: -o mine sets the output folder",)
    with pytest.raises(ConfigError, match="this folder does not exist"):
        resolve("toy-env", {"env_dir_path": "nowhere"})
