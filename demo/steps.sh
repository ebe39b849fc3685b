# The steps of demo/run, each a function, in the order in which they run. Read with `.`.
# shellcheck shell=bash

IO_SERVERS=4
FILES_MIN=10000
has_mount=
lab=
verified=
left_out=()

title() { printf '\n== %s\n' "$*"; }
say() { printf '   %s\n' "$*"; }
# A command as a user would type it, and what it says.
show() {
    printf '$ %s\n' "$*"
    "$@" | sed 's/^/    /'
}
fail() {
    printf 'demo: %s\n' "$*" >&2
    [ ! -d "$dir/cluster/log" ] || tail -n 5 "$dir"/cluster/log/*.log >&2 || true
    exit 1
}
row() { printf '    %-36s %14s %14s\n' "$@"; }
verify() { verified+="${verified:+, }$*"; }

now() { date +%s.%N; }
since() { awk -v begun="$1" -v now="$(now)" 'BEGIN { printf "%.2f", now - begun }'; }
divide() { awk -v a="$1" -v b="$2" -v f="${3:-%.0f}" 'BEGIN { printf f, (b > 0 ? a / b : 0) }'; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'; }

# Whatever went before, no process, no mount and no file stays behind.
clean_up() {
    local code=$? file pid
    trap - EXIT
    if mountpoint -q "$mnt"; then
        covey umount --lazy "$mnt" >/dev/null 2>&1 || fusermount3 -uz "$mnt" || umount -l "$mnt" || true
    fi
    if [ -f "$dir/cluster/covey.toml" ]; then
        covey down --dir "$dir/cluster" >/dev/null 2>&1 || true
    fi
    for file in "$dir"/cluster/run/*.pid; do
        # The first word is the number; it is one of ours only if it runs our program.
        read -r pid _ 2>/dev/null <"$file" || continue
        [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" != "$covey" ] || kill -9 "$pid" 2>/dev/null || true
    done
    [ -z "$lab" ] || covey lab down --name "$lab" >/dev/null 2>&1 || true
    # Never through a mount that could not be undone.
    if mountpoint -q "$mnt"; then
        echo "demo: $mnt is still mounted: left behind" >&2
        code=1
    else
        rm -rf "$dir"
    fi
    exit "$code"
}

start_cluster() {
    title "Start: $IO_SERVERS I/O servers, a metadata server and a mount, in one command"
    show covey up -n "$IO_SERVERS" --dir "$dir/cluster" --mount "$mnt"
    show covey ping
    if mountpoint -q "$mnt"; then
        has_mount=1
    else
        say "FUSE is not permitted here: the same files are reached with covey cp, cat and ls instead."
        left_out+=("the mount, and the MPI program that needs it: FUSE is not permitted")
    fi
    verify "a cluster from one command"
}

# Directories that together hold enough files, in $trees; readable by whoever runs this.
choose_trees() {
    local candidate count
    trees=()
    tree_files=0
    for candidate in /usr/share/doc /usr/include /usr/share/man /usr/share/zoneinfo /usr/share/locale \
        /usr/share/perl /usr/lib/python3* "${CARGO_HOME:-$HOME/.cargo}/registry/src"; do
        [ -d "$candidate" ] || continue
        [ -z "$(find "$candidate" ! -type l ! -readable -print -quit 2>/dev/null)" ] || continue
        count=$(find "$candidate" -type f | wc -l)
        [ "$count" -gt 100 ] || continue
        trees+=("$candidate")
        tree_files=$((tree_files + count))
        [ "$tree_files" -lt "$FILES_MIN" ] || return 0
    done
    fail "cannot find $FILES_MIN files to copy, only $tree_files"
}

# Everything about a tree but the files' bytes: kinds, modes, owners, sizes, times, link targets.
describe_tree() {
    local owner='%U:%G'
    # Only root may give files away.
    [ "$(id -u)" -eq 0 ] || owner=
    (cd "$1" && find . \( -type d -printf "%P d %m $owner %T@\n" \) -o \
        -printf "%P %y %m $owner %s %n %T@ %l\n" | LC_ALL=C sort)
}

copy_a_tree() {
    local tree copy begun mebibytes seconds
    choose_trees
    mebibytes=$(du -cm --apparent-size "${trees[@]}" | tail -1 | cut -f1)
    title "Copy a real tree in: ${trees[*]}"
    say "$tree_files files, $mebibytes MiB. Most are small: each costs a create on the metadata server and a"
    say "write on one I/O server."
    begun=$(now)
    if [ -n "$has_mount" ]; then
        mkdir "$mnt/tree"
        for tree in "${trees[@]}"; do show cp -a "$tree" "$mnt/tree/"; done
    else
        covey mkdir /tree
        for tree in "${trees[@]}"; do show covey cp -r "$tree" ":/tree/"; done
    fi
    seconds=$(since "$begun")
    say "done in $seconds s: $(divide "$tree_files" "$seconds") files a second. Now every byte is compared:"
    begun=$(now)
    for tree in "${trees[@]}"; do
        copy=$mnt/tree/${tree##*/}
        if [ -n "$has_mount" ]; then
            describe_tree "$tree" >"$dir/source.list"
            describe_tree "$copy" >"$dir/copy.list"
            cmp "$dir/source.list" "$dir/copy.list" || fail "the copy of $tree has other attributes"
        else
            copy=$dir/back
            rm -rf "$copy"
            show covey cp -r ":/tree/${tree##*/}" "$copy"
        fi
        printf '$ diff -r --no-dereference %s %s\n' "$tree" "$copy"
        diff -r --no-dereference "$tree" "$copy" || fail "the copy of $tree differs"
        rm -rf "$dir/back"
    done
    say "no difference in $tree_files files, compared in $(since "$begun") s"
    if [ -n "$has_mount" ]; then
        # To a striped file system, what lies where is visible: objects are plain files of the stores.
        say "The strips lie as plain files in the servers' stores:"
        for store in "$dir"/cluster/store/io*; do
            printf '    %s: %s objects, %s MiB\n' "${store##*/}" "$(find "$store/objects" -type f | wc -l)" \
                "$(du -sm "$store/objects" | cut -f1)"
        done
    fi
    verify "$tree_files files byte for byte"
}

