# What is measured: starting it, ending it, and what it has used. Read with `.` by bench/run.
# shellcheck shell=bash

covey_pids=
mount_pids=
before_pids=
before_mount_pids=
before_export_pid=
before_export_port=
gluster_pids=
moose_pids=
diod_pid=
export_pid=
export_port=
diod_port=
floor_pid=
floor_port=
left_out=()
namespace=covey-bench-$$
covey_lib=
busy_percent=0
busiest_percent=0

# User and system time of processes together, in ticks of 10 ms.
cpu_ticks() {
    local pid sum=0 line fields
    for pid in $1; do
        # The name in brackets may hold blanks: count from behind it.
        line=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
        read -ra fields <<<"${line##*) }"
        sum=$((sum + fields[11] + fields[12]))
    done
    echo "$sum"
}

# How much of the machine somebody else uses, in percent: everything of ours is idle now.
look_at_machine() {
    local _name user nice system idle wait irq softirq steal _rest used all before_used before_all
    for _try in 1 2; do
        read -r _name user nice system idle wait irq softirq steal _rest </proc/stat
        before_used=${used:-0} before_all=${all:-0}
        used=$((user + nice + system + irq + softirq + steal)) all=$((used + idle + wait))
        [ "$_try" = 2 ] || sleep 1
    done
    busy_percent=$((100 * (used - before_used) / (all - before_all)))
    if [ "$busy_percent" -gt "$busiest_percent" ]; then busiest_percent=$busy_percent; fi
}

# Names and attributes that the kernel has kept would answer instead of the file system.
forget_caches() {
    if [ -w /proc/sys/vm/drop_caches ]; then echo 2 >/proc/sys/vm/drop_caches 2>/dev/null || true; fi
}

# The processes that run a program with this word in their command line.
pids_with() {
    local file
    for file in /proc/[0-9]*/cmdline; do
        # Processes end while we look.
        if { tr '\0' ' ' <"$file"; } 2>/dev/null | grep -q -- "$1"; then
            basename "${file%/cmdline}"
        fi
    done
}

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 20000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

wait_for_port() {
    local _try
    for _try in $(seq 100); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    return 1
}

start_covey() {
    start_cluster "$covey" "$dir/cluster" "$dir/mnt"
    covey_pids=$server_pids
    mount_pids=$own_mount_pids
    export COVEY_CONFIG=$dir/cluster/covey.toml
    covey_lib=$(dirname "$covey")/examples/libbench
    [ -x "$covey_lib" ] || left_out+=("the library: examples/libbench is not built")
    [ -n "$mount_pids" ] || left_out+=("the mount: FUSE is not permitted here")
    [ -n "$before" ] || return 0
    mkdir "$dir/before-mnt"
    start_cluster "$before" "$dir/before" "$dir/before-mnt"
    before_pids=$server_pids
    before_mount_pids=$own_mount_pids
}

# start_cluster COVEY DIR MOUNT: the processes it has are in server_pids and own_mount_pids.
start_cluster() {
    local file pid
    server_pids= own_mount_pids=
    "$1" up -n 4 --dir "$2" --mount "$3" >"$2.log" 2>&1 || { cat "$2.log" >&2 && exit 1; }
    for file in "$2"/run/*.pid; do
        read -r pid _ <"$file"
        case $file in
        */mount-*) own_mount_pids+=" $pid" ;;
        *) server_pids+=" $pid" ;;
        esac
    done
}

start_export_of() {
    "$1" export "$dir/served" --listen "tcp!127.0.0.1!$2" >"$3" 2>&1 &
    started_pid=$!
    wait_for_port "$2" || { cat "$3" >&2 && exit 1; }
}

start_9p() {
    export_port=$(free_port)
    start_export_of "$covey" "$export_port" "$dir/export.log"
    export_pid=$started_pid
    if [ -n "$before" ]; then
        before_export_port=$(free_port)
        start_export_of "$before" "$before_export_port" "$dir/before-export.log"
        before_export_pid=$started_pid
    fi
    start_diod
    floor_port=$(free_port)
    "$dir/ninefloor" "$floor_port" "$dir/served/file" 2>"$dir/floor.log" &
    floor_pid=$!
    wait_for_port "$floor_port" || { cat "$dir/floor.log" >&2 && exit 1; }
}

stop_all() {
    local code=$? pid
    trap - EXIT ERR
    set +e
    wake_peers
    for pid in $export_pid $before_export_pid $diod_pid $floor_pid; do kill "$pid" 2>/dev/null; done
    case $suite in
    clients) stop_machines ;;
    fs | cp | disk | tree)
        [ "$suite" != tree ] || stop_tree
        "$covey" down --dir "$dir/cluster" >/dev/null 2>&1
        [ -z "$before" ] || "$before" down --dir "$dir/before" >/dev/null 2>&1
        ;;
    esac
    stop_peers
    sleep 0.5
    if grep -q " $dir/" /proc/mounts; then
        echo "bench: something is still mounted below $dir: left behind" >&2
    else
        rm -rf "$dir"
    fi
    exit "$code"
}
