"""Scores of a task: the library filters the replies and computes the metrics of each document, and the figures of a run
with the task's own aggregations."""

from __future__ import annotations

import copy
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from harness.core.errors import ConfigError, EnvironmentLoadError
from harness.core.keys import digest
from harness.core.state import State
from harness.core.types import JsonDict
from harness.plugins.lm_eval_tasks.documents import Documents
from harness.plugins.lm_eval_tasks.library import part, quiet
from harness.rubrics.rubric import Rubric
from harness.settings.wording import suggestion
from harness.usercode.exceptions import describe

logger = logging.getLogger(__name__)

VALUES = "lm_eval"
"""Name of the state value with the results of scoring by the task: `values` and `filtered` replies."""

RESPONSES = "responses"
"""Name of the state value with the replies: for each request of the task a list of texts, of [log-likelihood, whether
the tokens are the likeliest], or of log-likelihoods."""

_OF_MANY = frozenset({"f1_score", "matthews_corrcoef"})
"""Aggregations that say nothing about a single document."""

_SHARES = frozenset({"acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "correct"})
"""Metrics from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One of the task's metrics after one of its filters. A reward function of the rubric."""

    scorer: Scorer
    name: str
    """Name of the metric in the library."""
    filter: str

    @property
    def __name__(self) -> str:
        """The column's name; without the name of the only filter that changes nothing."""
        return column(self.name, self.filter)

    def __call__(self, state: State) -> float:
        """Return the document's value: that of the library if the figure of the run is the mean, or if it is a number;
        otherwise the figure of this document alone."""
        values, key = self.scorer.values(state), f"{self.name},{self.filter}"
        if key not in values:
            raise ValueError(f"the task has no value of {self.name} for this document")
        value = values[key]
        if self.name == "correct" or self.scorer.is_mean(self.name) or isinstance(value, bool):
            return value
        figure = self.scorer.aggregation(self.name)
        if isinstance(value, int | float) and getattr(figure, "__name__", "") != "perplexity":
            return value
        with quiet():
            return figure([value])


class Scorer:
    """Computes the values of a task's metrics.

    Args:
        name: Name of the task.
        documents: The task's documents.
    """

    def __init__(self, name: str, documents: Documents) -> None:
        self.name = name
        self.task = documents.task
        self._documents = documents
        self._mean = part("api.metrics").mean
        self.filters = [each.name for each in self.task._filters]
        self.declared = [name for name in self.task.aggregation() if name != "bypass"]
        """Names of the metrics in the task's configuration. Scoring can add others, as some return several values."""

    def config_digest(self) -> str:
        """Return a hash of the task's configuration, with the source of its functions and without its location."""
        config: JsonDict = {name: value for name, value in self.task.dump_config().items() if name != "metadata"}
        return digest(plain(config))

    def aggregation(self, metric: str) -> Any:
        """Return the function that computes the figure of a run from the documents' values."""
        return self.task.aggregation().get(metric, self._mean)

    def is_mean(self, metric: str) -> bool:
        """Return whether the figure of the run is the mean over documents."""
        return self.aggregation(metric) is self._mean

    def metrics(self) -> list[Metric]:
        """Return the metrics that each document has, filter by filter; `correct` if it has no other.

        Raises:
            EnvironmentLoadError: the task has no metric.
        """
        if not self.declared:
            raise EnvironmentLoadError(f"the task {self.name} of lm-eval has no metric, so it cannot be scored")
        single = [name for name in self.declared if getattr(self.aggregation(name), "__name__", "") not in _OF_MANY]
        return [Metric(self, name, each) for each in self.filters for name in single or ["correct"]]

    def values(self, state: State) -> Mapping[str, Any]:
        """Return the values of all metrics by `METRIC,FILTER`, computed once and stored in the state."""
        known: object = state.get(VALUES)
        if isinstance(known, dict):
            return restored(cast("dict[str, dict[str, Any]]", known)["values"])
        if RESPONSES not in state:
            raise ValueError(f"not all requests of the document were answered ({state['stop_condition']})")
        requests = [copy.copy(each) for each in self._documents.requests(state["info"]["doc_id"])]
        for request, replies in zip(requests, restored(state[RESPONSES]), strict=True):
            request.resps = [tuple(cast("list[Any]", each)) if isinstance(each, list) else each for each in replies]
            request.filtered_resps = {}
        values: JsonDict = {}
        filtered: JsonDict = {}
        with quiet():
            for each in self.task._filters:
                each.apply(requests)
                found = [request.filtered_resps[each.name] for request in requests]
                filtered[each.name] = found
                for metric, value in self.task.process_results(requests[0].doc, found).items():
                    values[f"{metric},{each.name}"] = plain(value)
                    if metric in self.task.aggregation() and self._is_pair(metric, value):
                        values[f"correct,{each.name}"] = float(value[0] == value[1])
        document = state["info"]["doc_id"]
        state[VALUES] = {"task": self.name, "doc_id": document, "values": values, "filtered": plain(filtered)}
        return restored(values)

    def _is_pair(self, metric: str, value: Any) -> bool:
        """Return whether a value is the right answer and the model's."""
        is_pair = isinstance(value, tuple) and len(cast("tuple[Any, ...]", value)) == 2
        return is_pair and getattr(self.aggregation(metric), "__name__", "") in _OF_MANY

    def figures(self, scored: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Compute the figures of a run, as the library does: by `METRIC,FILTER`, with standard errors of means and the
        number of documents.

        Args:
            scored: The state value `VALUES` of each rollout that the task scored. The standard errors are those of the
                documents' means.
        """
        columns: dict[str, dict[int, list[Any]]] = {}
        for each in sorted(scored, key=lambda one: one["doc_id"]):
            for key, value in restored(each["values"]).items():
                if not key.startswith("correct,") or "correct" in self.task.aggregation():
                    columns.setdefault(key, {}).setdefault(each["doc_id"], []).append(value)
        found: dict[str, Any] = {}
        with quiet():
            for key, of in columns.items():
                metric, _, name = key.partition(",")
                try:
                    found[key] = float(self.aggregation(metric)([value for values in of.values() for value in values]))
                except Exception as error:  # of the task's own function, or of its result
                    logger.warning("the figure %s of the task %s is missing: %s", key, self.name, describe(error))
                    continue
                if self.is_mean(metric) and len(of) > 1:
                    means = [self._mean(values) for values in of.values()]
                    found[f"{metric}_stderr,{name}"] = float(part("api.metrics").mean_stderr(means))
        return {**found, "sample_len": len({each["doc_id"] for each in scored})}


class TaskRubric(Rubric):
    """A rubric with the metrics of a task. The reward is one of them, or minus it if lower values are better.

    Args:
        scorer: Computes the metrics.
        reward: Name of the reward's column; None for the first metric whose figure is a mean, or else the first one.

    Raises:
        ConfigError: no metric has this name.
    """

    def __init__(self, scorer: Scorer, reward: str | None = None) -> None:
        metrics = scorer.metrics()
        names = [each.__name__ for each in metrics]
        if reward is not None and reward not in names:
            raise ConfigError(f"reward: the task {scorer.name} has no metric {reward!r}; {suggestion(reward, names)}")
        chosen = reward or next((each.__name__ for each in metrics if scorer.is_mean(each.name)), names[0])
        metric = metrics[names.index(chosen)]
        sign = 1.0 if scorer.task.higher_is_better().get(metric.name, True) else -1.0
        super().__init__(metrics, [sign if name == chosen else 0.0 for name in names])
        self._is_share = metric.name in _SHARES

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest reward; infinite for metrics that may have any value."""
        return super().reward_range if self._is_share else (-math.inf, math.inf)


def column(metric: str, filter_name: str) -> str:
    """Return the name of a metric's column: `acc`, or `exact_match_strict_match` after the filter `strict-match`."""
    return re.sub(r"\W+", "_", metric if filter_name == "none" else f"{metric}_{filter_name}")


def named(figures: Mapping[str, Any], task: str = "") -> dict[str, float]:
    """Return the figures with names for readers: `perplexity`, `exact_match,strict-match`, `mmlu: acc`."""
    return {
        f"{task}: {key.removesuffix(',none')}" if task else key.removesuffix(",none"): value
        for key, value in figures.items()
        if "," in key and isinstance(value, int | float)
    }


def plain(value: Any) -> Any:
    """Convert the library's values to JSON: arrays and tuples to lists, numbers of numpy to numbers, and numbers that
    JSON lacks to `{"float": "nan"}`."""
    if callable(convert := getattr(value, "tolist", None)):
        value = convert()
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in cast("list[object]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def restored(value: Any) -> Any:
    """Convert values from `plain` back, as far as numbers that JSON lacks."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        text = found.get("float")
        if len(found) == 1 and text in ("nan", "inf", "-inf"):
            return float(text)
        return {key: restored(each) for key, each in found.items()}
    return [restored(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value
