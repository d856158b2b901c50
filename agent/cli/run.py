"""`gpuagent run`: the agent itself, embedded."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Run the agent here, without systemd.")
@click.option("--config", type=click.Path(path_type=Path, readable=False), help="The configuration file.")
@click.pass_context
def run(ctx: click.Context, config: Path | None) -> None:
    """Run the agent here, without systemd and root, until Ctrl-C. Its servers end with it."""
    from agent.daemon import run as run_agent  # only here: FastAPI is slow to import

    socket: Path | None = ctx.find_root().obj
    ctx.exit(run_agent(config, socket))
