# What programs expect of a file system, through Linux's v9fs, on the /fs of a cluster's nodes, and
# together with a FUSE mount of the same files. Runs as root in a guest whose /mnt is its own; $1 is
# the covey binary.
covey=$1
failed=0
fail() { echo "FAILED: $*"; failed=1; }

"$covey" up -n 3 --dir /mnt/c --tcp 5640 > /mnt/log 2>&1 || { cat /mnt/log /mnt/c/log/*; exit 1; }
export COVEY_CONFIG=/mnt/c/covey.toml
mkdir -p /mnt/one /mnt/two /mnt/fuse /mnt/beside
common=version=9p2000.L,msize=1048576,cache=none,uname=root,aname=/fs
# Two nodes, neither of them the metadata server: every node serves the whole file system.
mount -t 9p -o "trans=unix,access=client,$common" /mnt/c/run/io1.sock /mnt/one || { cat /mnt/c/log/*; exit 1; }
mount -t 9p -o "trans=tcp,port=5642,access=client,$common" 127.0.0.1 /mnt/two || { cat /mnt/c/log/*; exit 1; }
cd /mnt/one || exit 1

# Names.
echo hello > a && [ "$(cat /mnt/two/a)" = hello ] || fail "create on one node and read on another"
mkdir -p d/e/f && mv a d/e/f/b && ln d/e/f/b hard && ln -s d/e/f/b soft || fail "make names"
[ "$(cat /mnt/two/soft)" = hello ] || fail "a symbolic link leads on"
[ "$(stat -c %h /mnt/two/hard)" = 2 ] || fail "hard links are counted"
rmdir d 2> /dev/null && fail "a directory with entries was removed"
mv d moved && [ "$(cat /mnt/two/moved/e/f/b)" = hello ] || fail "rename a directory"
mkdir sticky && chmod 1777 sticky && [ "$(stat -c %a /mnt/two/sticky)" = 1777 ] || fail "chmod"
chown 1234:2345 hard && [ "$(stat -c %u:%g /mnt/two/hard)" = 1234:2345 ] || fail "chown"

# Sizes and content.
truncate -s 3 hard && [ "$(cat /mnt/two/moved/e/f/b)" = hel ] || fail "truncate"
dd if=/dev/urandom of=/mnt/random bs=1M count=20 2> /dev/null
cp /mnt/random big && cmp /mnt/random /mnt/two/big || fail "big file"
[ "$(find /mnt/c/store/io*/objects -type f -size +1M | wc -l)" = 3 ] || fail "a big file lies on every server"
path=deep
for _ in $(seq 60); do path=$path/dddddddddddddddddddddddddddddddddddddddddddddddddd; done
mkdir -p "$path" && echo x > "$path/y" && [ "$(cat "/mnt/two/$path/y")" = x ] || fail "a path of 3 KB"
cp -a /usr/include/linux/netfilter tree && diff -r /usr/include/linux/netfilter /mnt/two/tree || fail "copy a tree"

python3 - << 'EOF' || fail "python"
import fcntl, os, struct
f = os.open("gone", os.O_RDWR | os.O_CREAT, 0o600)
os.write(f, b"12345"); os.unlink("gone")
assert os.fstat(f).st_size == 5
os.ftruncate(f, 2)
assert os.fstat(f).st_size == 2 and os.pread(f, 10, 0) == b"12"
os.fsync(f); os.close(f)

os.mkdir("many")
for i in range(600): open(f"many/{i}", "w").close()
assert sorted(os.listdir("/mnt/two/many"), key=int) == [str(i) for i in range(600)]
for entry in os.scandir("many"): os.unlink("many/" + entry.name)
assert os.listdir("/mnt/two/many") == []

# Locks are seen on the other node.
a = os.open("lock", os.O_RDWR | os.O_CREAT)
fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
b = os.open("/mnt/two/lock", os.O_RDWR)
try: fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 7); raise SystemExit("a lock of another node was ignored")
except OSError: pass
fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)
# The kernel asks what is in the way without saying of which kind of lock.
fcntl.lockf(a, fcntl.LOCK_SH | fcntl.LOCK_NB, 5, 40)
for start, kind, at, length in [(0, fcntl.F_WRLCK, 5, 10), (30, fcntl.F_RDLCK, 40, 5), (50, fcntl.F_UNLCK, None, None)]:
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, start, 0, 0)
    found = struct.unpack("hhqqi4x", fcntl.fcntl(b, fcntl.F_GETLK, asked))
    assert found[0] == kind and (at is None or found[2:4] == (at, length)), found
os.close(a); os.close(b)

