#!/bin/sh
# Installs gpuagent on this host, or puts a newer one in its place; `install.sh --remove` takes it away. As root.
#
#   PYTHON=python3.13 install.sh     with another Python (3.11 or later)
#   PURGE=1 install.sh --remove      with its configuration, history, logs, users and their homes
#
# Each version has a folder of its own below /opt/gpuagent, and one link says which counts: a run that fails leaves
# what was there in force. Servers that run go on; only the agent itself is started anew.
set -eu
umask 022 # other users run it
cd "$(dirname "$0")/.."

home=/opt/gpuagent
units=/etc/systemd/system # systemd looks here on every host; the folder below /usr/local is not always there
config=/etc/gpuagent/gpuagent.toml
holds=/var/lib/gpuagent-holds
completion=/usr/share/bash-completion/completions/gpuagent
python=${PYTHON:-python3}

say() { printf 'gpuagent: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || die 'run this as root'
command -v systemctl >/dev/null && [ -d /run/systemd/system ] || die 'this host is not run by systemd; try `make demo`'

runs() { systemctl --quiet is-active gpuagent; }

our_units() { ls systemd | grep '^gpuagent.*\.\(service\|socket\|slice\)$'; }

running_servers() {
  systemctl list-units --plain --no-legend --state=active,activating 'gpuagent-server@*' | cut -d' ' -f1
}

new_venv() {
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "needs Python 3.11 or later; $python is older"
  new=$home/version-$(date +%Y%m%d-%H%M%S)-$$
  mkdir -p $home
  trap 'rm -rf "$new"' EXIT
  say "installing into $new"
  "$python" -m venv "$new" || die "$python has no venv; on Debian: apt-get install python3-venv"
  "$new/bin/python" -m pip install -qq --require-hashes -r requirements-install.lock
  # From a copy: a clone may be read only, and must stay as it is.
  source=$new/source
  mkdir "$source"
  cp -R agent pyproject.toml README.md "$source"
  "$new/bin/python" -m pip install --quiet --no-deps --no-build-isolation "$source"
  rm -rf "$source"
  mkdir -p "$new/share"
  cp -R README.md config "$new/share"
}

# All that may be wrong with the new version, while the old one still counts.
try_it() {
  "$new/bin/gpuagent" --version
  case $("$new/bin/python" -c 'import os, sys; print(os.path.realpath(sys.executable))') in
    /home/* | /root/* | /run/user/*) die "services cannot see $python in a home; try: make install PYTHON=/usr/bin/python3" ;;
  esac
  "$new/bin/python" -I -c "$AS_NOBODY" || die "another user cannot run $new/bin/python, or a part of it is missing"
  ! runs || "$new/bin/gpuagent" check-config $config >/dev/null ||
    die "this version cannot run with $config; what was installed before stays in force"
}

AS_NOBODY='
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.execv(sys.executable, [sys.executable, "-I", "-c", "import agent.cli.run, agent.units, agent.privileged.launch"])
'

make_users_and_folders() {
  install -D -m 644 systemd/sysusers.d/gpuagent.conf /usr/lib/sysusers.d/gpuagent.conf
  install -D -m 644 systemd/tmpfiles.d/gpuagent.conf /usr/lib/tmpfiles.d/gpuagent.conf
  systemd-sysusers gpuagent.conf
  systemd-tmpfiles --create gpuagent.conf
}

# Files that hurt nobody while the old version counts.
lay_out() {
  mkdir -p /etc/gpuagent
  if [ -e $config ]; then
    say "$config stays as it is"
  else
    install -m 644 config/gpuagent.toml $config
    say "wrote $config: define a server in it"
  fi
  { mkdir -p "${completion%/*}" && _GPUAGENT_COMPLETE=bash_source "$new/bin/gpuagent" >$completion; } 2>/dev/null ||
    rm -f $completion # a courtesy: a host may be without
}

# The program and its units, in one go: whatever fails in here, the old ones are put back, and run on all the while.
take_into_use() {
  old=$(readlink $home/venv || true)
  before=$(mktemp -d)
  for each in $(our_units); do [ ! -e "$units/$each" ] || cp -p "$units/$each" "$before/"; done
  trap go_back EXIT
  for each in $(our_units); do install -m 644 "systemd/$each" "$units/.$each.new"; done
  for each in $(our_units); do mv "$units/.$each.new" "$units/$each"; done
  ln -sfn "$new" $home/venv.new
  mv -T $home/venv.new $home/venv
  systemctl daemon-reload
  systemctl enable --quiet gpuagent-helper.socket
  systemctl stop --quiet gpuagent-helper.service # the next request starts the new one
  systemctl start gpuagent-helper.socket
  trap - EXIT
  rm -rf "$before"
  ln -sf $home/venv/bin/gpuagent /usr/local/bin/gpuagent
  ln -sfn $home/venv/share $home/share
}

forget_unit() {
  find $units -lname "$units/$1" -delete # what enabled it
  rm -f "$units/$1"
}

go_back() {
  for each in $(our_units); do
    rm -f "$units/.$each.new"
    if [ -e "$before/$each" ]; then cp -p "$before/$each" "$units/"; else forget_unit "$each"; fi
  done
  if [ -n "$old" ]; then ln -sfn "$old" $home/venv.new && mv -T $home/venv.new $home/venv; else rm -f $home/venv; fi
  systemctl daemon-reload || true
  [ -z "$old" ] || systemctl start gpuagent-helper.socket || true
  rm -rf "$new" "$before"
  say 'that failed; what was installed before stays in force' >&2
}

# in_use VERSION: gpuagent-ready@ is not started anew, so that its jobs go on; it may run from an older version.
in_use() { printf '%s/\n' "$1" | grep -qsaFf - /proc/[0-9]*/cmdline; }

# But the last one: to go back to.
forget_old_versions() {
  for each in $home/version-*; do
    [ "$each" = "$new" ] || [ "$each" = "$old" ] || in_use "$each" || rm -rf "$each"
  done
}

install_it() {
  new_venv
  try_it
  make_users_and_folders
  lay_out
  take_into_use
  if runs; then
    systemctl restart gpuagent ||
      die "the agent does not start: journalctl -u gpuagent. Back: ln -sfn $old $home/venv && systemctl restart gpuagent"
    say "the agent runs anew; servers that run were left alone: $(running_servers | tr '\n' ' ')"
  else
    say "installed. Check the configuration, then: gpuagent check-config && systemctl enable --now gpuagent"
  fi
  forget_old_versions
}

# From what was written down before, and by this script alone: the program may be gone, or half of it.
release_holds() {
  for record in $holds/*.json; do
    [ -e "$record" ] || continue
    unit=$(basename "$record" .json)
    folder=$units/$unit.d
    file=$folder/zz-gpuagent-hold.conf
    part=$folder/.zz-gpuagent-hold.conf.part
    if [ -L "$folder" ] || [ -L "$file" ]; then
      say "$unit is still kept off, and what was before is in $holds: $file is reached by a symlink, or is one" >&2
      continue
    fi
    if grep -q '"prior": true' "$record"; then
      mkdir -p "$folder"
      cp -p "$holds/$unit.prior" "$part"
      mv -T "$part" "$file"
    else
      rm -f "$file" "$part"
      ! grep -q '"made_folder": true' "$record" || rmdir "$folder" 2>/dev/null || true # unless others use it by now
    fi
    rm -f "$record" "$holds/$unit.prior"
    say "$unit is not kept off any more (and not started)"
  done
  rm -f $holds/.reload-due $holds/.part
  rmdir $holds 2>/dev/null || true
}

refuse_while_servers_run() {
  servers=$(running_servers)
  [ -z "$servers" ] || die "servers run; stop them first: gpuagent stop NAME ($servers)"
}

# Those that are here: an uninstall that was cut short may be done again.
end_units() {
  for each in "$@"; do
    [ ! -e "$units/$each" ] || systemctl stop "$each" || die "$each does not end: systemctl status $each"
  done
}

remove_it() {
  refuse_while_servers_run
  # What the agent starts, or the helper for it, while this looks would be overlooked: they end first.
  ! runs || trap 'systemctl start gpuagent-helper.socket gpuagent' EXIT
  end_units gpuagent.service gpuagent-helper.socket gpuagent-helper.service
  refuse_while_servers_run
  trap - EXIT
  for each in gpuagent.service gpuagent-helper.socket; do
    [ ! -e "$units/$each" ] || systemctl disable --quiet "$each"
  done
  release_holds
  systemctl stop 'gpuagent-*@*' # servers that are about to end: until they have
  end_units gpuagent.slice
  for each in $(our_units); do forget_unit "$each"; done
  rmdir $units/gpuagent.service.wants 2>/dev/null || true # unless somebody has put a unit of his there
  systemctl daemon-reload
  systemctl reset-failed 'gpuagent*' 2>/dev/null || true
  rm -rf $home /run/gpuagent-server /run/gpuagent /run/gpuagent-helper.sock
  rm -f /usr/local/bin/gpuagent $completion /usr/lib/sysusers.d/gpuagent.conf /usr/lib/tmpfiles.d/gpuagent.conf
  if [ "${PURGE:-}" = 1 ]; then
    rm -rf /etc/gpuagent /var/lib/gpuagent /var/log/gpuagent /var/lib/gpuagent-llm $units/gpuagent*.d
    for each in gpuagent gpuagent-llm; do userdel "$each" 2>/dev/null || true; done
    for each in gpuagent-admin gpuagent gpuagent-llm; do groupdel "$each" 2>/dev/null || true; done
    say 'removed, with its configuration, history, logs, users and their homes'
  else
    say 'removed; kept: /etc/gpuagent, /var/lib/gpuagent, /var/log/gpuagent, the users and their homes. PURGE=1 removes them, too'
  fi
}

case ${1:-} in
  '') install_it ;;
  --remove) remove_it ;;
  *) die "usage: $0 [--remove]" ;;
esac
