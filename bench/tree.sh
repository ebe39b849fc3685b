# What people do with a tree of small files: suite `tree` of bench/run. Read with `.` by it.
# shellcheck shell=bash
#
# TREE is the directories that the tree is made of, TREE_FILES how many of their files it has at most.

bindfs_pid=
loose_pids=
before_loose_pids=
tree_entries=0
tree_said=

start_tree() {
    mkdir "$dir/raw" "$dir/mnt" "$dir/loose"
    make_source
    start_covey
    # It has no part in this.
    left_out=()
    [ -n "$mount_pids" ] || left_out+=("the mounts: FUSE is not permitted here")
    start_loose "$covey" "$dir/cluster" "$dir/loose"
    loose_pids=$own_mount_pids
    if [ -n "$before" ]; then
        mkdir "$dir/before-loose"
        start_loose "$before" "$dir/before" "$dir/before-loose"
        before_loose_pids=$own_mount_pids
    fi
    start_bindfs
    start_gluster
    start_moose
    can_count_requests || left_out+=("requests: perf does not count fuse:fuse_request_send here")
}

# The same files in memory for all, and as one archive.
make_source() {
    local from=() where list=$dir/source.list
    for where in ${TREE:-/usr/include /usr/share/doc /usr/lib/python3 /usr/lib/python3.*}; do
        if [ -d "$where" ]; then from+=("$where"); fi
    done
    find "${from[@]}" -type f -o -type l | LC_ALL=C sort >"$list.all"
    head -n "${TREE_FILES:-1000000}" "$list.all" >"$list"
    mkdir "$dir/source"
    tar cf - -C / -T <(sed 's|^/||' "$list") 2>"$dir/error" | tar xf - -C "$dir/source"
    tar cf "$dir/source.tar" -C "$dir/source" .
    touch "$dir/newer"
    tree_entries=$(find "$dir/source" -mindepth 1 | wc -l)
    tree_said="$(wc -l <"$list") files, $tree_entries entries, $(du -sm --apparent-size "$dir/source" | cut -f1) MiB"
    echo "bench: tree: $tree_said" >&2
}

# start_loose COVEY DIR MOUNT: a second mount of a cluster, in mode close-to-open.
start_loose() {
    local file pid
    own_mount_pids=
    "$1" --config "$2/covey.toml" mount --consistency close-to-open "$3" >>"$2.log" 2>&1 ||
        { left_out+=("close-to-open: $(tail -1 "$2.log")") && return; }
    for file in "$2"/run/mount-*.pid; do
        read -r pid _ <"$file"
        [[ " $mount_pids $before_mount_pids " == *" $pid "* ]] || own_mount_pids+=" $pid"
    done
}

# A FUSE file system that only forwards, to the same kind of directory as raw.
start_bindfs() {
    [[ bindfs =~ $columns ]] || return 0
    if ! command -v bindfs >/dev/null; then
        left_out+=("bindfs: it is not installed")
        return
    fi
    mkdir "$dir/bindfs" "$dir/bindfs-mnt"
    bindfs -f "$dir/bindfs" "$dir/bindfs-mnt" >"$dir/bindfs.log" 2>&1 &
    bindfs_pid=$!
    local _try
    for _try in $(seq 50); do
        if mountpoint -q "$dir/bindfs-mnt"; then return; fi
        sleep 0.1
    done
    left_out+=("bindfs: $(tail -1 "$dir/bindfs.log")")
    bindfs_pid=
}

stop_tree() {
    local where
    for where in loose before-loose bindfs-mnt; do umount "$dir/$where" 2>/dev/null || umount -l "$dir/$where" 2>/dev/null; done
    [ -z "$bindfs_pid" ] || kill "$bindfs_pid" 2>/dev/null
}

round_of_tree() {
    local round=$1
    through_tree raw "$dir/raw" ""
    [ -z "$bindfs_pid" ] || through_tree bindfs "$dir/bindfs-mnt" "$bindfs_pid"
    [ -z "$mount_pids" ] || through_tree strict "$dir/mnt" "$covey_pids $mount_pids"
    [ -z "$loose_pids" ] || through_tree close-to-open "$dir/loose" "$covey_pids $loose_pids"
    if [ -n "$before" ]; then
        through_tree before-strict "$dir/before-mnt" "$before_pids $before_mount_pids"
        [ -z "$before_loose_pids" ] ||
            through_tree before-close-to-open "$dir/before-loose" "$before_pids $before_loose_pids"
    fi
    [ -z "$gluster_pids" ] || through_tree gluster "$dir/gluster/mnt" "$gluster_pids"
    [ -z "$moose_pids" ] || through_tree moose "$dir/moose/mnt" "$moose_pids"
}

