# The real initiator of Linux while the node that serves a striped volume is killed, and another takes over. $1 is the covey
# binary.
covey=$1
die() { echo "FAILED: $*"; cat /mnt/c/log/* 2> /dev/null | tail -n 30; exit 1; }

"$covey" up -n 2 --dir /mnt/c > /mnt/log 2>&1 || { cat /mnt/log; die "covey up"; }
"$covey" down --dir /mnt/c > /dev/null || die down
sed -i 's/^nodes = 3/nodes = 5/' /mnt/c/covey.toml
for name in gw1 gw2; do
    mkdir -p /mnt/c/store/$name
    printf '\n[[node]]\nname = "%s"\nroles = ["launch"]\nlisten = ["unix!/mnt/c/run/%s.sock"]\nstore = "/mnt/c/store/%s"\n' \
        $name $name $name >> /mnt/c/covey.toml
done
"$covey" up --dir /mnt/c > /mnt/log 2>&1 || { cat /mnt/log; die "covey up"; }
export COVEY_CONFIG=/mnt/c/covey.toml
"$covey" volume create disk --size 64M --node gw1 || die create
"$covey" volume export disk --listen 127.0.0.1:3261 > /mnt/url || die export
"$covey" volume export disk --listen 127.0.0.1:3262 --node gw2 > /dev/null || die "export elsewhere"
iqn=$(cut -d/ -f4 < /mnt/url)

# Discovery names both; a login at the one that stands by leads to the one that serves.
iscsiadm -m discovery -t sendtargets -p 127.0.0.1:3262 > /mnt/found || die discovery
grep -q 3261 /mnt/found && grep -q 3262 /mnt/found || die "discovery found: $(cat /mnt/found)"
record() { iscsiadm -m node -T "$iqn" -p 127.0.0.1:3262 "$@"; }
record -o update -n node.session.timeo.replacement_timeout -v 120 > /dev/null || die timeout
record --login || die login
iscsiadm -m session -P 1 | grep -q "Current Portal: 127.0.0.1:3261" || die "not led on: $(iscsiadm -m session -P 1)"
for _ in $(seq 100); do
    device=/dev/$(iscsiadm -m session -P 3 2> /dev/null | sed -n 's/.*Attached scsi disk \(sd[a-z]*\).*/\1/p')
    [ ! -b "$device" ] || break
    sleep 0.1
done
mkfs.ext4 -q "$device" || die mkfs
mkdir -p /mnt/fs
mount "$device" /mnt/fs || die mount
kill_it() {
    sleep 2
    read -r pid _ < /mnt/c/run/gw1.pid
    kill -9 "$pid"
    touch /mnt/killed
}
kill_it &
turn=0
after=0
while [ $after -lt 5 ]; do
    turn=$((turn + 1))
    [ ! -e /mnt/killed ] || after=$((after + 1))
    dd if=/dev/urandom of=/mnt/one bs=64k count=8 2> /dev/null
    dd if=/mnt/one of="/mnt/fs/turn$((turn % 20))" bs=64k conv=fsync 2> /mnt/dd || { cat /mnt/dd; die "a write in turn $turn"; }
    (cd /mnt && sha256sum one | sed "s|one|fs/turn$((turn % 20))|") > "/mnt/synced$((turn % 20))"
done
iscsiadm -m session -P 1 | grep -q "Current Portal: 127.0.0.1:3262" || die "it is not at the other node"
echo 3 > /proc/sys/vm/drop_caches
(cd /mnt && cat synced* | sha256sum -c --quiet) || die "what was synced is not there"
# The first node, back again, stands by.
"$covey" up --dir /mnt/c > /mnt/log 2>&1 || { cat /mnt/log; die "covey up"; }
for _ in $(seq 100); do
    "$covey" --json volume ls > /mnt/ls
    ! grep -A20 '"gw1"' /mnt/ls | grep -q '"stands_by": *true' || break
    sleep 0.2
done
grep -q '"stands_by": *true' /mnt/ls || die "gw1 does not stand by: $(cat /mnt/ls)"
umount /mnt/fs || die umount
fsck.ext4 -fn "$device" > /mnt/fsck 2>&1 || { cat /mnt/fsck; die fsck; }
record --logout > /dev/null || die logout
"$covey" down --dir /mnt/c > /dev/null || die down
