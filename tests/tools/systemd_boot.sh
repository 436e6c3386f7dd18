#!/bin/bash
# Boot this machine's own systemd as PID 1 of a throw-away machine (namespaces over an overlay of /), so that a
# test can `systemctl start` a unit for real. Needs root, systemd and util-linux; exit code 77 where it cannot be done.
#   systemd_boot.sh start DIR        boot; returns once the boot's jobs are done
#   systemd_boot.sh exec DIR CMD...  run CMD inside
#   systemd_boot.sh stop DIR         orderly shutdown, then remove everything; also after a start that failed
# DIR holds the state of one machine; several can run side by side.
# YRNODE_BOX_BIND="path ..."   paths to bind read-write: others are copies of the host's, /tmp, /run and /dev/shm empty
# YRNODE_BOX_CGROUP=v2|hybrid  v2 (default): one cgroup2 tree. hybrid: v1 controllers plus unified, where the host
#                              has v1 mounts
# The network is a private namespace with only lo. /proc/sys is read-only inside.
set -euo pipefail

die() { echo "systemd_boot: $*" >&2; exit 1; }
SYSTEMD=/lib/systemd/systemd
unsupported() { echo "systemd_boot: $*" >&2; exit 77; }

stage2() {  # in the new namespaces: build the root, pivot, become systemd
  local D=$1 R=$1/t/root n d
  mount --make-rprivate /
  mount -t tmpfs tmpfs "$D/t"
  mkdir "$D/t/up" "$D/t/wk" "$R"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$D/t/up,workdir=$D/t/wk" "$R"
  mount -t proc proc "$R/proc"
  mount --bind "$R/proc/sys" "$R/proc/sys"
  mount -o remount,bind,ro "$R/proc/sys"
  mount -t sysfs -o ro sysfs "$R/sys"
  mount -t tmpfs -o mode=755 tmpfs "$R/dev"
  for n in null zero full random urandom tty; do
    : >"$R/dev/$n"; mount --bind "/dev/$n" "$R/dev/$n"
  done
  mkdir "$R/dev/pts" "$R/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$R/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$R/dev/shm"
  ln -s pts/ptmx "$R/dev/ptmx"; ln -s /proc/self/fd "$R/dev/fd"
  for d in run tmp var/tmp var/log; do mount -t tmpfs -o mode=1777 tmpfs "$R/$d"; done
  chmod 755 "$R/run" "$R/var/log"
  if [ "${YRNODE_BOX_CGROUP:-v2}" = hybrid ]; then
    mount -t tmpfs -o mode=755 tmpfs "$R/sys/fs/cgroup"
    mkdir "$R/sys/fs/cgroup/unified" "$R/sys/fs/cgroup/systemd"
    mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup/unified"
    mount -t cgroup -o none,name=systemd,xattr cgroup "$R/sys/fs/cgroup/systemd"
    for n in $(cat "$D/v1"); do
      mkdir "$R/sys/fs/cgroup/$n"; mount -t cgroup -o "$n" cgroup "$R/sys/fs/cgroup/$n"
    done
  else
    mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup"
  fi
  for n in ${YRNODE_BOX_BIND:-}; do
    if [ -d "$n" ]; then mkdir -p "$R$n"; else mkdir -p "$R$(dirname "$n")"; : >"$R$n"; fi
    mount --rbind "$n" "$R$n"
  done
  # a small boot: journald and nothing that touches the host
  echo "b08dfa6083e7567a1921a715000001fb" >"$R/etc/machine-id"
  : >"$R/etc/fstab"; echo testbox >"$R/etc/hostname"
  mkdir -p "$R/etc/systemd/system"
  for n in systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket \
           systemd-udev-trigger.service systemd-timesyncd.service systemd-networkd.service \
           systemd-modules-load.service systemd-sysctl.service apparmor.service \
           systemd-binfmt.service proc-sys-fs-binfmt_misc.automount; do
    ln -sf /dev/null "$R/etc/systemd/system/$n"
  done
  printf '[Unit]\nDescription=test machine\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n' \
    >"$R/etc/systemd/system/testbox.target"
  mkdir -p "$R/t.old"; cd "$R"; pivot_root . t.old
  umount -l /t.old; rmdir /t.old
  exec env -i container=testbox PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    "$SYSTEMD" --system --unit=testbox.target --show-status=no
}

