# What each suite starts, and what a round of it measures. Read with `.` by bench/run.
# shellcheck shell=bash

start_fs() {
    mkdir "$dir/raw" "$dir/mnt"
    start_covey
    start_gluster
    start_moose
}

start_disk() {
    start_fs
}

start_export() {
    mkdir "$dir/served"
    head -c $((256 << 20)) /dev/urandom >"$dir/served/file"
    start_9p
}

start_cp() {
    mkdir "$dir/mnt"
    start_covey
    head -c $((1 << 30)) /dev/urandom >"$dir/file"
    "$covey" cp "$dir/file" :/file
    [ -z "$before" ] || COVEY_CONFIG=$dir/before/covey.toml "$before" cp "$dir/file" :/file
    if ! command -v iperf3 >/dev/null; then left_out+=("iperf3: it is not installed"); fi
}

round_of_fs() {
    measure loopback tcp "" "$dir/fsbench" loopback $((2 << 30))
    through_directory raw "$dir/raw" ""
    [ -z "$mount_pids" ] || through_directory mount "$dir/mnt" "$covey_pids $mount_pids"
    through_library library "$covey_lib" "$COVEY_CONFIG" "$1" "$covey_pids"
    if [ -n "$before" ]; then
        [ -z "$before_mount_pids" ] || through_directory before "$dir/before-mnt" "$before_pids $before_mount_pids"
        through_library before-library "$(dirname "$before")/examples/libbench" "$dir/before/covey.toml" "$1" "$before_pids"
    fi
    [ -z "$gluster_pids" ] || through_directory gluster "$dir/gluster/mnt" "$gluster_pids"
    [ -z "$moose_pids" ] || through_directory moose "$dir/moose/mnt" "$moose_pids"
}

# The library would show the same disk once more.
round_of_disk() {
    through_directory raw "$dir/raw" ""
    [ -z "$mount_pids" ] || through_directory mount "$dir/mnt" "$covey_pids $mount_pids"
    [ -z "$gluster_pids" ] || through_directory gluster "$dir/gluster/mnt" "$gluster_pids"
    [ -z "$moose_pids" ] || through_directory moose "$dir/moose/mnt" "$moose_pids"
}

round_of_export() {
    through_9p export "$export_port" / "$export_pid"
    [ -z "$before" ] || through_9p before "$before_export_port" / "$before_export_pid"
    [ -z "$diod_pid" ] || through_9p diod "$diod_port" "$dir/served" "$diod_pid"
    through_9p floor "$floor_port" / "$floor_pid"
}

round_of_cp() {
    if command -v iperf3 >/dev/null; then measure iperf3 stream "" stream_of_iperf3; fi
    copies_of covey "$covey" "$COVEY_CONFIG" "$covey_pids"
    [ -z "$before" ] || copies_of before "$before" "$dir/before/covey.toml" "$before_pids"
}

copies_of() {
    local system=$1 program=$2 pids=$4
    local -x COVEY_CONFIG=$3
    measure "$system" cp-in "$pids" timed $((1 << 30)) "$program" cp "$dir/file" :/file
    measure "$system" cp-out "$pids" timed $((1 << 30)) "$program" cp :/file -
}

round_of_clients() {
    local count where=$dir/mnt/{} fs=$dir/fsbench pids="$covey_pids $client_pids"
    for count in 1 2 4; do
        local system=$count-clients
        # As many files and bytes in all, however many share the work.
        local share=$((files * 2 / count)) part=$((bytes / count))
        measure "$system" create "$pids" together "$count" "$fs" create "$where/c$1-$count-{}" "$share"
        measure "$system" stat "$pids" together "$count" "$fs" stat "$where/c$1-$count-{}" "$share"
        measure "$system" smallwrite "$pids" together "$count" "$fs" smallwrite "$where/s$1-$count-{}" "$share"
        measure "$system" smallread "$pids" together "$count" "$fs" smallread "$where/s$1-$count-{}" "$share"
        measure "$system" unlink "$pids" together "$count" "$fs" unlink "$where/c$1-$count-{}" "$share"
        measure "$system" write "$pids" together "$count" "$fs" write "$where/f$1-$count-{}" "$part"
        measure "$system" overwrite "$pids" together "$count" "$fs" overwrite "$where/f$1-$count-{}" "$part"
        measure "$system" read "$pids" together "$count" "$fs" read "$where/f$1-$count-{}" "$part"
        measure "$system" randread-direct "$pids" together "$count" \
            "$fs" randread "$where/f$1-$count-{}" "$part" "$seconds" 1 direct
        rm -rf "$dir/mnt/1/c$1-$count-"* "$dir/mnt/1/s$1-$count-"* "$dir/mnt/1/f$1-$count-"*
    done
}

