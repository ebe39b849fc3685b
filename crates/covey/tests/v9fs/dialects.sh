# The older dialects, 9P2000.u and 9P2000, as Linux's v9fs speaks them: on `covey export` and on the /fs of a
# cluster. Runs as root in a guest whose /mnt is its own; $1 is the covey binary.
covey=$1
failed=0
fail() { echo "FAILED: $*"; failed=1; }

# What every dialect can do, in the directory $1; what was written must be there for others too, at $2.
common() {
    cd "$1" || { fail "cd $1"; return; }
    echo hello > a && [ "$(cat a)" = hello ] && [ "$(cat "$2/a")" = hello ] || fail "$1: create and read"
    mkdir -p d/e/f && echo x > d/e/f/x && [ "$(cat d/e/f/x)" = x ] || fail "$1: directories"
    mv a b && [ "$(cat b)" = hello ] && [ ! -e a ] || fail "$1: rename"
    rmdir d 2> /dev/null && fail "$1: a directory with entries was removed"
    rm -r d && [ ! -e "$2/d" ] || fail "$1: remove"
    mkdir b 2> /dev/null && fail "$1: a name was taken twice"
    cat missing 2> /mnt/words && fail "$1: a missing file was read"
    grep -q "No such file or directory" /mnt/words || { fail "$1: the error is"; cat /mnt/words; }
    truncate -s 3 b && [ "$(cat "$2/b")" = hel ] || fail "$1: truncate"
    chmod 600 b && [ "$(stat -c %a "$2/b")" = 600 ] || fail "$1: chmod"
    touch -d @1000 b && [ "$(stat -c %Y "$2/b")" = 1000 ] || fail "$1: set a time"
    echo more >> b && [ "$(cat "$2/b")" = helmore ] || fail "$1: append"
    dd if=/dev/urandom of=/mnt/random bs=64k count=40 2> /dev/null
    cp /mnt/random big && cmp /mnt/random big && cmp /mnt/random "$2/big" || fail "$1: a big file"
    mkdir many && (cd many && seq 300 | xargs touch) || fail "$1: many files"
    [ "$(ls many | wc -l)" = 300 ] && [ "$(ls "$2/many" | wc -l)" = 300 ] || fail "$1: list many"
    cp -r /usr/include/linux/netfilter tree && diff -r /usr/include/linux/netfilter tree || fail "$1: a tree"
    python3 - << 'EOF' || fail "$1: python"
import os
f = os.open("gone", os.O_RDWR | os.O_CREAT, 0o600)
os.write(f, b"12345"); os.unlink("gone")
os.lseek(f, 0, 0)
assert os.read(f, 10) == b"12345"
os.close(f)
for entry in os.scandir("many"): os.unlink("many/" + entry.name)
assert os.listdir("many") == []
try: os.open("new/x", os.O_CREAT | os.O_WRONLY); raise SystemExit("a file without a directory")
except FileNotFoundError: pass
try: os.open("b", os.O_CREAT | os.O_EXCL | os.O_WRONLY); raise SystemExit("not exclusive")
except FileExistsError: pass
EOF
    cd / || exit 1
}

# What 9P2000.u can do beside that.
unix() {
    cd "$1" || { fail "cd $1"; return; }
    ln -s b soft && [ "$(readlink "$2/soft")" = b ] && cmp soft b || fail "$1: a symbolic link"
    ln b hard && [ "$(stat -c %h "$2/b")" = 2 ] || fail "$1: a hard link"
    mkfifo pipe && [ -p pipe ] && [ -p "$2/pipe" ] || fail "$1: a FIFO"
    echo other > c && mv -f c b && [ "$(cat "$2/b")" = other ] || fail "$1: rename over a file"
    chown 1234:2345 b && [ "$(stat -c %u:%g "$2/b")" = 1234:2345 ] || fail "$1: chown"
    [ "$(stat -c %u:%g b)" = 1234:2345 ] || fail "$1: owners"
    chmod 4711 b && [ "$(stat -c %a "$2/b")" = 4711 ] || fail "$1: set-user-id"
    cd / || exit 1
}

plain() {
    ln -s b "$1/soft" 2> /dev/null && fail "$1: 9P2000 made a symbolic link"
    [ "$(cat "$1/b")" = helmore ] || fail "$1: still there"
}

