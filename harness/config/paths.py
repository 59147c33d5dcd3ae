"""Environments named by a path: which words are a path, and which file of a folder is the environment. Owns these two
rules, for the settings as for the loader; imports nothing that it finds."""

from __future__ import annotations

from pathlib import Path

from harness.errors import EnvironmentNotFound


def looks_like_path(env_id: str) -> bool:
    """Whether an id can only be a path: `./my_env.py`, `../envs/my-env`, `~/my_env`, `/srv/my_env`.

    `org/my-env` may be either, and is a path where there is such a file or folder.
    """
    return env_id.endswith(".py") or env_id.startswith((".", "~", "/"))


def environment_path(env_id: str, cwd: Path) -> Path | None:
    """The file or folder that an id names; None for a name.

    A bare word is never a path, lest a folder hides an installed package.

    Args:
        env_id: As the user wrote it.
        cwd: Where a relative path begins.

    Raises:
        EnvironmentNotFound: it is a path, and there is nothing.
    """
    if not looks_like_path(env_id) and "/" not in env_id:
        return None
    path = cwd / Path(env_id).expanduser()
    if path.exists():
        return path.resolve()
    if looks_like_path(env_id):
        raise EnvironmentNotFound(f"no environment at {env_id}: there is no such file or folder")
    return None


def path_name(path: Path) -> str:
    """What an environment that was named by a path is called: `a/my_env.py` is `my_env`, `a/my-env` is `my-env`."""
    if path.name == "__init__.py":
        return path.parent.name
    return path.stem if path.suffix == ".py" else path.name


def main_file(path: Path) -> Path:
    """The environment's own file: `path` itself, or the module of a folder (`my-env/my_env.py`, `my-env/my_env/`, the
    same below `src/`, or the folder itself as a package).

    Raises:
        EnvironmentNotFound: the folder holds no such file, or `path` is a file of another kind.
    """
    if path.is_file():
        if path.suffix != ".py":
            raise EnvironmentNotFound(f"no environment in {path}: it is no Python file")
        return path
    name = path.name.replace("-", "_")
    inside = (f"{name}.py", f"{name}/__init__.py", f"src/{name}/__init__.py", "__init__.py")
    found = next((path / each for each in inside if (path / each).is_file()), None)
    if found is None:
        raise EnvironmentNotFound(f"no environment in {path}: the folder holds none of {', '.join(inside)}")
    return found
