#!/bin/sh
# Installs quictun from the directory of this script, or removes it.
#
#   sudo ./install.sh                  into /usr/local
#   PREFIX="$HOME/.local" ./install.sh without root: no service
#   DESTDIR=/srv/root ./install.sh     below another root, for packages
#   sudo ./install.sh --uninstall      keeps /etc/quictun and /var/lib/quictun
#   sudo ./install.sh --purge          removes everything except the user quictun
#
# A new installation replaces the previous one and keeps configuration, keys and state.
set -eu

PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
root=$DESTDIR$PREFIX
# The list of installed files below the prefix, one path per line. Directories that this script created end with a
# slash.
list=$root/share/quictun/installed
units="quictun-server.service quictun-client.service quictun-client-tun.service"

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

# The script changes the running system only if root installs below a prefix that systemd searches.
is_live() {
  [ -z "$DESTDIR" ] && [ "$(id -u)" = 0 ] && { [ "$PREFIX" = /usr ] || [ "$PREFIX" = /usr/local ]; }
}

has_systemd() {
  is_live && [ -d /run/systemd/system ]
}

# Creates a directory below the prefix and its parents, and records those that it creates.
make_directory() {
  [ ! -d "$root/$1" ] || return 0
  case $1 in */*) make_directory "${1%/*}" ;; esac
  mkdir "$root/$1"
  echo "$1/" >>"$new_list"
}

uninstall() {
  [ -f "$list" ] || fail "$list is missing: this script has not installed quictun below $PREFIX, or has removed it. Configuration and keys are in /etc/quictun and /var/lib/quictun"
  if has_systemd; then
    # shellcheck disable=SC2086
    systemctl disable --now $units 2>/dev/null || :
  fi
  grep -v '/$' "$list" | while IFS= read -r path; do
    rm -f "$root/$path"
  done
  directories=$(grep '/$' "$list" | sort -r)
  rm -f "$list"
  for path in $directories; do
    rmdir "$root/$path" 2>/dev/null || :
  done
  if has_systemd; then
    systemctl daemon-reload
  fi
}

case $PREFIX in
  /*[,\&]* | [!/]*) fail "PREFIX must begin with / and have no ',' '&' or backslash: it is $PREFIX" ;;
esac

case ${1-} in
  "") ;;
  --uninstall)
    uninstall
    exit
    ;;
  --purge)
    uninstall
    # An installation in a home directory has no service: the system's keys belong to another installation.
    if is_live || [ -n "$DESTDIR" ]; then
      rm -rf "$DESTDIR/etc/quictun" "$DESTDIR/var/lib/quictun"
      # `systemctl enable` and `systemctl edit` have created these.
      for unit in $units; do
        rm -f "$DESTDIR"/etc/systemd/system/*.wants/"$unit"
        rm -rf "$DESTDIR/etc/systemd/system/$unit.d"
      done
    fi
    exit
    ;;
  *) fail "unknown option $1: use --uninstall or --purge" ;;
esac

cd "$(dirname "$0")"
[ -x bin/quictun ] || fail "bin/quictun is missing: run install.sh where the archive was unpacked"
# Do not install a program for another architecture or system.
[ -n "$DESTDIR" ] || bin/quictun version >/dev/null || fail "bin/quictun does not run on this machine"

mkdir -p "$root"
new_list=$root/.quictun-installed.$$
trap 'rm -f "$new_list"' EXIT
grep '/$' "$list" 2>/dev/null >"$new_list" || :
# Install links last, after their targets.
for path in $(find bin lib share -type f | sort) $(find bin lib share -type l | sort); do
  make_directory "${path%/*}"
  # Write the new file beside the old one, then rename it: a running program keeps the file that it was started from.
  new=$root/${path%/*}/.quictun-new.$$
  if [ -L "$path" ]; then
    ln -s "$(readlink "$path")" "$new"
  else
    case $path in
      lib/systemd/*) sed "s,/usr/local/bin/,$PREFIX/bin/," "$path" >"$new" ;;
      *) cp "$path" "$new" ;;
    esac
    case $path in
      bin/*) chmod 755 "$new" ;;
      *) chmod 644 "$new" ;;
    esac
  fi
  mv -f "$new" "$root/$path"
  echo "$path" >>"$new_list"
done
# Remove the files that only the previous version had.
if [ -f "$list" ]; then
  grep -v '/$' "$list" | while IFS= read -r path; do
    grep -Fqx -e "$path" "$new_list" || rm -f "$root/$path"
  done
fi
make_directory share/quictun
mv -f "$new_list" "$list"
chmod 644 "$list"

if is_live && command -v systemd-sysusers >/dev/null; then
  systemd-sysusers "$PREFIX/lib/sysusers.d/quictun.conf"
  systemd-tmpfiles --create "$PREFIX/lib/tmpfiles.d/quictun.conf"
fi
if has_systemd; then
  systemctl daemon-reload
  # Services that do not run stay so. The new version takes over from the running one by a reload. Where it cannot, as from
  # a client with a device, it is started again, and systemctl itself reports a service that does not start.
  for unit in $units; do
    systemctl --quiet is-active "$unit" || continue
    if [ "$unit" = quictun-client-tun.service ] || ! systemctl reload "$unit" 2>/dev/null; then
      systemctl restart "$unit" || :
    fi
  done
fi
