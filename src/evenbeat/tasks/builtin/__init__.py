"""The built-in tasks: what a worker can do without a line of anybody's code."""

from collections.abc import Iterable
from dataclasses import replace

from evenbeat.settings import Settings
from evenbeat.tasks.builtin import http, shell
from evenbeat.tasks.registry import Registry, TaskDefinition


def register(
    registry: Registry, settings: Settings, others: Iterable[TaskDefinition] = ()
) -> list[str]:
    """Add the built-in tasks that the settings allow; the names of those added.

    A task of the application's own keeps its name: the built-in one stays away.
    """
    offered = [http.definition(settings), *others]
    if settings.allow_shell:
        offered.append(shell.definition(settings))
    added = [task for task in offered if task.name not in registry]
    for task in added:
        registry.add(replace(task, hooks=registry.hooks))
    return [task.name for task in added]