# The launcher of the MPI that compiled the program, with what it needs to start 4 ranks anywhere.
mpi_launcher() {
    local version
    version=$(mpiexec --version 2>&1 || true)
    launch=(mpiexec)
    case $version in
    *"Open MPI"* | *OpenRTE* | *PRRTE*)
        launch+=(--oversubscribe)
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        # Ranks of one machine need no network, and ssh may be missing.
        export OMPI_MCA_btl=self,vader OMPI_MCA_plm_rsh_agent=false
        # No data beside the run: session files go where everything else goes.
        export TMPDIR=$dir
        mpi="Open MPI"
        ;;
    *) mpi=MPICH ;;
    esac
}

run_mpi() {
    title "A parallel program: 4 ranks, one shared file, collective MPI-IO"
    if [ -z "$has_mount" ]; then
        say "left out: it needs the mount"
        return
    fi
    say "Blocks of 10,007 bytes, dealt to the ranks in turn ($mpi). Ranks meet inside every strip, so a file"
    say "system that rounds writes to pages or strips would lose bytes here. demo/interleave.c checks all."
    mpicc -O2 -o "$dir/bin/interleave" "$here/interleave.c"
    printf '$ mpiexec -n 4 interleave %s\n' "$mnt/shared"
    (cd "$dir" && timeout 120 "${launch[@]}" -n 4 "$dir/bin/interleave" "$mnt/shared") >"$dir/mpi.log" 2>&1 ||
        { cat "$dir/mpi.log" && fail "the MPI program has failed"; }
    sed 's/^/    /' "$dir/mpi.log"
    verify "4 MPI ranks in one file"
}

# One figure of transpose.c, sent by columns: the best tenth, in microseconds. `matrix N [VARIABLE=VALUE...]`
matrix() {
    local n=$1 times=$((100000 / $1))
    shift
    timeout 120 "${launch[@]}" -n 2 env "$@" "$dir/bin/transpose" "$n" "$times" >"$dir/matrix.log" 2>&1 ||
        { cat "$dir/matrix.log" >&2 && fail "the transposition has failed"; }
    grep -q right "$dir/matrix.log" || fail "the transposed matrix is wrong"
    awk '/scattered-contiguous/ { print $4 }' "$dir/matrix.log"
}