mkdir -p /mnt/served /mnt/u /mnt/p /mnt/l
chmod 777 /mnt/served
"$covey" export /mnt/served --listen 'unix!/mnt/socket' > /mnt/log 2>&1 &
server=$!
for _ in $(seq 100); do [ -S /mnt/socket ] && break; sleep 0.1; done
mount -t 9p -o trans=unix,version=9p2000.u,msize=65536,cache=none,uname=root /mnt/socket /mnt/u ||
    { cat /mnt/log; exit 1; }
common /mnt/u /mnt/served
unix /mnt/u /mnt/served
mknod /mnt/u/null c 1 3 2> /dev/null && fail "a device was made"
# A user has its own rights and no more.
user() { setpriv --reuid 1234 --regid 1234 --clear-groups "$@"; }
user touch /mnt/u/mine && [ "$(stat -c %u /mnt/served/mine)" = 1234 ] || fail "a user's own file"
chmod 600 /mnt/served/big
user cat /mnt/u/big > /dev/null 2>&1 && fail "a user read a file that is not for it"
umount /mnt/u || fail "umount .u"
rm -rf /mnt/served/*
mount -t 9p -o trans=unix,version=9p2000,msize=65536,cache=none,uname=root /mnt/socket /mnt/p ||
    { cat /mnt/log; exit 1; }
common /mnt/p /mnt/served
plain /mnt/p
umount /mnt/p || fail "umount 9P2000"
for dialect in 9P2000 9P2000.u 9P2000.L 9P2000.L.covey2; do
    "$covey" 9p --dialect $dialect ls -l 'unix!/mnt/socket' / > /mnt/words 2>&1 || fail "9p in $dialect"
    grep -q ' b$' /mnt/words || { fail "9p ls in $dialect"; cat /mnt/words; }
    "$covey" 9p --dialect $dialect cat 'unix!/mnt/socket' /big | cmp - /mnt/random || fail "9p cat in $dialect"
    "$covey" 9p --dialect $dialect stat 'unix!/mnt/socket' /b | grep -q "Server: $dialect," || fail "$dialect spoken"
    echo new | "$covey" 9p --dialect $dialect write --create 'unix!/mnt/socket' /new || fail "9p write in $dialect"
    [ "$(cat /mnt/served/new)" = new ] || fail "written in $dialect"
    "$covey" 9p --dialect $dialect rm 'unix!/mnt/socket' /new && [ ! -e /mnt/served/new ] || fail "rm in $dialect"
done
kill -0 $server || { fail "the export is gone"; cat /mnt/log; }
kill $server && wait $server

"$covey" up -n 2 --dir /mnt/c > /mnt/log 2>&1 || { cat /mnt/log /mnt/c/log/*; exit 1; }
export COVEY_CONFIG=/mnt/c/covey.toml
mount -t 9p -o trans=unix,version=9p2000.L,msize=65536,cache=none,uname=root,aname=/fs /mnt/c/run/io1.sock /mnt/l ||
    { cat /mnt/c/log/*; exit 1; }
mount -t 9p -o trans=unix,version=9p2000.u,msize=65536,cache=none,uname=root,aname=/fs /mnt/c/run/io2.sock /mnt/u ||
    { cat /mnt/c/log/*; exit 1; }
common /mnt/u /mnt/l
unix /mnt/u /mnt/l
umount /mnt/u || fail "umount .u of a cluster"
rm -rf /mnt/l/* || fail "remove everything"
mount -t 9p -o trans=unix,version=9p2000,msize=65536,cache=none,uname=root,aname=/fs /mnt/c/run/io2.sock /mnt/p ||
    { cat /mnt/c/log/*; exit 1; }
common /mnt/p /mnt/l
plain /mnt/p
umount /mnt/p /mnt/l || fail "umount 9P2000 of a cluster"
# The whole tree of a node, and the parts beside /fs.
"$covey" 9p --dialect 9P2000 ls 'unix!/mnt/c/run/io1.sock' / | grep -q '^fs$' || fail "a node's tree in 9P2000"
"$covey" 9p --dialect 9P2000.u cat 'unix!/mnt/c/run/io1.sock' /stats | grep -q node || fail "/stats in 9P2000.u"
"$covey" 9p --dialect 9P2000 ls 'unix!/mnt/c/run/io1.sock' /data > /dev/null || fail "/data in 9P2000"
"$covey" ping > /dev/null || fail "a server is gone"
"$covey" down --dir /mnt/c > /dev/null || fail "down"
[ $failed = 0 ] || tail -n 20 /mnt/c/log/*
exit $failed
