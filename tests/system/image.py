"""A Debian root for each systemd that we support, made when it is missing and kept outside the work tree.

In it: systemd, Python, a wheelhouse of the locked packages (`/wheels`, so that a container needs no network) and a
Python with the demo's server (`/opt/demo`). Nobody writes into it afterwards: containers lay a layer over it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
SUITES = {"bookworm": 252, "trixie": 257}
"""Debian's releases, with their systemd."""

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "python3", "python3-venv", "make", "procps", "iproute2", "libgomp1",
    "bash-completion",
)  # fmt: skip
BUILD_S = 600.0

FILL = """
set -eu
python3 -m venv /opt/demo
cd /wheels
/opt/demo/bin/python -m pip download -qq --no-deps --require-hashes -r requirements.lock
/opt/demo/bin/python -m pip download -qq setuptools wheel
/opt/demo/bin/python -m pip install -qq --no-index --find-links /wheels setuptools wheel
/opt/demo/bin/python -m pip install -qq --no-index --find-links /wheels --require-hashes -r requirements.lock
rm -rf /root/.cache
"""
"""Run inside the root, with the network. `setuptools` and `wheel` build a locked package that has no wheel."""

NEEDED = {"systemd-nspawn": "systemd-container", "mmdebstrap": "mmdebstrap", "nsenter": "util-linux"}


def why_not() -> str | None:
    """What is missing here for containers; None: nothing."""
    if os.geteuid() != 0:
        return "containers need root"
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    return f"install {' '.join(missing)}" if missing else None


def cache() -> Path:
    """Where the roots are kept."""
    return Path(os.environ.get("GPUAGENT_TEST_CACHE") or Path.home() / ".cache" / "gpuagent-test")


@contextmanager
def image(suite: str) -> Iterator[Path]:
    """The root of `suite`, kept in place while it is used. Made first if need be: about a minute, with the network."""
    made_from = "\0".join([suite, *PACKAGES, FILL, LOCK.read_text()])
    key = hashlib.sha256(made_from.encode()).hexdigest()[:12]
    folder = cache() / f"{suite}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        root = folder / "root"
        fcntl.flock(lock, fcntl.LOCK_SH)  # those who use it do not wait for each other
        if not root.exists():
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be making it
            if not root.exists():
                _forget_others(suite, folder)
                _build(suite, folder / "part")
                (folder / "part").rename(root)
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield root


def _forget_others(suite: str, ours: Path) -> None:
    """Remove what was made from other locks and recipes, unless it is in use."""
    for folder in cache().glob(f"{suite}-*"):
        if folder == ours:
            continue
        with (folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(folder)


def _build(suite: str, root: Path) -> None:
    """Debian, then the wheels and the demo's Python."""
    if root.exists():  # a build that was cut off
        shutil.rmtree(root)
    debian = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(root)]
    subprocess.run(debian, check=True, timeout=BUILD_S, stdin=subprocess.DEVNULL)
    (root / "wheels").mkdir()
    shutil.copy(LOCK, root / "wheels")
    with _network(root) as environment:
        # A mount namespace of its own, so that nothing stays mounted whatever happens.
        inside = (
            f'mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" sh -c \'{_quoted(FILL)}\''
        )
        command = ["unshare", "--mount", "sh", "-c", inside, str(root)]
        subprocess.run(command, check=True, timeout=BUILD_S, stdin=subprocess.DEVNULL, env=environment)


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")


@contextmanager
def _network(root: Path) -> Iterator[dict[str, str]]:
    """This machine's names and certificates in the root, as long as it is filled; the environment to do it with."""
    borrowed = {Path("/etc/resolv.conf"): root / "etc" / "resolv.conf"}
    bundle = os.environ.get("PIP_CERT") or ssl.get_default_verify_paths().cafile
    if bundle:
        borrowed[Path(bundle)] = root / "root" / "certificates.pem"
    passed = {
        name: value for name, value in os.environ.items() if name.lower().endswith("_proxy") or name == "PIP_INDEX_URL"
    }
    try:
        for source, target in borrowed.items():
            target.unlink(missing_ok=True)
            shutil.copy(source, target)
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        certificates = {"PIP_CERT": "/root/certificates.pem"} if bundle else {}
        yield {"PATH": path, "HOME": "/root", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **certificates, **passed}
    finally:
        for target in borrowed.values():
            target.unlink(missing_ok=True)
