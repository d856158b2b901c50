"""How often a server is asked for its health."""

from __future__ import annotations

from agent.core.model import Health, Stage, State

STARTING_S = 0.05  # a refused connect costs 0.3 ms, a "still loading" 3 ms
SICK_S = 1.0
LATE_SHARE = 1 / 600
"""A server that has answered "still loading" for long is asked less often, though at least once a SICK_S: it logs each
question, and nobody minds to learn of its readiness by this part of its loading time later."""
PROBED = frozenset({Stage.STARTING, Stage.READY, Stage.UNHEALTHY})


class Pace:
    """Of one server. Times are the loop's."""

    def __init__(self, ready_s: float) -> None:
        self._ready_s = ready_s  # between two probes of a server that is well
        self._loading_since: float | None = None  # since when it answers that it is not ready yet

    def answered(self, health: Health, at: float) -> None:
        """What the last probe found."""
        if health not in (Health.LOADING, Health.SICK):
            self._loading_since = None
        elif self._loading_since is None:
            self._loading_since = at

    def pause_s(self, state: State, at: float) -> float | None:
        """Until the next probe; None: there is none in this stage."""
        if state.stage not in PROBED:
            return None
        if state.stage is Stage.STARTING:
            loading_s = 0.0 if self._loading_since is None else at - self._loading_since
            return min(max(STARTING_S, loading_s * LATE_SHARE), SICK_S)
        return self._ready_s if state.stage is Stage.READY and not state.misses else SICK_S
