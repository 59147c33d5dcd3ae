"""Modules that classic packages import: `verifiers`, `verifiers.types`, `verifiers.utils.data_utils`, … `surface` lists
their names. Each generation has its own modules; names are resolved on first use, so that nothing is imported
needlessly."""

from __future__ import annotations

import importlib
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from harness.plugins.classic import surface
from harness.plugins.classic.generation import VERSIONS, Generation

NAME = "verifiers"

_made: dict[tuple[Generation, str], ModuleType] = {}


class ClassicModule(ModuleType):
    """One module of the classic API.

    Args:
        name: Its full name, such as `verifiers.types`.
        generation: Its generation.
    """

    def __init__(self, name: str, generation: Generation) -> None:
        super().__init__(name, f"Classic API, answered by bench-harness ({VERSIONS[generation]}).")
        path = name.partition(".")[2]
        is_package = path in surface.PACKAGES
        fields = vars(self)
        fields["_names"] = surface.names(path, generation)
        fields["_generation"] = generation
        fields["__file__"] = f"<classic API: {name}>"
        fields["__package__"] = name if is_package else name.rpartition(".")[0]
        spec = ModuleSpec(name, None, origin=fields["__file__"], is_package=is_package)
        fields["__spec__"] = spec
        if is_package:
            fields["__path__"] = []
        if not path:
            fields["__version__"] = VERSIONS[generation]
        fields["__all__"] = sorted(name for name in fields["_names"] if not name.startswith("_"))

    def __getattr__(self, name: str) -> Any:
        fields = vars(self)
        target = fields["_names"].get(name)
        if target is not None:
            module, _, attribute = target.partition(":")
            try:
                found = importlib.import_module(module)
                value = getattr(found, attribute) if attribute else found
            except ModuleNotFoundError as error:
                if error.name != "openai":
                    raise
                words = "needs the openai package: pip install 'bench-harness[classic]'"
                raise AttributeError(f"{self.__name__}.{name} {words}") from error
            fields[name] = value
            return value
        below = module_of(fields["_generation"], f"{self.__name__}.{name}") if not name.startswith("__") else None
        if below is not None:
            return below
        raise AttributeError(surface.absent(self.__name__, name, fields["_generation"]))

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *vars(self)["_names"]})


def module_of(generation: Generation, name: str) -> ModuleType | None:
    """A module of the classic API by its full name; None if the name is unknown."""
    key = (generation, name)
    if key not in _made:
        path = name.partition(".")[2]
        if name.partition(".")[0] != NAME or not surface.exists(path, generation):
            return None
        _made[key] = ClassicModule(name, generation)
    return _made[key]
