# The tables of bench/run: medians and ranges over the rounds, CPU beside every rate.
# shellcheck shell=bash

# The end of an awk program that has `cell(system SUBSEP test)`, and is given `heading`, `systems` and `tests`. Its cells may
# use `median(list, count)`, which also sets `least` and `most`.
# shellcheck disable=SC2016 # awk's
table_rows='
        function median(list, count,    i, j, swap, sorted) {
            for (i = 1; i <= count; i++) sorted[i] = list[i]
            for (i = 2; i <= count; i++)
                for (j = i; j > 1 && sorted[j] < sorted[j - 1]; j--) {
                    swap = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = swap
                }
            least = sorted[1]; most = sorted[count]
            return count % 2 ? sorted[(count + 1) / 2] : (sorted[count / 2] + sorted[count / 2 + 1]) / 2
        }
        END {
            columns = split(systems, name, " ")
            printf "\n| %s |", heading
            for (c = 1; c <= columns; c++) printf " %s |", name[c]
            printf "\n|---|"
            for (c = 1; c <= columns; c++) printf "--:|"
            print ""
            rows = split(tests, test, " ")
            for (r = 1; r <= rows; r++) {
                printf "| %s |", test[r]
                for (c = 1; c <= columns; c++) printf " %s |", cell(name[c] SUBSEP test[r])
                print ""
            }
        }'

# Lines of `SYSTEM TEST OPERATIONS BYTES SECONDS CPU_OF_TEST TICKS_OF_SERVERS` become one cell per
# system and test: `median (least to most) [CPU]`.
table() {
    local heading=$1 tests=$2 systems=$3
    awk -v heading="$heading" -v tests="$tests" -v systems="$systems" '
        function number(x) {
            if (x >= 100) return sprintf("%d", x + 0.5)
            return sprintf(x >= 10 ? "%.1f" : "%.2f", x)
        }
        function is_stream(test) { return test ~ /^(tcp|stream|cp-.*|write|overwrite|read|read64k.*|write64k.*)$/ }
        {
            key = $1 SUBSEP $2; n = ++count[key]
            rate[key, n] = is_stream($2) ? $4 / $5 / 1e6 : $3 / $5
            used = $6 + $7 / 100
            cpu[key, n] = is_stream($2) ? used / ($4 / 1073741824) : used / $3 * 1e6
        }
        function cell(key,    n, i, rates, cpus, middle, range, used) {
            n = count[key]
            if (!n) return "-"
            for (i = 1; i <= n; i++) { rates[i] = rate[key, i]; cpus[i] = cpu[key, i] }
            middle = median(rates, n)
            range = number(least) " to " number(most)
            used = median(cpus, n)
            return number(middle) " (" range ") [" number(used) "]"
        }
        '"$table_rows" "$results"
}

machine_and_time() {
    echo "$(nproc) x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(awk '/MemTotal/ { printf "%d GiB", $2 / 1048576 + 0.5 }' /proc/meminfo);" \
        "Linux $(uname -r); $("$covey" --version); $(date -u '+%Y-%m-%d %H:%M UTC'), load $(cut -d' ' -f1-3 /proc/loadavg)."
}

# What was measured on, and whether it was quiet.
machine_line() {
    local reason
    echo
    echo "## $1"
    echo
    machine_and_time
    if [ "$busiest_percent" -gt 5 ]; then
        echo
        echo "**The machine was not idle: others used up to $busiest_percent % of it before a round. Rates are too low; measure again.**"
    fi
    echo
    echo "Rounds: $rounds, interleaved; stores on $(stat -f -c %T "$dir")."
    [ "$suite" = tree ] ||
        echo "Cells: median (least to most) [CPU of client and servers together: s per GiB in MB/s rows, us per operation elsewhere]."
    for reason in "${left_out[@]}"; do echo "Left out: $reason."; done
}