transpose_by_mpi() {
    local shim n alone shimmed
    title "Scattered data: a matrix sent by columns in an MPI program that knows nothing of Covey"
    say "MPI libraries move a derived datatype element by element. libcovey-pmpi stands before $mpi, recognises"
    say "the transposition and does it by a kernel for it; $mpi carries the bytes. Each element is checked."
    mpicc -O2 -o "$dir/bin/transpose" "$here/../crates/covey/tests/pmpi/transpose.c"
    shim=$(COVEY_LIB=${covey%/*}/libcovey_capi.a "$here/../crates/capi/mpi/pmpi/build" -o "$dir/lib" mpicc)
    printf '$ mpiexec -n 2 env LD_PRELOAD=%s transpose N\n' "$shim"
    row "one message and an empty answer, us" "$mpi alone" "with the shim"
    for n in 100 1000; do
        alone=$(matrix "$n")
        shimmed=$(matrix "$n" "LD_PRELOAD=$shim")
        row "$n x $n floats by columns" "$alone" "$shimmed"
    done
    verify "a transposition in an unmodified MPI program"
}

# Reads a file as if for the first time on this client; its checksum goes to stdout.
read_afresh() {
    if [ -n "$has_mount" ]; then
        dd if="$mnt/$1" iflag=nocache count=0 2>/dev/null || true
        timeout 30 sha256sum <"$mnt/$1"
    else
        # pipefail: a covey that fails fails the whole.
        timeout 30 covey cat "/$1" | sha256sum
    fi
}

write_file() {
    if [ -n "$has_mount" ]; then
        timeout 30 dd of="$mnt/$1" bs=64K conv=fsync 2>/dev/null
    else
        timeout 30 covey cp - ":/$1"
    fi
}

list_all() {
    if [ -n "$has_mount" ]; then timeout 30 ls -l "$mnt"; else timeout 30 covey ls -l /; fi
}

kill_a_server() {
    local victim=io2 pid begun seconds striped sums=() index alive=0 dead=0 try
    title "Kill an I/O server, with -9"
    head -c 8M /dev/urandom >"$dir/random"
    write_file striped <"$dir/random"
    for index in 1 2 3 4 5 6 7 8; do head -c 16384 /dev/urandom | write_file "small$index"; done
    striped=$(read_afresh striped)
    for index in 1 2 3 4 5 6 7 8; do sums[index]=$(read_afresh "small$index"); done
    say "\`striped\` has strips on all $IO_SERVERS servers. small1 to small8 fit in one strip, so each is on one."
    read -r pid _ <"$dir/cluster/run/$victim.pid"
    printf '$ kill -9 %s    # %s\n' "$pid" "$victim"
    kill -9 "$pid"

    begun=$(now)
    if read_afresh striped >/dev/null 2>"$dir/error"; then
        fail "a file was read whole without one of its servers"
    fi
    seconds=$(since "$begun")
    say "reading \`striped\`: $(grep -v '^hint' "$dir/error" | tail -1 | sed 's/.*: //'), after $seconds s"
    at_most "$seconds" 5 || fail "the error took $seconds s; the promise is 3"

    begun=$(now)
    list_all >/dev/null || fail "the directory could not be listed"
    say "ls -l of the directory: $(since "$begun") s"
    begun=$(now)
    for index in 1 2 3 4 5 6 7 8; do
        if [ "$(read_afresh "small$index" 2>/dev/null)" = "${sums[index]}" ]; then
            alive=$((alive + 1))
        else
            dead=$((dead + 1))
        fi
    done
    say "small1 to small8: $alive are read as if nothing had happened, $dead have their only server dead ($(since "$begun") s)"
    [ "$alive" -gt 0 ] && [ "$dead" -lt 8 ] || fail "the dead server cost files that it does not hold"
    [ "$dead" -gt 0 ] || say "(none of them was on $victim)"

    title "Start it again"
    printf '$ covey up --dir %s    # starts what has died, leaves the rest alone\n' "$dir/cluster"
    covey up --dir "$dir/cluster" >/dev/null
    begun=$(now)
    for try in $(seq 100); do
        [ "$(read_afresh striped 2>/dev/null)" != "$striped" ] || break
        [ "$try" -lt 100 ] || fail "the client does not come back to the restarted server"
        sleep 0.1
    done
    say "\`striped\` is whole again $(since "$begun") s later; nobody had to remount or reconnect"
    for index in 1 2 3 4 5 6 7 8; do
        [ "$(read_afresh "small$index")" = "${sums[index]}" ] || fail "small$index has changed"
    done
    say "small1 to small8 too"
    verify "a killed server: bounded error, others unharmed, recovery by itself"
}

# One figure of fsbench: rate NAME(operations|bytes) DIVISOR ARGUMENT...
rate() {
    local field=$1 unit=$2 operations bytes seconds
    shift 2
    read -r operations bytes seconds _ < <(fsbench "$@")
    case $field in
    operations) divide "$operations" "$seconds" ;;
    bytes) divide "$bytes" "$(awk -v s="$seconds" -v u="$unit" 'BEGIN { print s * u }')" ;;
    esac
}

print_rates() {
    local bytes=$((256 << 20)) files=1000 local_dir=$dir/local begun through mb=1000000 tcp
    local -A covey_rate=() local_rate=()
    title "Rates, all of this minute"
    say "Servers, client and test share $(nproc) cores, so compare with the columns beside, not with a real cluster."
    cc -O2 -pthread -o "$dir/bin/fsbench" "$here/../bench/fsbench.c"
    mkdir -p "$local_dir"
    tcp=$(rate bytes $mb loopback $((1 << 30)))
    for place in covey local; do
        local -n into=${place}_rate
        case $place in covey) through=$mnt ;; local) through=$local_dir ;; esac
        if [ "$place" = covey ] && [ -z "$has_mount" ]; then continue; fi
        into[write]=$(rate bytes $mb write "$through/stream" $bytes)
        into[overwrite]=$(rate bytes $mb overwrite "$through/stream" $bytes)
        into[read]=$(rate bytes $mb read "$through/stream" $bytes)
        # What the streams have left to the disk must not be paid for by the small files.
        sync
        into[create]=$(rate operations 1 create "$through/empty" $files)
        into[stat]=$(rate operations 1 stat "$through/empty" $files)
        into[unlink]=$(rate operations 1 unlink "$through/empty" $files)
        into[smallwrite]=$(rate operations 1 smallwrite "$through/small" $files)
        into[smallread]=$(rate operations 1 smallread "$through/small" $files)
    done
    begun=$(now)
    covey cp "$local_dir/stream" :/library >/dev/null 2>&1
    covey_rate[cp_in]=$(divide "$((bytes / mb))" "$(since "$begun")")
    begun=$(now)
    covey cp :/library "$local_dir/back" >/dev/null 2>&1
    covey_rate[cp_out]=$(divide "$((bytes / mb))" "$(since "$begun")")
    cmp "$local_dir/stream" "$local_dir/back" || fail "covey cp has brought back other bytes"

    row "" Covey "local disk"
    row "write, 1 MiB at a time    MB/s" "${covey_rate[write]:--}" "${local_rate[write]}"
    row "overwrite                 MB/s" "${covey_rate[overwrite]:--}" "${local_rate[overwrite]}"
    row "read                      MB/s" "${covey_rate[read]:--}" "${local_rate[read]}"
    row "covey cp in / out         MB/s" "${covey_rate[cp_in]} / ${covey_rate[cp_out]}" -
    row "create empty files         1/s" "${covey_rate[create]:--}" "${local_rate[create]}"
    row "stat                       1/s" "${covey_rate[stat]:--}" "${local_rate[stat]}"
    row "unlink                     1/s" "${covey_rate[unlink]:--}" "${local_rate[unlink]}"
    row "write files of 4 KiB       1/s" "${covey_rate[smallwrite]:--}" "${local_rate[smallwrite]}"
    row "read files of 4 KiB        1/s" "${covey_rate[smallread]:--}" "${local_rate[smallread]}"
    say "One TCP stream over loopback: $tcp MB/s. Covey's bytes cross it or a unix socket once; \`local disk\` is"
    say "the file system under the stores. \`make bench\` measures with care, and beside other file systems."
    rm -rf "$local_dir"
}

measure_a_network() {
    title "A lab: two nodes inside this machine, with a network of 100 Mbit/s, and a measurement of it"
    if ! covey lab up 2 --link fast-ethernet --name "demo$$" >"$dir/lab" 2>&1; then
        say "Labs are not permitted here: $(head -n 1 "$dir/lab")"
        left_out+=("the lab, and the measurement in it: not permitted")
        return
    fi
    lab=demo$$
    printf '$ covey lab up 2 --link fast-ethernet\n'
    sed -n '/^NODE/,/^front/s/^/    /p' "$dir/lab"
    printf '$ covey tune net n1 n2\n'
    covey tune net n1 n2 --lab "$lab" --budget 5 --graph none | sed 's/^/    /'
    say "Now a switch port drops, and tells nobody of, what is longer than 1400 bytes:"
    printf '$ covey lab set n2-sw1 mtu 1400\n$ covey tune net n1 n2\n'
    covey lab set n2-sw1 mtu 1400 --name "$lab" >/dev/null
    # A network on which blocks get stuck is an error, too.
    covey tune net n1 n2 --lab "$lab" --budget 5 --graph none >"$dir/faulty" 2>/dev/null || true
    sed -n '/^fault/,$s/^/    /p' "$dir/faulty"
    grep -q '^fault: an MTU black hole' "$dir/faulty" || fail "the black hole was not found"
    covey lab down --name "$lab" >/dev/null || fail "the lab does not end"
    lab=
    verify "a planted fault of a network, found by measuring"
}