# Who waits on the other node gets it when it is given back, by fcntl and by flock.
def waiter(lock):
    child = os.fork()
    if child == 0:
        lock(os.open("/mnt/two/wait", os.O_RDWR), fcntl.LOCK_EX); os._exit(0)
    return child
for lock in [fcntl.lockf, fcntl.flock]:
    a = os.open("wait", os.O_RDWR | os.O_CREAT)
    lock(a, fcntl.LOCK_EX)
    waits = waiter(lock)
    b = os.open("/mnt/two/wait", os.O_RDWR)
    try: lock(b, fcntl.LOCK_EX | fcntl.LOCK_NB); raise SystemExit("a lock of another node was ignored")
    except OSError: pass
    assert os.waitpid(waits, os.WNOHANG)[0] == 0
    os.close(a)
    assert os.waitpid(waits, 0)[1] == 0
    # Killed, it waits no more and holds nothing.
    a = os.open("wait", os.O_RDWR)
    lock(a, fcntl.LOCK_EX)
    waits = waiter(lock); os.kill(waits, 9); os.waitpid(waits, 0)
    lock(a, fcntl.LOCK_UN)
    lock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(a); os.close(b)

# A record is read on the other node at once, in both directions.
a, b = os.open("ping", os.O_RDWR | os.O_CREAT), os.open("/mnt/two/ping", os.O_RDWR)
for i in range(100):
    x, y = (a, b) if i % 2 else (b, a)
    record = bytes([i]) * (700 + i)
    os.pwrite(x, record, i * 500)
    assert os.pread(y, len(record), i * 500) == record, i
EOF

# Four writers of one file, interleaved unaligned records: two nodes through v9fs, and FUSE twice.
mounts="/mnt/one /mnt/two"
if insmod "/usr/lib/uml/modules/$(uname -r)/kernel/fs/fuse/fuse.ko" &&
    { [ -e /dev/fuse ] || mknod /dev/fuse c 10 229; } && "$covey" mount /mnt/fuse > /dev/null; then
    mounts="/mnt/one /mnt/two /mnt/fuse /mnt/fuse"
else
    fail "mount FUSE in the guest"
fi
head -c 2400600 /dev/urandom > /mnt/records # 600 records of 4001 bytes
cat > /mnt/writer.py << 'EOF'
import os, sys
wanted = open("/mnt/records", "rb").read()
file, first = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), int(sys.argv[2])
for i in range(first, 600, 4):
    assert os.pwrite(file, wanted[i * 4001:(i + 1) * 4001], i * 4001) == 4001
os.close(file)
EOF
writers=
for mount in $mounts; do
    python3 /mnt/writer.py "$mount/records" "$(echo "$writers" | wc -w)" &
    writers="$writers $!"
done
for writer in $writers; do wait "$writer" || fail "a writer"; done
if [ "$mounts" != "/mnt/one /mnt/two" ]; then
    for mount in $mounts; do
        cmp /mnt/records "$mount/records" || fail "records of four writers, read at $mount"
    done

    # Sixteen processes append to one log, through two nodes by v9fs and through two FUSE mounts.
    "$covey" mount /mnt/beside > /dev/null || fail "a second mount of FUSE"
    append() { for line in $(seq 50); do echo "writer $1 line $line end"; done; }
    : > /mnt/one/log
    writers=
    for writer in $(seq 4); do
        for mount in one two fuse beside; do
            (append "$mount$writer" >> "/mnt/$mount/log") &
            writers="$writers $!"
        done
    done
    for writer in $writers; do wait "$writer" || fail "an appender"; done
    for writer in $(seq 4); do
        for mount in one two fuse beside; do append "$mount$writer"; done
    done | sort > /mnt/wanted
    for mount in one two fuse beside; do
        sort "/mnt/$mount/log" | cmp - /mnt/wanted || fail "lines are lost or torn, read at $mount"
        grep "^writer ${mount}3 " /mnt/one/log | sort -c -n -k4 || fail "lines of $mount changed places"
    done
    "$covey" umount /mnt/beside > /dev/null || fail "umount of the second FUSE"
    "$covey" umount /mnt/fuse > /dev/null || fail "umount of FUSE"
fi

cd /
rm -rf /mnt/one/* || fail "remove everything"
umount /mnt/one /mnt/two || fail "umount"
for _ in $(seq 200); do
    left=$(find /mnt/c/store/io*/objects -type f ! -name identity | wc -l)
    [ "$left" != 0 ] || break
    sleep 0.1
done
[ "$left" = 0 ] || fail "$left objects are left"
"$covey" ping > /dev/null || fail "a server is gone"
"$covey" down --dir /mnt/c > /dev/null || fail "down"
[ $failed = 0 ] || tail -n 20 /mnt/c/log/*
exit $failed
