"""Which processes are never signalled for holding a GPU, by their names: one rule, for the agent and for root's code.

A name proves nothing, and is believed here because it can only protect. Standard library only: root runs it.
"""

from __future__ import annotations

NAME_BYTES = 15
"""The kernel keeps no more of a process's name."""

_GPU = (
    "nvidia-persistenced nvidia-fabricmanager nv-fabricmanager nvidia-imex nv-hostengine dcgm-exporter dcgmi "
    "nvidia-cuda-mps-server nvidia-cuda-mps-control nvidia-powerd nvidia-smi nvtop"
)
_SCREEN = (
    "X Xorg Xwayland Xvfb gdm gdm3 gdm-x-session gdm-wayland-session sddm lightdm gnome-shell gnome-session-binary "
    "kwin_x11 kwin_wayland plasmashell sway weston mutter cinnamon xfwm4 Hyprland"
)
_HOST = "systemd init dbus-daemon dbus-broker sshd login gpuagent"
_KINDS = {
    "the GPUs themselves need it": _GPU.split(),
    "somebody's screen needs it": _SCREEN.split(),
    "the host needs it": _HOST.split(),
}
_WHY = {name[:NAME_BYTES]: why for why, names in _KINDS.items() for name in names}


def why_protected(name: str) -> str:
    """Of a process that calls itself so, why it is left alone, as half a sentence; "": it is not for its name."""
    return _WHY.get(name[:NAME_BYTES], "")
