"""Command group `bench env`: the table of its commands, each in its own module."""

from __future__ import annotations

from harness.cli.lazy_commands import lazy_group, new_app, own_command

COMMANDS = {
    "init": own_command("env_init:init", "Start a new environment: a package that passes its tests."),
    "install": own_command("env_install:install", "Install environments, from folders or by name."),
    "list": own_command("env_list:list_environments", "List installed and other environments."),
    "info": own_command("env_info:info", "Show prompts, arguments and rewards of an environment."),
    "copy": own_command("env_init:copy", "Copy an environment into a folder of your own to edit."),
    "check": own_command("env_check:check", "Check that an environment is sound, without any model."),
}  # fmt: skip

app = new_app(cls=lazy_group(COMMANDS), no_args_is_help=True)


@app.callback()
def env() -> None:
    """Start, install, list, describe, copy and check environments.

    An environment is named by its entry point or module (`my-env`, `org/my-env`), or by the path of its file or folder
    (`./my_env.py`).
    """
