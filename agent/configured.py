"""The configuration in force: the servers that follow from it, their secrets, and its reload."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import structlog

from agent.config import Config, load
from agent.config.reload import changes
from agent.core.redact import redact
from agent.definition import Definition, Environment, define
from agent.errors import ConfigError
from agent.roster import Defined
from agent.watch import Outside

Open = Callable[[Definition, Config, Callable[[str], str]], Outside]
"""Makes the edges of a server; the last argument takes secrets out of a text."""
Take = Callable[[Mapping[str, Defined], frozenset[str]], Awaitable[None]]
"""Puts a configuration in force: the servers, and the units that are to be kept off."""

log = structlog.get_logger()


class Configured:
    """What `path` says, as of the last time that it was read without fault."""

    def __init__(self, path: Path, config: Config, open_edges: Open) -> None:
        self.config = config
        self.refused: str | None = None  # why the file as it is now is not in force
        self.path = path
        self._open_edges = open_edges
        self._definitions = define(config)
        self._environments: list[Environment] = [each.environment for each in self._definitions.values()]
        self._one_at_a_time = asyncio.Lock()

    def servers(self) -> dict[str, Defined]:
        """Those that are defined."""
        return _defined(self._definitions, self.config, self._open_edges, self.hide)

    @property
    def listed(self) -> frozenset[str]:
        """The units of the host that are to be kept off."""
        return frozenset(self.config.rivals.units)

    def hide(self, text: str) -> str:
        """Text from outside without secrets; those of definitions that are in force no more are secrets still."""
        return redact(text, [value for each in self._environments for value in each.secrets])

    async def reload(self, take: Take) -> Mapping[str, Sequence[str]]:
        """Read the file again and let `take` put it in force: whole, or not at all.

        What changed: see config.reload.Changes. ConfigError: it is wrong, or cannot be taken now.
        """
        async with self._one_at_a_time:
            try:
                return await self._reload(take)
            except ConfigError as error:
                self.refused = "; ".join(error.faults)
                log.warning("the configuration is refused; the last good one stays in force", faults=error.faults)
                raise

    async def _reload(self, take: Take) -> Mapping[str, Sequence[str]]:
        read = await asyncio.to_thread(load, self.path)
        told = changes(self.config, read)
        config = read.model_copy(update={"agent": self.config.agent})  # its keys count at the agent's next start
        definitions = define(config)
        self._environments += [each.environment for each in definitions.values()]
        await take(_defined(definitions, config, self._open_edges, self.hide), frozenset(config.rivals.units))
        self.config, self._definitions, self.refused = config, definitions, None
        log.info("the configuration was read again", **asdict(told))
        return asdict(told)


def _defined(
    definitions: Mapping[str, Definition], config: Config, open_edges: Open, hide: Callable[[str], str]
) -> dict[str, Defined]:
    return {
        name: Defined(
            policy=each.policy,
            url=each.url,
            digest=each.digest,
            source=config.servers[name],
            open=partial(open_edges, each, config, hide),
        )
        for name, each in definitions.items()
    }
