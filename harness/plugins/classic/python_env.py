"""`vf.PythonEnv`: an environment with the tool `python`, an interpreter for each rollout whose variables persist
between calls. Implements the classic arguments, metric and tool output; `harness.sandbox.workbench` runs the
interpreter."""

from __future__ import annotations

import importlib.metadata as metadata
import importlib.util
import shlex
import time
from collections.abc import Iterator
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from harness.core.errors import EnvironmentFault
from harness.core.errors import SandboxError as HarnessSandboxError
from harness.core.state import State
from harness.core.types import JsonDict, Messages
from harness.plugins.classic import faults
from harness.plugins.classic.packages import top_levels
from harness.plugins.classic.rubric import Rubric
from harness.plugins.classic.sandbox_env import SandboxEnv, entries
from harness.sandbox.workbench import NEW_INTERPRETER, CodeResult, Lost, Workbench

# Support for `pip_install_packages` of `vf.PythonEnv`. Nothing is downloaded: the packages must be installed in
# bench's Python environment, and the sandbox makes them importable. Checks the names and versions of the packages.


def modules_of(packages: str, who: str) -> tuple[str, ...]:
    """Return the import names of the modules of the given packages and of all packages that they require.

    Args:
        packages: The packages as on pip's command line.
        who: The environment, for messages.

    Raises:
        EnvironmentFault: a package or its requested version is not installed; the message says what to install.
    """
    wanted = [_requirement(word, who) for word in shlex.split(packages) if not word.startswith("-")]
    missing = [str(requirement) for requirement in wanted if not _is_met(requirement)]
    if missing:
        raise EnvironmentFault(
            f"{who}(pip_install_packages=…): not installed: {', '.join(missing)}. The sandbox has no network and uses "
            f"the packages that are installed with bench; run: pip install {' '.join(map(shlex.quote, missing))}"
        )
    found: dict[str, list[str]] = {}
    waiting = list(wanted)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and _is_met(requirement):  # a dependency is missing after `pip install --no-deps`
            found[name] = list(_modules(requirement.name))
            waiting.extend(_required(requirement))
    return tuple(sorted({module for modules in found.values() for module in modules}))


def _requirement(word: str, who: str) -> Requirement:
    try:
        return Requirement(word)
    except InvalidRequirement as error:
        raise EnvironmentFault(
            f"{who}(pip_install_packages=…): {word!r} is not a valid package requirement: {error}"
        ) from error


def _is_met(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def _required(requirement: Requirement) -> Iterator[Requirement]:
    for line in metadata.requires(requirement.name) or ():
        needed = Requirement(line)
        extras = ("", *requirement.extras)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
            yield needed


def _modules(distribution: str) -> Iterator[str]:
    """Find the top-level modules of a distribution that can be imported from files."""
    for name in sorted(top_levels(metadata.distribution(distribution))):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and spec.has_location:
            yield name


class PythonWorkerNotReadyError(faults.SandboxError):
    """The Python interpreter of a rollout did not start."""


class PythonWorkerRequestError(faults.SandboxError):
    """A request to the Python interpreter of a rollout failed."""


class PythonWorkerDeadError(faults.SandboxError):
    """The Python interpreter has ended. bench does not raise this: the model gets an error message and a new
    interpreter."""


class PythonMonitorRubric(Rubric):
    """Rubric with the metric `python_ready_wait_time`, in seconds."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.python_ready_wait_time)

    async def python_ready_wait_time(self, state: State) -> float:
        """Metric: seconds until the Python interpreter and its sandbox had started; 0 if they were not used."""
        return state["python_state"]["ready_wait_time"]


class PythonEnv(SandboxEnv):
    """`vf.PythonEnv`: a model with a Python interpreter whose variables persist between calls.

    Args:
        pip_install_packages: Packages for the interpreter, which must be installed in the same Python environment as
            bench.
        max_startup_wait_seconds: Stored as an attribute only: startup installs nothing and is fast.
        **kwargs: See `SandboxEnv`.

    Raises:
        SandboxMissing: this machine has no sandbox; the message says what to install.
        EnvironmentFault: a package is not installed; the message says how to install it.
    """

    _only_python = True

    def __init__(
        self, pip_install_packages: str = "numpy sympy scipy", max_startup_wait_seconds: int = 30, **kwargs: Any
    ) -> None:
        self._modules = modules_of(pip_install_packages, type(self).__name__)
        self.max_startup_wait_seconds = max_startup_wait_seconds
        super().__init__(sandbox_name="python-env", **kwargs)
        self.add_rubric(PythonMonitorRubric())
        self.add_tool(self.python, args_to_skip=["sandbox_id", "sandbox_state", "python_state"])
        self.remove_tool(self.bash)

    async def setup_state(self, state: State, **kwargs: Any) -> Any:
        """Give the rollout its own Python interpreter, which starts on first use."""
        made: Any = await super().setup_state(state, **kwargs)
        state["python_state"] = dict(ready=False, execution_count=0, ready_wait_time=0.0)
        return made

    def update_tool_args(
        self, tool_name: str, tool_args: JsonDict, messages: Messages, state: State, **kwargs: Any
    ) -> JsonDict:
        """Add the rollout's sandbox and interpreter to the arguments of the tool `python`."""
        if tool_name != "python":
            return super().update_tool_args(tool_name, tool_args, messages, state, **kwargs)
        return {**tool_args, **entries(state, "sandbox_id", "sandbox_state", "python_state")}

    async def python(self, code: str, sandbox_id: str, sandbox_state: JsonDict, python_state: JsonDict) -> str:
        """Run Python code; variables, functions and imports stay from call to call. Returns what the code prints, the
        value of its last line if that is an expression, or a traceback.

        Args:
            code: The code.
            sandbox_id: The rollout's sandbox.
            sandbox_state: Measurements of the sandbox.
            python_state: Measurements of the interpreter.
        """
        bench, seconds = self._bench(sandbox_id), self.timeout_per_command_seconds
        assert isinstance(bench, Workbench)  # containers are refused
        started = time.monotonic()
        try:
            done = await bench.python(code, seconds, apart=True)
        except HarnessSandboxError as error:
            raise PythonWorkerNotReadyError(str(error)) from error
        opened = 0.0 if sandbox_state["ready"] else bench.open_seconds
        waited = 0.0 if python_state["ready"] else bench.ready_seconds
        self._measured(sandbox_state, bench, time.monotonic() - started - waited)
        if not python_state["ready"]:
            python_state["ready"], python_state["ready_wait_time"] = True, opened + waited
        if isinstance(done, Lost):
            python_state["execution_count"] = 0
            if done.timed_out and not done.everything:
                return f"Error: Command timed out after {seconds:g}s\n{NEW_INTERPRETER}"
            return f"Error: {done}"
        python_state["execution_count"] += 1
        return _cell_text(done, python_state["execution_count"])


def _cell_text(cell: CodeResult, count: int) -> str:
    """Format the result of executed code for the model."""
    output, errors = cell.output.rstrip(), cell.errors.rstrip()
    parts = [output] if output else []
    if errors:
        parts.append(f"stderr:\n{errors}")
    if cell.error is not None:
        parts.append(cell.error.rstrip())
    elif cell.value is not None:
        parts.append(f"Out[{count}]: {cell.value}")
    return "\n".join(parts) or "(no output)"