# The tests of a file system, through a directory.
through_directory() {
    local system=$1 where=$2 pids=$3 fs=$dir/fsbench
    only_peer "$system"
    rm -rf "$where/stream" "$where/empty" "$where/small"
    measure "$system" write "$pids" "$fs" write "$where/stream" "$bytes"
    measure "$system" overwrite "$pids" "$fs" overwrite "$where/stream" "$bytes"
    measure "$system" read "$pids" "$fs" read "$where/stream" "$bytes"
    measure "$system" randread-direct-1 "$pids" "$fs" randread "$where/stream" "$bytes" "$seconds" 1 direct
    measure "$system" randread-direct-4 "$pids" "$fs" randread "$where/stream" "$bytes" "$seconds" 4 direct
    measure "$system" randwrite-direct-1 "$pids" "$fs" randwrite "$where/stream" "$bytes" "$seconds" 1 direct
    measure "$system" randread-buffered-1 "$pids" "$fs" randread "$where/stream" "$bytes" "$seconds" 1 buffered
    measure "$system" randwrite-buffered-1 "$pids" "$fs" randwrite "$where/stream" "$bytes" "$seconds" 1 buffered
    measure "$system" create "$pids" "$fs" create "$where/empty" "$files"
    measure "$system" stat "$pids" "$fs" stat "$where/empty" "$files"
    measure "$system" unlink "$pids" "$fs" unlink "$where/empty" "$files"
    measure "$system" smallwrite "$pids" "$fs" smallwrite "$where/small" "$files"
    measure "$system" smallread "$pids" "$fs" smallread "$where/small" "$files"
    rm -rf "$where/stream" "$where/empty" "$where/small"
}

through_library() {
    local system=$1 lib=("$2" "$3") config=$3 round=$4 pids=$5
    [ -x "$2" ] || return 0
    measure "$system" write "$pids" "${lib[@]}" write "stream-$round" "$bytes"
    measure "$system" overwrite "$pids" "${lib[@]}" overwrite "stream-$round" "$bytes"
    measure "$system" read "$pids" "${lib[@]}" read "stream-$round" "$bytes"
    measure "$system" randread-direct-1 "$pids" "${lib[@]}" randread "stream-$round" "$bytes" "$seconds" 1
    measure "$system" randread-direct-4 "$pids" "${lib[@]}" randread "stream-$round" "$bytes" "$seconds" 4
    measure "$system" randwrite-direct-1 "$pids" "${lib[@]}" randwrite "stream-$round" "$bytes" "$seconds" 1
    measure "$system" create "$pids" "${lib[@]}" create "empty-$round" "$files"
    measure "$system" stat "$pids" "${lib[@]}" stat "empty-$round" "$files"
    measure "$system" unlink "$pids" "${lib[@]}" unlink "empty-$round" "$files"
    measure "$system" smallwrite "$pids" "${lib[@]}" smallwrite "small-$round" "$files"
    measure "$system" smallread "$pids" "${lib[@]}" smallread "small-$round" "$files"
    COVEY_CONFIG=$config "$covey" rm -rf "/stream-$round" "/empty-$round" "/small-$round"
}

# A 9P server, asked by one and the same client.
through_9p() {
    local system=$1 port=$2 aname=$3 pids=$4 depth
    local nine=("$dir/ninebench" 127.0.0.1 "$port" "$aname" file)
    for depth in 1 16 64; do
        measure "$system" "getattr-$depth" "$pids" "${nine[@]}" getattr 0 "$depth" "$seconds"
        measure "$system" "walk-$depth" "$pids" "${nine[@]}" walk 0 "$depth" "$seconds"
        measure "$system" "read4k-$depth" "$pids" "${nine[@]}" read 4096 "$depth" "$seconds"
    done
    measure "$system" read64k-4 "$pids" "${nine[@]}" read 65536 4 "$seconds"
    measure "$system" write64k-4 "$pids" "${nine[@]}" write 65536 4 "$seconds"
}

# timed BYTES COMMAND...: what a program that does not measure itself took.
timed() {
    local bytes=$1 TIMEFORMAT='%R %U %S' said
    shift
    said=$({ time "$@" >/dev/null 2>"$dir/error"; } 2>&1) || return 1
    awk -v bytes="$bytes" '{ printf "1 %.0f %.6f %.6f\n", bytes, $1, $2 + $3 }' <<<"$said"
}

# One stream over loopback TCP, as iperf3 makes it; CPU of both ends.
stream_of_iperf3() {
    local port=$((20000 + RANDOM % 20000)) server whole
    # It takes whole seconds, and 0 for ever.
    whole=$(awk -v seconds="$seconds" 'BEGIN { whole = int(seconds); print whole < seconds ? whole + 1 : whole }')
    iperf3 -s -1 -p "$port" -B 127.0.0.1 >/dev/null 2>&1 &
    server=$!
    wait_for_iperf3
    iperf3 -c 127.0.0.1 -p "$port" -t "$whole" -J >"$dir/iperf3.json" || { kill "$server" && return 1; }
    wait "$server" || true
    awk -F '[:,]' '
        /"sum_received"/ { here = 1 }
        here && /"seconds"/ { seconds = $2 }
        here && /"bytes"/ { bytes = $2; here = 0 }
        /"host_total"/ { cpu = $2 }
        /"remote_total"/ { cpu += $2 }
        END { printf "1 %.0f %.6f %.6f\n", bytes, seconds, cpu / 100 * seconds }' "$dir/iperf3.json"
}

# A look at the port would be taken for the one client that iperf3 -1 serves.
wait_for_iperf3() {
    sleep 0.5
}
