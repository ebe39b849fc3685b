# What programs expect of a file system, through Linux's v9fs, on `covey export`.
# Runs as root in a guest whose /mnt is its own; $1 is the covey binary.
covey=$1
failed=0
fail() { echo "FAILED: $*"; failed=1; }

mkdir -p /mnt/served /mnt/one /mnt/two
chmod 777 /mnt/served
"$covey" export /mnt/served --listen 'unix!/mnt/socket' --listen 'tcp!127.0.0.1!5640' \
    > /mnt/log 2>&1 &
server=$!
for _ in $(seq 100); do grep -q tcp /mnt/log && break; sleep 0.1; done
common=version=9p2000.L,msize=1048576,cache=none,uname=root
mount -t 9p -o "trans=unix,access=client,$common" /mnt/socket /mnt/one || { cat /mnt/log; exit 1; }
mount -t 9p -o "trans=tcp,port=5640,access=user,$common" 127.0.0.1 /mnt/two || { cat /mnt/log; exit 1; }
cd /mnt/one || exit 1

# Names.
echo hello > a && [ "$(cat a)" = hello ] || fail "create and read"
mkdir -p d/e/f && mv a d/e/f/b && ln d/e/f/b hard && ln -s d/e/f/b soft || fail "make names"
[ "$(cat soft)" = hello ] || fail "a symbolic link leads on"
[ "$(stat -c %h hard)" = 2 ] || fail "hard links are counted"
rmdir d 2>/dev/null && fail "a directory with entries was removed"
mv d moved && [ "$(cat moved/e/f/b)" = hello ] || fail "rename a directory"
ln -s /etc/passwd escape
[ -L /mnt/served/escape ] || fail "a link is kept as it is"

# Sizes and content.
truncate -s 3 hard && [ "$(cat moved/e/f/b)" = hel ] || fail "truncate"
dd if=/dev/urandom of=/mnt/random bs=1M count=20 2> /dev/null
cp /mnt/random big && cmp /mnt/random /mnt/served/big && cmp /mnt/random /mnt/two/big || fail "big file"
path=deep
for _ in $(seq 60); do path=$path/dddddddddddddddddddddddddddddddddddddddddddddddddd; done
mkdir -p "$path" && echo x > "$path/y" && [ "$(cat "$path/y")" = x ] || fail "a path of 3 KB"
cp -a /usr/include/linux tree && diff -r /usr/include/linux tree || fail "copy a tree"

# Files without a name, times, many entries, locks, special files.
python3 - <<'EOF' || fail "python"
import fcntl, os, struct
f = os.open("gone", os.O_RDWR | os.O_CREAT, 0o600)
os.write(f, b"12345"); os.unlink("gone")
assert os.fstat(f).st_size == 5
os.ftruncate(f, 2)
assert os.fstat(f).st_size == 2 and os.pread(f, 10, 0) == b"12"
os.fchmod(f, 0o640)
assert os.fstat(f).st_mode & 0o777 == 0o640
os.fsync(f); os.close(f)

os.mkdir("many")
for i in range(2500): open(f"many/{i}", "w").close()
assert len(os.listdir("many")) == 2500
seen = 0
for entry in os.scandir("many"):
    os.unlink("many/" + entry.name); seen += 1
assert seen == 2500 and os.listdir("many") == []

a = os.open("lock", os.O_RDWR | os.O_CREAT)
fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
if os.fork() == 0:
    b = os.open("lock", os.O_RDWR)
    try: fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 7); os._exit(1)
    except OSError: pass
    fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
    found = struct.unpack("hhqqi4x", fcntl.fcntl(b, fcntl.F_GETLK, asked))
    os._exit(found != (fcntl.F_WRLCK, 0, 5, 10, os.getppid()))
assert os.wait()[1] == 0
# On another mount the kernel knows of no lock itself: it asks the server, without saying for which kind.
# By another process: the server knows owners by their numbers.
def asked_elsewhere(path, kind, start, length):
    answer, tell = os.pipe()
    if os.fork() == 0:
        asked = struct.pack("hhqqi4x", kind, 0, start, length, 0)
        os.write(tell, fcntl.fcntl(os.open(path, os.O_RDWR), fcntl.F_GETLK, asked))
        os._exit(0)
    assert os.wait()[1] == 0
    found = struct.unpack("hhqqi4x", os.read(answer, 100))
    os.close(answer); os.close(tell)
    return found[0], found[2], found[3]
for path in ["/mnt/two/lock", "/mnt/served/lock"]:
    assert asked_elsewhere(path, fcntl.F_WRLCK, 0, 0) == (fcntl.F_WRLCK, 5, 10), path
    assert asked_elsewhere(path, fcntl.F_RDLCK, 0, 0) == (fcntl.F_WRLCK, 5, 10), path
    assert asked_elsewhere(path, fcntl.F_WRLCK, 15, 0)[0] == fcntl.F_UNLCK, path
    assert asked_elsewhere(path, fcntl.F_WRLCK, 0, 5)[0] == fcntl.F_UNLCK, path
local = os.open("/mnt/served/lock", os.O_RDWR)
fcntl.lockf(local, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 40)
assert asked_elsewhere("/mnt/two/lock", fcntl.F_WRLCK, 30, 0) == (fcntl.F_RDLCK, 40, 1)
os.close(local)
fcntl.lockf(a, fcntl.LOCK_UN)
assert asked_elsewhere("/mnt/two/lock", fcntl.F_WRLCK, 0, 0)[0] == fcntl.F_UNLCK