report() {
    case $suite in
    fs) machine_line "File system, stores in memory" ;;
    disk) machine_line "File system, stores on a disk" ;;
    export) machine_line "9P export" ;;
    cp) machine_line "covey cp" ;;
    clients) machine_line "Client machines" ;;
    tree) machine_line "A tree of small files, stores in memory" ;;
    esac
    "report_$suite"
}

report_fs() {
    local older=${before:+before} older_library=${before:+before-library}
    local systems="raw mount $older library $older_library gluster moose"
    [ "$suite" = fs ] || systems="raw mount $older gluster moose"
    echo "$((bytes >> 20)) MiB streamed, $files files."
    [ "$suite" = disk ] || table "MB/s, one stream" tcp loopback
    table "MB/s, 1 MiB at a time" "write overwrite read" "$systems"
    table "4 KiB per s" \
        "randread-direct-1 randread-direct-4 randwrite-direct-1 randread-buffered-1 randwrite-buffered-1" \
        "$systems"
    table "files per s" "create stat unlink smallwrite smallread" "$systems"
    echo
    echo "raw: a directory of the file system under the stores. mount: FUSE, 4 I/O servers and a metadata"
    echo "server. library: the client library without a mount, 4 requests in flight when streaming. gluster:"
    echo "GlusterFS, 4 bricks, 4 MiB shards. moose: MooseFS, 4 chunk servers, one copy. write makes the file anew,"
    echo "overwrite touches no new page; both end with fsync. -direct is O_DIRECT; the number is the threads or"
    echo "requests in flight. small: files of 4 KiB, created and written, opened and read."
}

report_disk() {
    report_fs
}

report_export() {
    local older=${before:+before}
    table "requests per s" \
        "getattr-1 getattr-16 getattr-64 walk-1 walk-16 walk-64 read4k-1 read4k-16 read4k-64" "export $older diod floor"
    table "MB/s" "read64k-4 write64k-4" "export $older diod floor"
    server_cpu
    echo
    echo "One client over loopback TCP, the same for all; the number is the requests in flight. A walk is Twalk"
    echo "of one name and the Tclunk of what it found. floor: a loop in C with no checks and one file, which shows"
    echo "what the kernel leaves to a server of one thread that answers with pread, pwrite and sendfile (its walks look nothing up)."
}

# The server's share: what the client needs is the same for all.
server_cpu() {
    awk -v systems="export ${before:+before} diod floor" '
        { key = $1 SUBSEP $2; ticks[key] += $7; operations[key] += $3; if (!seen[$2]++) order[++tests] = $2 }
        function us(server, test,    key) {
            key = server SUBSEP test
            return operations[key] ? sprintf("%.2f", ticks[key] * 1e4 / operations[key]) : "-"
        }
        END {
            columns = split(systems, name, " ")
            printf "\n| server CPU, us per request |"
            for (c = 1; c <= columns; c++) printf " %s |", name[c]
            printf "\n|---|"
            for (c = 1; c <= columns; c++) printf "--:|"
            print ""
            for (t = 1; t <= tests; t++) {
                printf "| %s |", order[t]
                for (c = 1; c <= columns; c++) printf " %s |", us(name[c], order[t])
                print ""
            }
        }' "$results"
}

report_cp() {
    local older=${before:+before}
    echo "1 GiB, incompressible."
    table "MB/s" "stream" "iperf3"
    table "MB/s" "cp-in cp-out" "covey $older"
    echo
    echo "cp-in replaces a file that is there by one in memory; cp-out writes to stdout, which is /dev/null."
    echo "iperf3: one stream over loopback TCP, the same minutes."
}

report_clients() {
    echo "$((bytes >> 20)) MiB and $((files * 2)) files in all, shared by the clients; 4 I/O servers and a metadata server."
    table "files per s" "create stat smallwrite smallread unlink" "1-clients 2-clients 4-clients"
    table "MB/s" "write overwrite read" "1-clients 2-clients 4-clients"
    table "4 KiB per s" "randread-direct" "1-clients 2-clients 4-clients"
    echo
    echo "Totals of all clients. Each is a network namespace with a cable and a mount of its own, on this one machine:"
    echo "what is shared is the machine's CPU, too."
}
