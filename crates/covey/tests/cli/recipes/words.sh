# What lines that readers do not see may say.

# hosts NAME...: other machines, which are this one at an address each.
hosts() {
    local host
    for host; do
        if ! grep -q " $host\$" /etc/hosts; then
            ip addr add "10.24.0.$(wc -l </etc/hosts)/24" dev "$card"
            echo "10.24.0.$(wc -l </etc/hosts) $host" >>/etc/hosts
        fi
    done
}

# cluster HOSTS: as several-machines.md makes it.
cluster() {
    local node nodes
    nodes=$(members "$1")
    hosts $nodes
    mkdir -p /etc/covey
    covey genconfig --io "$1" --output /etc/covey/covey.toml >/dev/null
    covey keygen /etc/covey/key >/dev/null
    for node in $nodes; do
        covey init --node "$node" >/dev/null
        systemctl start "covey@$node"
    done
}

# members LIST: the names of node[1-4] or node1, a line each.
members() {
    case $1 in
    *"["*) seq -f "${1%%[*}%g" $(echo "$1" | sed 's/.*\[\([0-9]*\)-\([0-9]*\)\]/\1 \2/') ;;
    *) echo "$1" ;;
    esac
}

# until_so COMMAND: waits for it to succeed, for half a minute.
until_so() {
    local count
    for count in $(seq 300); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    echo "did not come true: $*"
    return 1
}

# going_on COMMAND...: one that goes on until it is interrupted, and prints something when it is ready.
going_on() {
    local log
    log=$(mktemp)
    "$@" >"$log" 2>&1 &
    until_so test -s "$log"
    cat "$log"
}

# on HOST COMMAND...: there, with that host's name and mounts.
on() {
    local host=$1 keeper=/run/host-$1
    shift
    grep -q " $host\$" /etc/hosts || { echo "no host $host"; return 1; }
    (
        flock 9
        if [ ! -s "$keeper" ]; then
            unshare --mount --uts sh -c 'hostname "$0"; exec sleep 1000' "$host" >/dev/null 2>&1 9>&- &
            echo $! >"$keeper"
            until_so sh -c "nsenter --uts --target $! hostname | grep -qx $host"
        fi
    ) 9>>"$keeper.lock"
    nsenter --mount --uts --target "$(cat "$keeper")" --wd="$PWD" "$@"
}