os.utime("lock", (5, 6))
assert os.stat("lock").st_mtime == 6
os.mkfifo("fifo")
assert os.stat("fifo").st_mode & 0o170000 == 0o010000
o = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(o, b"a"); os.write(o, b"b"); os.close(o)
assert open("log").read() == "ab"
EOF

# Locks: who waits gets it when the holder gives it back, is killed or closes; who is interrupted gives up.
cat > /mnt/lock.py << 'EOF'
import fcntl, os, signal, sys, time
how, path, hold = sys.argv[1], sys.argv[2], float(sys.argv[3])
f = os.open(path, os.O_RDWR | os.O_CREAT)
(fcntl.flock if how == "flock" else fcntl.lockf)(f, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(hold)
EOF
for how in lockf flock; do
    rm -f /mnt/held # The shell in the background empties it late: what is left would say that the lock is held.
    python3 /mnt/lock.py $how /mnt/one/wait 600 > /mnt/held & holder=$!
    until grep -q held /mnt/held; do sleep 0.1; done
    : > /mnt/never
    python3 /mnt/lock.py $how /mnt/two/wait 0 > /mnt/got & waiter=$!
    python3 /mnt/lock.py $how /mnt/two/wait 0 > /mnt/never & interrupted=$!
    [ $how = lockf ] || { flock -w 2 /mnt/one/wait true && fail "flock -w got a lock that is held"; }
    kill -9 $interrupted
    kill -9 $holder
    wait $waiter || fail "$how: the waiter was refused"
    grep -q held /mnt/got || fail "$how: the waiter did not get it"
    grep -q held /mnt/never && fail "$how: a killed process got it"
    python3 /mnt/lock.py $how /mnt/one/wait 0 > /dev/null || fail "$how: it is left behind"
done
# A program on the server's own machine, both ways.
rm -f /mnt/held
python3 /mnt/lock.py lockf /mnt/served/wait 1 > /mnt/held & holder=$!
until grep -q held /mnt/held; do sleep 0.1; done
python3 /mnt/lock.py lockf /mnt/one/wait 0 | grep -q held || fail "a lock of this machine's never came free"
wait $holder

# Extended attributes, on a file system that has them.
insmod "/usr/lib/uml/modules/$(uname -r)/kernel/drivers/block/loop.ko"
[ -e /dev/loop0 ] || mknod /dev/loop0 b 7 0
mkdir -p /mnt/served/disk
truncate -s 16M /mnt/disk && mkfs.ext4 -q -b 4096 /mnt/disk &&
    losetup /dev/loop0 /mnt/disk && mount /dev/loop0 /mnt/served/disk || fail "make a disk"
chmod 777 /mnt/served/disk
cat > /mnt/xattr.py << 'EOF'
import errno, os
def refused(code, act):
    try: act(); raise SystemExit(f"not refused: {errno.errorcode[code]}")
    except OSError as error: assert error.errno == code, error
open("x", "w").close(); os.mkdir("xd")
for path in ["x", "xd"]:
    os.setxattr(path, "user.a", b"1", os.XATTR_CREATE)
    refused(errno.EEXIST, lambda: os.setxattr(path, "user.a", b"2", os.XATTR_CREATE))
    refused(errno.ENODATA, lambda: os.setxattr(path, "user.b", b"2", os.XATTR_REPLACE))
    os.setxattr(path, "user.a", b"two", os.XATTR_REPLACE)
    os.setxattr(path, "user.empty", b"")
    os.setxattr(path, "user.long", bytes(range(250)) * 12)
    assert sorted(name for name in os.listxattr(path) if name.startswith("user.")) == ["user.a", "user.empty", "user.long"]
    assert os.getxattr(path, "user.a") == b"two" and os.getxattr(path, "user.empty") == b""
    assert os.getxattr(path, "user.long") == bytes(range(250)) * 12
    assert os.getxattr("/mnt/served/disk/" + path, "user.a") == b"two"
    refused(errno.ENODATA, lambda: os.getxattr(path, "user.none"))
    os.removexattr(path, "user.a")
    refused(errno.ENODATA, lambda: os.removexattr(path, "user.a"))
    refused(errno.ENODATA, lambda: os.getxattr(path, "user.a"))
if os.geteuid() == 0:
    os.setxattr("x", "trusted.t", b"root's"); assert os.getxattr("x", "trusted.t") == b"root's"
else:
    refused(errno.EPERM, lambda: os.setxattr("x", "trusted.t", b"1"))
os.unlink("x"); os.rmdir("xd")
EOF
(cd /mnt/one/disk && python3 /mnt/xattr.py) || fail "extended attributes"
(cd /mnt/two/disk && setpriv --reuid 1234 --regid 1234 --clear-groups python3 /mnt/xattr.py) || fail "a user's attributes"
umount /mnt/served/disk || fail "umount of the disk"

# Users have their own rights and no more.
user() { setpriv --reuid 1234 --regid 1234 --clear-groups "$@"; }
user touch /mnt/two/mine && [ "$(stat -c %u /mnt/served/mine)" = 1234 ] || fail "a user's own file"
chmod 600 /mnt/served/big
user cat /mnt/two/big > /dev/null 2>&1 && fail "a user read a file that is not for it"
mknod null c 1 3 2> /dev/null && fail "a device was made"

cd /
umount /mnt/one /mnt/two || fail "umount"
kill -0 $server || { fail "the server is gone"; cat /mnt/log; }
kill $server && wait $server
[ -e /mnt/socket ] && fail "the socket file was left behind"
exit $failed
