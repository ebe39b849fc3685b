# Programs on a node, run by nothing but files of a v9fs mount: cat, cp, echo, tail. Runs as root in a guest whose /mnt
# is its own; $1 is the covey binary.
covey=$1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
# The machine has other nodes of these names, whose locks on /tmp are not seen from here.
export TMPDIR=/mnt

"$covey" up -n 2 --dir /mnt/c > /mnt/log 2>&1 || { cat /mnt/log /mnt/c/log/*; exit 1; }
mkdir -p /mnt/one
common=version=9p2000.L,msize=1048576,cache=none,access=user,uname=root,aname=/
mount -t 9p -o "trans=unix,$common" /mnt/c/run/io1.sock /mnt/one || { cat /mnt/c/log/*; exit 1; }

# holds XCPU: makes a session there, and keeps it; $session is its directory.
holds() {
    : > /mnt/number
    tail -f "$1/clone" > /mnt/number &
    holder=$!
    for _ in $(seq 100); do [ -s /mnt/number ] && break; sleep 0.1; done
    session=$1/$(cat /mnt/number)
}

# A program of this node, and one of another by this node's /n.
for xcpu in /mnt/one/xcpu /mnt/one/n/io2/xcpu; do
    [ "$(cat $xcpu/arch)" = "/Linux/$(uname -m)" ] || fail "$xcpu/arch: $(cat $xcpu/arch)"
    holds "$xcpu"
    cp /bin/sh "$session/exec" || fail "copy the program"
    echo "sh -c 'read a; echo got \$a, \$GREETING; echo oops >&2; cat word; exit 3'" > "$session/argv"
    echo "'GREETING=two words'" > "$session/env"
    echo quail > "$session/fs/word"
    echo exec > "$session/ctl" || fail "exec: $(cat "$session/ctl")"
    echo hello > "$session/stdin"
    out=$(cat "$session/stdout")
    [ "$out" = "got hello, two words
quail" ] || fail "stdout: $out"
    [ "$(cat "$session/stderr")" = oops ] || fail "stderr"
    [ "$(cat "$session/wait")" = 768 ] || fail "wait: $(cat "$session/wait")"
    # The reason of a refusal is read where the number says nothing.
    (echo jump > "$session/ctl") 2> /dev/null && fail "a wrong command was taken"
    grep -q 'last error: .*jump' "$session/ctl" || fail "the last error: $(cat "$session/ctl")"
    kill $holder; wait $holder 2> /dev/null
    for _ in $(seq 100); do [ -e "$session" ] || break; sleep 0.1; done
    [ -e "$session" ] && fail "$session is still there"
done

# Who lets go of a session that runs ends its program, and what came of it.
holds /mnt/one/xcpu
echo "sh -c 'sleep 4711 & sleep 4711'" > "$session/argv"
echo "exec /bin/sh" > "$session/ctl"
for _ in $(seq 100); do [ "$(pgrep -fc 'sleep 4711')" -ge 2 ] && break; sleep 0.1; done
# A read that waits is given up when its reader is interrupted.
cat "$session/stdout" & reader=$!
sleep 0.5; kill $reader; wait $reader 2> /dev/null
kill $holder; wait $holder 2> /dev/null
for _ in $(seq 100); do pgrep -f 'sleep 4711' > /dev/null || break; sleep 0.1; done
pgrep -f 'sleep 4711' > /dev/null && fail "its processes are left: $(pgrep -fa 'sleep 4711')"

# Another user's program runs as that user, whose session is nobody else's.
cat > /mnt/user.sh << 'EOS'
tail -f /mnt/one/xcpu/clone > "$1" & holder=$!
for _ in $(seq 100); do [ -s "$1" ] && break; sleep 0.1; done
session=/mnt/one/xcpu/$(cat "$1")
echo "id -u" > $session/argv
echo "exec /usr/bin/id" > $session/ctl
cat $session/stdout
touch "$1.go"
for _ in $(seq 100); do [ -e "$1.seen" ] && break; sleep 0.1; done
kill $holder
EOS
mkdir -m 777 /mnt/users
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
as 1234 sh /mnt/user.sh /mnt/users/a > /mnt/users.out & user=$!
for _ in $(seq 100); do [ -e /mnt/users/a.go ] && break; sleep 0.1; done
[ "$(cat /mnt/users.out)" = 1234 ] || fail "it ran as $(cat /mnt/users.out)"
other=/mnt/one/xcpu/$(cat /mnt/users/a)
as 4321 cat "$other/argv" 2> /dev/null && fail "another user's session was read"
as 4321 sh -c "echo wipe > $other/ctl" 2> /dev/null && fail "another user's session was wiped"
touch /mnt/users/a.seen; wait $user

cd /
umount /mnt/one || fail "umount"
"$covey" down --dir /mnt/c > /dev/null || fail "down"
[ $failed = 0 ] || tail -n 20 /mnt/c/log/*
exit $failed
