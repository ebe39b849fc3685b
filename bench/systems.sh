# What is measured: starting it, ending it, and what it has used. Read with `.` by bench/run.
# shellcheck shell=bash

covey_pids=
mount_pids=
gluster_pids=
diod_pid=
export_pid=
export_port=
diod_port=
left_out=()
namespace=covey-bench-$$
covey_lib=

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

# Names and attributes that the kernel has kept would answer instead of the file system.
forget_caches() {
    if [ -w /proc/sys/vm/drop_caches ]; then echo 2 >/proc/sys/vm/drop_caches 2>/dev/null || true; fi
}

# The processes that run a program with this word in their command line.
pids_with() {
    local file
    for file in /proc/[0-9]*/cmdline; do
        if tr '\0' ' ' <"$file" 2>/dev/null | grep -q -- "$1"; then
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

start_all() {
    mkdir "$dir/raw" "$dir/served" "$dir/mnt"
    start_covey
    start_gluster
    head -c $((256 << 20)) /dev/urandom >"$dir/served/file"
    start_9p
}

start_covey() {
    local file pid
    "$covey" up -n 4 --dir "$dir/cluster" --mount "$dir/mnt" >"$dir/up.log" 2>&1 || { cat "$dir/up.log" >&2 && exit 1; }
    export COVEY_CONFIG=$dir/cluster/covey.toml
    covey_lib=$(dirname "$covey")/examples/libbench
    [ -x "$covey_lib" ] || left_out+=("the library: examples/libbench is not built")
    for file in "$dir"/cluster/run/*.pid; do
        read -r pid _ <"$file"
        case $file in
        */mount-*) mount_pids+=" $pid" ;;
        *) covey_pids+=" $pid" ;;
        esac
    done
    [ -n "$mount_pids" ] || left_out+=("the mount: FUSE is not permitted here")
}

# A daemon, four bricks on this machine, files in shards of 4 MiB that lie on all bricks. GlusterFS
# refuses bricks at 127.0.0.1, so it gets a network namespace with an address of its own.
start_gluster() {
    local base=$dir/gluster address=10.215.0.1 bricks=() brick
    if [ "$(id -u)" -ne 0 ] || ! command -v glusterd >/dev/null || ! command -v ip >/dev/null; then
        left_out+=("GlusterFS: needs root, glusterfs-server and iproute2")
        return
    fi
    mkdir -p "$base/work" "$base/run" "$base/log" "$base/mnt"
    if ! { ip netns add "$namespace" && ip -n "$namespace" link set lo up &&
        ip -n "$namespace" link add cb0 type veth peer name cb1 &&
        ip -n "$namespace" addr add "$address/24" dev cb0 &&
        ip -n "$namespace" link set cb0 up && ip -n "$namespace" link set cb1 up; } 2>"$dir/error"; then
        left_out+=("GlusterFS: $(tail -1 "$dir/error")")
        return
    fi
    cat >"$base/glusterd.vol" <<END
volume management
    type mgmt/glusterd
    option working-directory $base/work
    option run-directory $base/run
    option glusterd-sockfile $base/run/glusterd.socket
    option transport-type socket
    option transport.socket.listen-port 24007
end-volume
END
    # The mount must stay visible here: only the network is another one.
    local inside=(nsenter "--net=/var/run/netns/$namespace")
    local gluster=("${inside[@]}" gluster --mode=script "--glusterd-sock=$base/run/glusterd.socket")
    for brick in 1 2 3 4; do
        mkdir "$base/brick$brick"
        bricks+=("$address:$base/brick$brick")
    done
    if ! {
        mkdir -p /var/lib/glusterd &&
            "${inside[@]}" glusterd -f "$base/glusterd.vol" -p "$base/run/glusterd.pid" -l "$base/log/glusterd.log" &&
            sleep 3 &&
            "${gluster[@]}" volume create v "${bricks[@]}" force &&
            "${gluster[@]}" volume set v features.shard on &&
            "${gluster[@]}" volume set v features.shard-block-size 4MB &&
            "${gluster[@]}" volume start v &&
            "${inside[@]}" glusterfs "--volfile-server=$address" --volfile-id=v -l "$base/log/mount.log" \
                -p "$base/run/mount.pid" "$base/mnt"
    } >"$dir/error" 2>&1; then
        left_out+=("GlusterFS: $(tail -1 "$dir/error")")
        return
    fi
    gluster_pids=$(pids_with "$base/" | tr '\n' ' ')
}

start_9p() {
    export_port=$(free_port)
    "$covey" export "$dir/served" --listen "tcp!127.0.0.1!$export_port" >"$dir/export.log" 2>&1 &
    export_pid=$!
    wait_for_port "$export_port" || { cat "$dir/export.log" >&2 && exit 1; }
    if ! PATH=$PATH:/usr/sbin command -v diod >/dev/null; then
        left_out+=("diod: it is not installed")
        return
    fi
    diod_port=$(free_port)
    PATH=$PATH:/usr/sbin diod -f -n -e "$dir/served" -l "127.0.0.1:$diod_port" >"$dir/diod.log" 2>&1 &
    diod_pid=$!
    wait_for_port "$diod_port" || { left_out+=("diod: $(tail -1 "$dir/diod.log")") && diod_pid=; }
}

stop_all() {
    local code=$? pid
    trap - EXIT ERR
    set +e
    for pid in $export_pid $diod_pid; do kill "$pid" 2>/dev/null; done
    "$covey" down --dir "$dir/cluster" >/dev/null 2>&1
    umount -l "$dir/gluster/mnt" 2>/dev/null
    [ -z "$gluster_pids" ] || kill $(pids_with "$dir/gluster/") 2>/dev/null
    ip netns list 2>/dev/null | grep -q "^$namespace\b" && ip netns del "$namespace"
    sleep 0.5
    if mountpoint -q "$dir/mnt" || mountpoint -q "$dir/gluster/mnt"; then
        echo "bench: something is still mounted below $dir: left behind" >&2
    else
        rm -rf "$dir"
    fi
    exit "$code"
}
