# The tables of bench/run: medians and ranges over the rounds, CPU beside every rate.
# shellcheck shell=bash

# Lines of `SYSTEM TEST OPERATIONS BYTES SECONDS CPU_OF_TEST TICKS_OF_SERVERS` become one cell per
# system and test: `median (least to most) [CPU]`.
table() {
    local heading=$1 tests=$2 systems=$3
    awk -v heading="$heading" -v tests="$tests" -v systems="$systems" '
        function median(list, count,    i, j, swap, sorted) {
            for (i = 1; i <= count; i++) sorted[i] = list[i]
            for (i = 2; i <= count; i++)
                for (j = i; j > 1 && sorted[j] < sorted[j - 1]; j--) {
                    swap = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = swap
                }
            least = sorted[1]; most = sorted[count]
            return count % 2 ? sorted[(count + 1) / 2] : (sorted[count / 2] + sorted[count / 2 + 1]) / 2
        }
        function number(x) {
            if (x >= 100) return sprintf("%d", x + 0.5)
            return sprintf(x >= 10 ? "%.1f" : "%.2f", x)
        }
        function is_stream(test) { return test ~ /^(tcp|write|overwrite|read|read64k.*|write64k.*)$/ }
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
        }' "$results"
}

report() {
    local reason
    echo "# Covey measured, $(date -u +%Y-%m-%d)"
    echo
    echo "$(nproc) x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), Linux $(uname -r); $("$covey" --version)."
    echo "$rounds rounds, interleaved; $((bytes >> 20)) MiB streamed, $files files, stores on $(stat -f -c %T "$dir")."
    echo "Cells: median (range) [CPU of client and servers together: s per GiB in MB/s rows, us per operation elsewhere]."
    for reason in "${left_out[@]}"; do echo "Left out: $reason."; done
    table "MB/s, one stream" tcp loopback
    table "MB/s, 1 MiB at a time" "write overwrite read" "raw mount library gluster"
    table "4 KiB per s" \
        "randread-direct-1 randread-direct-4 randwrite-direct-1 randread-buffered-1 randwrite-buffered-1" \
        "raw mount library gluster"
    table "files per s" "create stat unlink smallwrite smallread" "raw mount library gluster"
    table "9P requests per s" "getattr walk read4k-1 read4k-16 read4k-64" "export diod"
    table "9P, MB/s" "read64k-4 write64k-4" "export diod"
    echo
    echo "raw: a directory of the file system under the stores. mount: FUSE, 4 I/O servers and a metadata"
    echo "server. library: the client library without a mount, 4 requests in flight when streaming. gluster:"
    echo "GlusterFS, 4 bricks, 4 MiB shards. write makes the file anew, overwrite touches no new page. -direct is"
    echo "O_DIRECT; the number is the threads or requests in flight."
}
