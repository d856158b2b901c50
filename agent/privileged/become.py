"""From root to the server's user, for good."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass


class UnknownUserError(Exception):
    """This host has no such user, or it is root."""


@dataclass(frozen=True, slots=True)
class User:
    """A user of this host."""

    name: str
    uid: int
    gid: int
    home: str


def user_of(name: str) -> User:
    """UnknownUserError."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise UnknownUserError(f"user {name} does not exist: make it, or correct `user`") from error
    if entry.pw_uid == 0:
        raise UnknownUserError(f"user {name} is root: a server does not run as root")
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir)


def become(user: User) -> None:
    """With its further groups (video, render), without any way back. OSError."""
    os.initgroups(user.name, user.gid)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
