"""What a new configuration changes, against the one that is in force. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent.config.model import AgentConfig, Config


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of servers, sorted; `later`: keys of the agent that take effect at its next start ("agent.listen").

    `listed`, `unlisted`: units that are to be kept off from now on, or not any more.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Defined otherwise than before; how the file puts it (extends, arguments, defaults written out) does not count."""
    later: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


def changes(old: Config, new: Config) -> Changes:
    """From `old` to `new`. What stands in environment files is no part of it: they are read at each launch.

    A server that is not among the changed may still have got or lost a rival: overlaps come from all servers together.
    """
    before, after = frozenset(old.rivals.units), frozenset(new.rivals.units)
    both = old.servers.keys() & new.servers.keys()
    return Changes(
        added=tuple(sorted(new.servers.keys() - old.servers.keys())),
        removed=tuple(sorted(old.servers.keys() - new.servers.keys())),
        changed=tuple(sorted(name for name in both if old.servers[name] != new.servers[name])),
        later=tuple(
            f"agent.{key}" for key in AgentConfig.model_fields if getattr(old.agent, key) != getattr(new.agent, key)
        ),
        listed=tuple(sorted(after - before)),
        unlisted=tuple(sorted(before - after)),
    )