inner() { ps -o pid= --ppid "$(cat "$1/pid")" | tr -d ' '; }
in_box() { local D=$1; shift; nsenter -t "$(inner "$D")" -m -p -u -i -n -C -- env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG=C.UTF-8 "$@"; }

start() {
  local D=$1 name n c
  [ "$(id -u)" = 0 ] || unsupported "needs root"
  [ -x "$SYSTEMD" ] || unsupported "no systemd here"
  for c in unshare nsenter pivot_root; do command -v $c >/dev/null || unsupported "no $c here"; done
  grep -q '\soverlay$' /proc/filesystems || modprobe overlay 2>/dev/null || unsupported "no overlay file system here"
  [ ! -e "$D/pid" ] || die "$D is in use"
  mkdir -p "$D/t" "$D/cg"; D=$(cd "$D" && pwd); name=testbox-$$
  # our own view of the cgroup2 tree, wherever (or whether) the host mounts it
  mount -t cgroup2 cgroup2 "$D/cg" 2>/dev/null || { rmdir "$D/t" "$D/cg"; unsupported "cgroup2 cannot be mounted"; }
  mkdir "$D/cg/$name" || { umount "$D/cg"; rmdir "$D/t" "$D/cg"; unsupported "cgroup2 is read-only"; }
  echo "$D/cg/$name" >"$D/cgs"; : >"$D/v1"
  if [ "${YRNODE_BOX_CGROUP:-v2}" = hybrid ]; then
    for n in systemd memory pids cpu cpuacct blkio devices freezer cpuset; do
      c=/sys/fs/cgroup/$n; [ -d "$c" ] || continue
      mkdir "$c/$name"; echo "$c/$name" >>"$D/cgs"
      [ $n = systemd ] || echo $n >>"$D/v1"
      [ $n != cpuset ] || { cat $c/cpuset.cpus >"$c/$name/cpuset.cpus"; cat $c/cpuset.mems >"$c/$name/cpuset.mems"; }
    done
  fi
  ( for c in $(cat "$D/cgs"); do echo $BASHPID >"$c/cgroup.procs"; done
    exec unshare --fork --pid --mount --cgroup --uts --ipc --net --kill-child=SIGKILL \
      bash "$0" stage2 "$D" ) >"$D/log" 2>&1 </dev/null &
  echo $! >"$D/pid"
  for n in $(seq 200); do
    [ -d "/proc/$(cat "$D/pid")" ] || { cat "$D/log" >&2; die "PID 1 ended"; }
    if in_box "$D" test -S /run/systemd/private 2>/dev/null; then
      c=$(in_box "$D" systemctl is-system-running --wait || true)
      case $c in running|degraded) echo "$c"; return 0;; esac
    fi
    sleep 0.05
  done
  cat "$D/log" >&2; die "not up in time"
}

stop() {
  local D=$1 n c
  [ -e "$D/pid" ] || return 0
  D=$(cd "$D" && pwd)
  in_box "$D" systemctl poweroff 2>/dev/null || true
  for n in $(seq 300); do [ -d "/proc/$(cat "$D/pid")" ] || break; sleep 0.05; done
  [ ! -d "/proc/$(cat "$D/pid")" ] || kill -9 "$(cat "$D/pid")"
  for c in $(cat "$D/cgs"); do
    [ ! -e "$c/cgroup.kill" ] || echo 1 >"$c/cgroup.kill"
    for n in 1 2 3 4 5; do find "$c" -depth -type d -exec rmdir {} + 2>/dev/null && break; sleep 0.1; done
  done
  umount "$D/cg"; rmdir "$D/cg" "$D/t"; rm -f "$D"/{pid,cgs,v1,log}; rmdir "$D"
}

case ${1:-} in
  stage2) stage2 "$2";;
  start) start "$2";;
  exec) shift; in_box "$@";;
  stop) stop "$2";;
  *) sed -n 2,12p "$0";;
esac
