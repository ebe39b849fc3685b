# One of two guests that use a volume together; which one the directory's name says. They wait for each other by files.
work=$(dirname "$HERE")
me=$(basename "$HERE")
die() { echo "FAILED in guest $me: $*"; touch "$work/failed"; exit 1; }
wait_for() {
    for _ in $(seq 600); do
        [ ! -e "$work/failed" ] || die "the other one failed"
        [ ! -e "$work/$1" ] || return 0
        sleep 0.2
    done
    die "$1 did not come"
}
portal=10.215.9$me.1:3260
iscsiadm -m discovery -t sendtargets -p "$portal" > /mnt/found || die discovery
grep -q "$portal" /mnt/found || die "discovery found $(cat /mnt/found)"
iscsiadm -m node -p "$portal" --login > /dev/null || die login
for _ in $(seq 100); do
    name=$(iscsiadm -m session -P 3 2> /dev/null | sed -n 's/.*Attached scsi disk \(sd[a-z]*\).*/\1/p')
    [ -z "$name" ] || [ ! -b "/dev/$name" ] || break
    sleep 0.1
done
device=/dev/$name
[ -b "$device" ] || die "no disk"
put() { dd if=/dev/zero bs=4k count=1 oflag=direct seek="$1" of="$device" 2> /mnt/dd; }
see() { dd if="$device" bs=4k count=1 iflag=direct skip="$1" 2> /mnt/dd | tr -d '\0' | head -c 20; }
persist() { sg_persist --no-inquiry "$@" "$device" > /mnt/persist 2>&1 || sg_persist --no-inquiry "$@" "$device" > /mnt/persist 2>&1; }
if [ "$me" = 1 ]; then
    # Both write, each its own half, and see the other's.
    echo "of guest 1" | dd of="$device" bs=4k count=1 conv=sync oflag=direct seek=1 2> /dev/null || die "write"
    touch "$work/one-wrote"
    wait_for two-wrote
    [ "$(see 2)" = "of guest 2" ] || die "it sees: $(see 2)"
    persist --out --register --param-sark=0x1 || die "register: $(cat /mnt/persist)"
    persist --out --reserve --param-rk=0x1 --prout-type=1 || die "reserve: $(cat /mnt/persist)"
    put 3 || die "the holder may not write: $(cat /mnt/dd)"
    touch "$work/reserved"
    wait_for preempted
    # The other one has it now.
    put 3 && put 3 && die "it writes though the other one has reserved the disk"
    [ "$(see 2)" = "of guest 2" ] || die "it may not read"
    touch "$work/done"
else
    wait_for one-wrote
    [ "$(see 1)" = "of guest 1" ] || die "it sees: $(see 1)"
    echo "of guest 2" | dd of="$device" bs=4k count=1 conv=sync oflag=direct seek=2 2> /dev/null || die "write"
    touch "$work/two-wrote"
    wait_for reserved
    put 4 && die "it writes though the other one has reserved the disk"
    [ "$(see 1)" = "of guest 1" ] || die "it may not read"
    persist --out --register --param-sark=0x2 || die "register: $(cat /mnt/persist)"
    persist --in --read-keys && grep -q 0x1 /mnt/persist && grep -q 0x2 /mnt/persist || die "keys: $(cat /mnt/persist)"
    persist --out --preempt --param-rk=0x2 --param-sark=0x1 --prout-type=1 || die "preempt: $(cat /mnt/persist)"
    put 4 || put 4 || die "the holder may not write: $(cat /mnt/dd)"
    touch "$work/preempted"
    wait_for done
fi
iscsiadm -m node -p "$portal" --logout > /dev/null || die logout
