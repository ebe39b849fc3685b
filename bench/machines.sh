# Client machines: network namespaces, each at the end of a virtual cable of its own. Read with `.` by
# bench/run.
# shellcheck shell=bash

machines_max=4
# Each run takes a network of its own, so that two runs do not meet.
network=10.$((64 + RANDOM % 128))
server_address=$network.0.1
client_namespaces=()
client_pids=

# The servers run here, at one address that all clients reach. No Unix socket: machines do not share one.
start_clients() {
    local number name port
    mkdir -p "$dir/cluster/store" "$dir/mnt"
    if [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null; then
        echo "bench: clients: needs root and iproute2" >&2
        exit 1
    fi
    ip address add "$server_address/32" dev lo
    write_cluster_file "$dir/cluster/covey.toml"
    export COVEY_CONFIG=$dir/cluster/covey.toml
    "$covey" keygen "$dir/cluster/key" >/dev/null 2>&1
    for name in meta io1 io2 io3 io4; do
        "$covey" init --node "$name" >/dev/null 2>"$dir/error" || { cat "$dir/error" >&2 && exit 1; }
        "$covey" serve --node "$name" >"$dir/cluster/$name.log" 2>&1 &
        covey_pids+=" $!"
    done
    sleep 1
    for number in $(seq "$machines_max"); do
        start_machine "$number" || { echo "bench: clients: $(tail -1 "$dir/error")" >&2 && exit 1; }
    done
    mount_pids=$client_pids
}

write_cluster_file() {
    local name port=$((20000 + RANDOM % 20000)) roles
    {
        echo "version = 1"
        echo "[cluster]"
        echo "name = \"bench\""
        echo "id = \"$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')\""
        echo "nodes = 5"
        echo "key_file = \"$dir/cluster/key\""
        for name in meta io1 io2 io3 io4; do
            roles=data
            [ "$name" = meta ] && roles=meta
            port=$((port + 1))
            echo "[[node]]"
            echo "name = \"$name\""
            echo "roles = [\"$roles\"]"
            echo "listen = [\"tcp!$server_address!$port\"]"
            echo "store = \"$dir/cluster/store/$name\""
        done
    } >"$1"
}

# A namespace with one cable and a mount.
start_machine() {
    local number=$1 name=$namespace-$1 here there try
    here=cv$$-$number there=cw$$-$number
    mkdir -p "$dir/mnt/$number"
    { ip netns add "$name" && client_namespaces+=("$name") &&
        ip link add "$here" type veth peer name "$there" netns "$name" &&
        ip address add "$network.$number.1/24" dev "$here" && ip link set "$here" up &&
        ip -n "$name" address add "$network.$number.2/24" dev "$there" &&
        ip -n "$name" link set lo up && ip -n "$name" link set "$there" up &&
        ip -n "$name" route add default via "$network.$number.1"; } 2>"$dir/error" || return 1
    # Only the network is another one: the mount must be visible here.
    nsenter "--net=/var/run/netns/$name" "$covey" mount --foreground "$dir/mnt/$number" \
        >"$dir/cluster/mount-$number.log" 2>&1 &
    client_pids+=" $!"
    for try in $(seq 100); do
        if mountpoint -q "$dir/mnt/$number"; then return 0; fi
        sleep 0.1
    done
    echo "no mount after 10 s, try $try: $(tail -1 "$dir/cluster/mount-$number.log")" >"$dir/error"
    return 1
}

stop_machines() {
    local number name
    for number in $(seq "$machines_max"); do umount -l "$dir/mnt/$number" 2>/dev/null; done
    if [ ${#client_namespaces[@]} -gt 0 ]; then
        for pid in $covey_pids $client_pids; do kill "$pid" 2>/dev/null; done
        # A cable goes with its namespace.
        for name in "${client_namespaces[@]}"; do ip netns del "$name"; done
    fi
    ip address del "$server_address/32" dev lo 2>/dev/null
    return 0
}

# together N COMMAND...: runs COMMAND with {} replaced by 1 to N, all at once. Their operations, bytes and CPU
# are added up; the time is that of all together.
together() {
    local count=$1 number begun ended pids=() failed=0
    shift
    begun=$(date +%s.%N)
    for number in $(seq "$count"); do
        "${@//\{\}/$number}" >"$dir/said-$number" &
        pids+=($!)
    done
    for number in "${pids[@]}"; do wait "$number" || failed=1; done
    ended=$(date +%s.%N)
    [ "$failed" = 0 ] || return 1
    for number in $(seq "$count"); do cat "$dir/said-$number"; done |
        awk -v took="$(echo "$ended $begun" | awk '{ printf "%.6f", $1 - $2 }')" '
            { operations += $1; bytes += $2; cpu += $4 }
            END { printf "%.0f %.0f %.6f %.6f\n", operations, bytes, took, cpu }'
}
