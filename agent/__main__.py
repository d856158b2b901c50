"""`python -m agent` is `gpuagent`."""

from __future__ import annotations

from agent.cli import main

main()
