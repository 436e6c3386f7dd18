# What the scripts of both packages and /usr/lib/yrnode/setup share. Before it, the build writes `version`, `pythons`,
# and `slot`: which script this is. For any POSIX sh.
#
# Each set-up makes an environment of its own below venvs/, beside the one that runs, and one rename of the link `venv`
# puts it in the other's place. /usr/bin/yrnode leads through the link, but a daemon that runs does not: its modules
# stay those of its own version until it ends.
set -eu
root=/usr/lib/yrnode
unit=yrnode.service
wheels=$root/wheelhouse
# rpm gives its scripts a short one
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 022
new=

say() { echo "yrnode: $*" >&2; }
die() { say "$*"; exit 1; }
booted() { [ -d /run/systemd/system ]; }
# Of something that mends itself, whoever asks.
AGAIN="then run $root/setup"

# The version of a Python that is one of ours and has the module venv.
version_of() {
    found=$("$1" -I -c 'import sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 1
    case " $pythons " in *" $found "*) echo "$found" ;; *) return 1 ;; esac
}

setting() { sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" /etc/yrnode/environment 2>/dev/null | tail -n 1; }

# The path of the Python to use: the one that is named, else the host's own, else any that fits. Not the link python3,
# which can lead to another version one day.
find_python() {
    named=${YRNODE_PYTHON:-$(setting YRNODE_PYTHON)}
    for python in ${named:-python3 python3.12 python3.11 python3.13 python3.10 /usr/local/python3*/bin/python3}; do
        if version_of "$python" >/dev/null; then
            "$python" -I -c 'import os, sys; print(os.path.realpath(sys.executable))'
            return
        fi
    done
    if [ -n "$named" ]; then
        die "YRNODE_PYTHON=$named is none of Python $pythons with its module venv: correct it, $AGAIN"
    fi
    die "there is none of Python $pythons with its module venv here (python3 is" \
        "$(python3 -V 2>/dev/null || echo missing)): install one, name it in /etc/yrnode/environment as" \
        "YRNODE_PYTHON=/path/to/python3, $AGAIN"
}

# Fill $new, without a network and with nothing of the host's or the user's pip.
fill() {
    "$1" -I -m venv --without-pip "$new" &&
        PIP_CONFIG_FILE=/dev/null "$new/bin/python" -I "$(echo "$wheels"/pip-*.whl)/pip" install --isolated --quiet \
            --no-input --no-cache-dir --disable-pip-version-check --root-user-action=ignore --no-warn-script-location \
            --no-index --find-links "$wheels" --require-hashes -r "$wheels/requirements.txt" >&2 &&
        "$new/bin/python" -I -c 'import yrnode.api.server, yrnode.cli.run, yrnode.node.supervisor'
}

# The daemon that runs, its words and its variables: the new version must be able to read the same cluster file.
takes_the_file() {
    pid=$(systemctl show --property MainPID --value "$unit")
    case $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") in *yrnode\ run*) ;; *) return 0 ;; esac
    "$new/bin/python" -I - "$pid" >/dev/null <<'END'
import os
import sys

of = f"/proc/{sys.argv[1]}/"
with open(of + "cmdline") as f, open(of + "environ", errors="surrogateescape") as g:
    words = f.read().split("\0")[:-1]
    variables = dict(line.split("=", 1) for line in g.read().split("\0") if "=" in line)
os.chdir(of + "cwd")
after = words[words.index("run") + 1 :]
os.execve(sys.executable, [sys.executable, "-I", "-m", "yrnode.cli.main", "render", *after], variables)
END
}

point_at() {
    ln -sfn "venvs/${1##*/}" "$root/.venv.new"
    mv -fT "$root/.venv.new" "$root/venv"
}

# Files of /proc whose process was started by a path below $1, which is no word of grep's own command line.
# shellcheck disable=SC2062
users() { echo "$1" | grep -lsaF -f - /proc/[0-9]*/cmdline; }

# Pids of daemons that run from here.
daemons() {
    for file in $(users "$root/venvs/"); do
        case $(tr '\0' ' ' 2>/dev/null <"$file") in *"/yrnode run "*) file=${file#/proc/}; echo "${file%/cmdline}" ;; esac
    done
}

# Drop the environments of other versions, but for those in which something still runs.
prune() {
    for other in "$root"/venvs/*; do
        [ "venvs/${other##*/}" = "$(readlink "$root/venv")" ] || [ -n "$(users "$other/")" ] || rm -rf "$other"
    done
}

