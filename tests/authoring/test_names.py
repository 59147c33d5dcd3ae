from __future__ import annotations

import pytest
from tables import for_each_row

from harness.authoring.scaffold import LONGEST, read_name
from harness.core.errors import ConfigError


@for_each_row(
    ("text", "name", "module", "class_name"),
    [
        ("my-env", "my-env", "my_env", "MyEnv"),
        ("my_env", "my-env", "my_env", "MyEnv"),
        ("org/my-env", "my-env", "my_env", "MyEnv"),
        ("env2-b3", "env2-b3", "env2_b3", "Env2B3Env"),
        ("tool-env", "tool-env", "tool_env", "ToolEnvEnv"),
        ("x", "x", "x", "XEnv"),
        ("a" * LONGEST, "a" * LONGEST, "a" * LONGEST, "A" + "a" * (LONGEST - 1) + "Env"),
    ],
)
def test_a_name_is_one_thing_in_every_place(text: str, name: str, module: str, class_name: str) -> None:
    names = read_name(text)
    assert (names.name, names.module, names.class_name) == (name, module, class_name)


@for_each_row(
    ("text", "words"),
    [
        ("MyEnv", "perhaps 'my-env'?"),
        ("my env", "perhaps 'my-env'?"),
        ("2fast", "perhaps 'fast'?"),
        ("my--env", "perhaps 'my-env'?"),
        ("-env", "perhaps 'env'?"),
        ("", "begin with a letter"),
        ("../x/..", "is a path, not a name; name the folder as the path, as in: bench env init NAME --path ../x"),
        (
            "./sub/thing",
            "'./sub/thing' is a path, not a name; name .* as in: bench env init thing --path ./sub",
        ),
        ("/srv/my_env", "as in: bench env init my_env --path /srv"),
        ("/thing", "as in: bench env init thing --path /"),
        ("../up", r"as in: bench env init up --path \.\."),
        ("a/b/c", "as in: bench env init c --path a/b"),
        ("my folder/x", "as in: bench env init x --path 'my folder'"),
        ("org/", "'org/' is a folder, or an organisation without a name: add a name, as in org/my-env"),
        ("ümlaut", "begin with a letter"),
        ("a" * (LONGEST + 1), "51 characters, but at most 50 are allowed"),
        ("json", "json is a module of the Python standard library"),
        ("class", "class is a Python keyword"),
        ("match", "match is a Python keyword"),
        ("harness", "it is the module that environments import"),
        ("agent-eval", "it is the built-in environment for agents"),
        ("tests", "it is the folder of an environment's tests"),
        ("pytest", r"pytest \S+ is already installed"),
        ("org/gsm8k", r"gsm8k 0.1.0 is already installed"),
        ("bench-harness", r"bench-harness \S+ is already installed"),
        ("yaml", r"a module yaml already exists \(.*yaml/__init__.py\)"),
    ],
)
def test_a_name_that_will_not_do_is_refused_with_a_reason(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_name(text)
