"""One file for each thing outside. Edges fill the Protocols of `agent.ports`.

An edge imports no other edge. Four files here are no edges but what edges are made of: `bounded` (a thread with a
deadline), `processes` and `sockets` (plain readers of /proc, without state) and `server_tree` (which processes are a
server's).
"""