set_up() {
    old=$(readlink "$root/venv") || old=
    python=$(find_python)
    mkdir -p "$root/venvs"
    new=$(mktemp -d "$root/venvs/$version-XXXXXX")
    trap 'rm -rf "$new"' EXIT
    chmod 755 "$new"
    fill "$python" || die "version $version cannot be set up with $python, and nothing has changed. Mend what stands above, $AGAIN"
    if booted; then
        takes_the_file || die "version $version does not take the cluster file that runs, and nothing has changed. Correct" \
            "what stands above, $AGAIN"
    fi
    # where SELinux is on: the label of programs, by which systemd may start them
    ! command -v restorecon >/dev/null || restorecon -R "$new" || :
    # a power cut must not leave a link to files that are not written yet
    sync -f "$new"
    point_at "$new"
    trap - EXIT
    if booted; then
        systemd-tmpfiles --create yrnode.conf || say "/run/yrnode could not be made; the service makes it at its start"
        systemctl daemon-reload
        # where it runs, it alone ends: what it has started goes on, and the new one takes it over
        if ! systemctl --quiet is-active "$unit"; then
            # one that only tries to start has the new version at its next try; that it fails is no news
            systemctl --no-block try-restart "$unit"
        elif ! systemctl try-restart "$unit"; then
            [ -z "$old" ] || point_at "$old"
            systemctl --no-block restart "$unit"
            die "version $version did not start (journalctl -u yrnode); the one before it is back. Mend it, $AGAIN"
        fi
    else
        for pid in $(daemons); do say "the version before still runs as pid $pid: kill -USR1 $pid, then yrnode run"; done
    fi
    prune
    [ ! -f "/etc/systemd/system/$unit" ] || say "/etc/systemd/system/$unit goes before the package's unit: remove it," \
        "then systemctl daemon-reload"
    [ -n "$old" ] || say "put a cluster file into /etc/yrnode/cluster.yaml (examples: /usr/share/yrnode/config), then" \
        "yrnode check && systemctl enable --now yrnode"
}

# Before the package goes: everything that it runs stops, or it stays.
stop() {
    if booted; then
        ! systemctl --quiet is-active "$unit" || say "what this node runs stops now, in order; this can take minutes"
        systemctl stop "$unit" || die "the service does not stop (journalctl -u yrnode), so the package stays"
    fi
    pids=$(daemons)
    [ -z "$pids" ] || die "yrnode run goes on outside the service (pid $pids), so the package stays: kill -TERM it first"
    systemctl --quiet disable "$unit" 2>/dev/null || :
    # as after a daemon that was killed, or told to leave everything running
    left=$(grep -lsazE '^YRNODE_INSTANCE=' /proc/[0-9]*/environ | sed 's|/proc/||; s|/environ||' | tr '\n' ' ')
    [ -z "$left" ] || say "these run on with nobody to look after them: pid $left"
}

# After it has gone.
gone() {
    rm -rf "$root/venvs" "$root/venv" "$root/.venv.new"
    rmdir "$root" 2>/dev/null || :
    ! booted || systemctl daemon-reload
}

# Those of these directories that have something in them. What the operator wrote and etcd's data are nobody's but his.
name_what_stays() {
    stays=
    for place in "$@"; do
        rmdir "$place" 2>/dev/null || [ ! -e "$place" ] || stays="$stays $place"
    done
    [ -z "$stays" ] || say "these stay, and what the cluster file names elsewhere:$stays"
}
