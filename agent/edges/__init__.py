"""One file for each thing outside. Edges fill the Protocols of `agent.ports`.

An edge imports no other edge. What edges are made of lies below them: pyproject.toml lists which file is which
(`tool.importlinter`, "edge-by-edge").
"""
