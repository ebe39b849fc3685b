# The systems that Covey is laid beside: GlusterFS, MooseFS and diod, as Debian packages them. Read with
# `.` by bench/run.
# shellcheck shell=bash

# Neither GlusterFS nor MooseFS serves at 127.0.0.1: they get a network namespace with an address each.
can_start_peer() {
    [ "$(id -u)" -eq 0 ] && PATH=$PATH:/usr/sbin command -v "$1" >/dev/null && command -v ip >/dev/null
}

make_namespace() {
    {
        [ -e "/var/run/netns/$namespace" ] || { ip netns add "$namespace" && ip -n "$namespace" link set lo up; }
        ip -n "$namespace" address add "$1/32" dev lo
    } 2>"$dir/error"
}

# A daemon, four bricks on this machine, files in shards of 4 MiB that lie on all bricks. GlusterFS
# refuses bricks at 127.0.0.1.
start_gluster() {
    [[ gluster =~ $columns ]] || return 0
    local base=$dir/gluster address=10.215.0.1 bricks=() brick
    if ! can_start_peer glusterd; then
        left_out+=("GlusterFS: needs root, glusterfs-server and iproute2")
        return
    fi
    mkdir -p "$base/work" "$base/run" "$base/log" "$base/mnt"
    if ! make_namespace "$address"; then
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

# A master and four chunk servers on this machine. Goal 1, its default: a chunk is kept once. Chunks are of
# 64 MiB, each on one server.
start_moose() {
    [[ moose =~ $columns ]] || return 0
    local base=$dir/moose address=10.215.0.2 inside=(nsenter "--net=/var/run/netns/$namespace") number
    if ! can_start_peer mfsmaster || ! can_start_peer mfschunkserver || ! can_start_peer mfsmount; then
        left_out+=("MooseFS: needs root, moosefs-master, moosefs-chunkserver, moosefs-client and iproute2")
        return
    fi
    mkdir -p "$base/master" "$base/mnt"
    cp /var/lib/mfs/metadata.mfs.empty "$base/master/metadata.mfs" 2>/dev/null ||
        printf 'MFSM NEW' >"$base/master/metadata.mfs"
    echo "* / rw,alldirs,maproot=0:0" >"$base/exports.cfg"
    printf '%s\n' "WORKING_USER = root" "WORKING_GROUP = root" "DATA_PATH = $base/master" \
        "EXPORTS_FILENAME = $base/exports.cfg" "MATOML_LISTEN_HOST = $address" \
        "MATOCS_LISTEN_HOST = $address" "MATOCL_LISTEN_HOST = $address" >"$base/master.cfg"
    for number in 1 2 3 4; do
        mkdir -p "$base/chunks$number" "$base/state$number"
        echo "$base/chunks$number" >"$base/disks$number.cfg"
        printf '%s\n' "WORKING_USER = root" "WORKING_GROUP = root" "DATA_PATH = $base/state$number" \
            "HDD_CONF_FILENAME = $base/disks$number.cfg" "HDD_LEAVE_SPACE_DEFAULT = 64MiB" \
            "MASTER_HOST = $address" "BIND_HOST = $address" "CSSERV_LISTEN_HOST = $address" \
            "CSSERV_LISTEN_PORT = $((9421 + number))" >"$base/server$number.cfg"
    done
    if ! {
        make_namespace "$address" &&
            "${inside[@]}" mfsmaster -c "$base/master.cfg" start &&
            for number in 1 2 3 4; do "${inside[@]}" mfschunkserver -c "$base/server$number.cfg" start; done &&
            sleep 3 &&
            "${inside[@]}" mfsmount "$base/mnt" -H "$address" -P 9421 &&
            touch "$base/mnt/probe"
    } >"$dir/error" 2>&1; then
        left_out+=("MooseFS: $(tail -1 "$dir/error")")
        return
    fi
    moose_pids=$(pids_with "$base/" | tr '\n' ' ')
}

start_diod() {
    if ! PATH=$PATH:/usr/sbin command -v diod >/dev/null; then
        left_out+=("diod: it is not installed")
        return
    fi
    diod_port=$(free_port)
    PATH=$PATH:/usr/sbin diod -f -n -e "$dir/served" -l "127.0.0.1:$diod_port" >"$dir/diod.log" 2>&1 &
    diod_pid=$!
    wait_for_port "$diod_port" || { left_out+=("diod: $(tail -1 "$dir/diod.log")") && diod_pid=; }
}

# The processes of the peers that were started.
peer_pids() {
    local peer
    for peer in gluster moose; do
        if [ -d "$dir/$peer" ]; then pids_with "$dir/$peer/"; fi
    done
}

# only_peer gluster|moose|none: the daemons of the other peers stand still until the next call. A chunk server of MooseFS wakes 1,500
# times a second at the highest priority, also while nobody asks for anything.
only_peer() {
    local pids try
    pids=$(peer_pids)
    [ -n "$pids" ] || return 0
    # Those that end meanwhile are none of its parts.
    # shellcheck disable=SC2086 # several
    kill -STOP $pids 2>/dev/null || true
    case $1 in gluster | moose) ;; *) return 0 ;; esac
    # shellcheck disable=SC2046
    kill -CONT $(pids_with "$dir/$1/") 2>/dev/null || true
    # Its parts have missed each other for some time, and meet anew.
    for try in $(seq 60); do
        sleep 1
        # shellcheck disable=SC2016
        timeout 5 sh -c 'echo "$1" >"$2" && [ "$(cat "$2")" = "$1" ]' sh "$try" "$dir/$1/mnt/probe" 2>/dev/null && sleep 5 && return 0
    done
    echo "bench: $1 does not go on after it was stopped" >&2
}

# Nobody stands still any more.
wake_peers() {
    local pids
    pids=$(peer_pids)
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -CONT $pids 2>/dev/null || true
}

stop_peers() {
    local signal pids
    wake_peers
    umount -l "$dir/gluster/mnt" 2>/dev/null
    umount -l "$dir/moose/mnt" 2>/dev/null
    # A master whose directory has gone would spin for ever: nobody is left behind.
    for signal in TERM TERM KILL; do
        pids=$(peer_pids)
        [ -n "$pids" ] || break
        # shellcheck disable=SC2086 # several
        kill -"$signal" $pids 2>/dev/null
        sleep 2
    done
    if [ -e "/var/run/netns/$namespace" ]; then ip netns del "$namespace"; fi
    return 0
}