# Every system gets a directory of its own: the two mounts of one cluster would meet else.
through_tree() {
    local system=$1 at=$2/tree-$1 pids=$3
    [[ $system =~ $columns ]] || return 0
    only_peer "$system"
    rm -rf "$at"
    mkdir "$at" "$at/untar"
    step "$system" cp-in "$pids" cp -a "$dir/source" "$at/copy"
    step "$system" diff "$pids" diff -r --no-dereference "$dir/source" "$at/copy"
    step "$system" du "$pids" du -s "$at/copy"
    step "$system" find "$pids" find "$at/copy" -newer "$dir/newer"
    # To /dev/null itself, tar would read no file.
    step "$system" tar-out "$pids" sh -c 'tar cf - -C "$1" copy | cat >/dev/null' sh "$at"
    step "$system" grep "$pids" sh -c '! grep -r "no file has this: $$" "$1"' sh "$at/copy"
    step "$system" tar-in "$pids" tar xf "$dir/source.tar" -C "$at/untar"
    step "$system" git "$pids" sh -c '
        export HOME="$2" GIT_CONFIG_NOSYSTEM=1 &&
        cd "$1" && git init -q && git add -A . && git -c user.name=b -c user.email=b@b commit -qm b' sh "$at/untar" "$dir"
    step "$system" rm "$pids" rm -r "$at/copy"
    rm -rf "$at"
}

# step SYSTEM TEST PIDS COMMAND...: a line of results, as measure writes it, and the requests that the kernel
# sent to FUSE file systems meanwhile. Nothing is cached: not in the kernel, and leases are over.
step() {
    local system=$1 test=$2 pids=$3 before after said counted=-
    local count=() timing='TIMEFORMAT="%R %U %S"; { time "$@" >/dev/null 2>"$0"; } 2>&1'
    shift 3
    [[ $test =~ $only ]] || return 0
    if [ -w /proc/sys/vm/drop_caches ]; then echo 3 >/proc/sys/vm/drop_caches; fi
    sleep 1.5
    can_count_requests && count=(perf stat -x, -o "$dir/requests" -e fuse:fuse_request_send -a --)
    before=$(cpu_ticks "$pids")
    if ! said=$("${count[@]}" bash -c "$timing" "$dir/error" "$@"); then
        echo "bench: $system $test: $(tail -1 "$dir/error")" >&2
        return 0
    fi
    after=$(cpu_ticks "$pids")
    if can_count_requests; then counted=$(awk -F, '/fuse_request_send/ { print $1 }' "$dir/requests"); fi
    echo "$system $test $tree_entries 0 $(awk '{ print $1, $2 + $3 }' <<<"$said") $((after - before)) $counted" >>"$results"
}

can_count_requests() {
    if [ -z "${requests_are_counted:-}" ]; then
        requests_are_counted=no
        if perf stat -e fuse:fuse_request_send -a true >/dev/null 2>&1; then requests_are_counted=yes; fi
    fi
    [ "$requests_are_counted" = yes ]
}

report_tree() {
    local systems="raw bindfs strict close-to-open" tests="cp-in diff du find tar-out grep tar-in git rm"
    [ -z "$before" ] || systems+=" before-strict before-close-to-open"
    systems+=" gluster moose"
    echo "$tree_said."
    echo
    echo "Cells: seconds, median (least to most); {FUSE requests per entry}; [CPU of mount and servers together,"
    echo "us per entry]. Before each step the kernel's caches are dropped and leases run out."
    tree_table "$tests" "$systems"
    echo
    echo "raw: a directory in memory. bindfs: a FUSE file system that only forwards to such a directory."
    echo "strict, close-to-open: two mounts of one cluster, a metadata server and 4 I/O servers. gluster, moose: as in"
    echo "suite fs. tar-out is read by another program; grep finds nothing; git is init, add and commit."
}

# Lines of step as a table.
tree_table() {
    awk -v tests="$1" -v systems="$2" '
        {
            key = $1 SUBSEP $2; n = ++count[key]
            seconds[key, n] = $5; cpu[key, n] = $7 * 1e4 / $3; requests[key, n] = $8 / $3; counted[key] = $8 != "-"
        }
        function cell(key,    n, i, a, b, c, said) {
            n = count[key]
            if (!n) return "-"
            for (i = 1; i <= n; i++) { a[i] = seconds[key, i]; b[i] = cpu[key, i]; c[i] = requests[key, i] }
            said = sprintf("%.2f", median(a, n))
            if (n > 1) said = said sprintf(" (%.2f to %.2f)", least, most)
            if (counted[key]) said = said sprintf(" {%.1f}", median(c, n))
            return said sprintf(" [%.0f]", median(b, n))
        }
        '"$table_rows" "$results"
}
