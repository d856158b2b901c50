"""`gpuagent run`: the agent itself, embedded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click


@click.command(short_help="Run the agent here, without systemd.")
@click.option("--config", type=click.Path(path_type=Path, readable=False), help="The configuration file.")
@click.option(
    "--units", is_flag=True, help="Run the servers as systemd units, which outlive the agent: for gpuagent.service."
)
@click.pass_context
def run(ctx: click.Context, config: Path | None, units: bool) -> None:
    """Run the agent here, without systemd and root, until Ctrl-C. Its servers end with it."""
    from agent.daemon import Mode  # only here: FastAPI is slow to import
    from agent.daemon import run as run_agent

    if units:
        from agent.units import Units

        make_mode: Callable[[], Mode] = Units
    else:
        from agent.embedded import Embedded

        make_mode = Embedded
    socket: Path | None = ctx.find_root().obj
    ctx.exit(run_agent(config, socket, make_mode))
