# A tree that a node binds besides its own, through Linux's v9fs: at the node, and at another one's /n. Runs as
# root in a guest whose /mnt is its own; $1 is the covey binary, and beside it lies `node`, which serves the
# clock.
covey=$1
node=$(dirname "$1")/node
failed=0
fail() { echo "FAILED: $*"; failed=1; }

"$covey" up -n 2 --dir /mnt/c > /mnt/log 2>&1 || { cat /mnt/log /mnt/c/log/*; exit 1; }
read -r pid _ < /mnt/c/run/io2.pid
kill -9 "$pid"
sleep 0.2
CLOCK_CONFIG=/mnt/c/covey.toml CLOCK_NODE=io2 \
    "$node" --exact clock::serve::a_node_with_a_clock --ignored --nocapture > /mnt/node.log 2>&1 &
for _ in $(seq 200); do
    "$covey" 9p ls 'unix!/mnt/c/run/io2.sock' /time > /dev/null 2>&1 && break
    sleep 0.2
done
mkdir -p /mnt/one /mnt/two
common=version=9p2000.L,msize=1048576,cache=none,access=client,uname=root,aname=/
mount -t 9p -o "trans=unix,$common" /mnt/c/run/io1.sock /mnt/one || { cat /mnt/c/log/*; exit 1; }
mount -t 9p -o "trans=unix,$common" /mnt/c/run/io2.sock /mnt/two || { cat /mnt/node.log; exit 1; }

for time in /mnt/two/time /mnt/one/n/io2/time; do
    [ "$(echo "$time"/*)" = "$time/now $time/zone" ] || fail "list $time: $(ls -la "$time")"
    [ "$(cat $time/zone)" = UTC ] || fail "read $time/zone"
    before=$(cat $time/now)
    [ "$before" -gt 0 ] || fail "$time/now is a number"
    sleep 1.1
    [ "$(cat $time/now)" -gt "$before" ] || fail "$time/now goes on"
    (echo CET > $time/zone) 2> /dev/null && fail "$time/zone was written"
done
[ "$(find /mnt/one/n/io2 -maxdepth 1 | wc -l)" -gt 8 ] || fail "list another node's root"
[ -e /mnt/one/n/io2/n ] && fail "a node's neighbours are shown by its neighbours"
echo hello > /mnt/one/n/io2/fs/file && [ "$(cat /mnt/two/fs/file)" = hello ] || fail "write through /n"
(echo jump > /mnt/one/n/io2/ctl) 2> /dev/null && fail "a wrong command was taken"
grep -q 'last error: jump' /mnt/one/n/io2/ctl || fail "the last error is read: $(cat /mnt/one/n/io2/ctl)"
[ $failed = 0 ] || cat /mnt/node.log
exit $failed
