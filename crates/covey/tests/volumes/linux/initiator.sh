# The real initiator of Linux and a target of Covey's, both in this guest. $1 is the covey binary.
covey=$1
die() { echo "FAILED: $*"; cat /mnt/c/log/* 2> /dev/null | tail -n 20; exit 1; }
portal=127.0.0.1:3261
other=127.0.0.1:3262

"$covey" up -n 2 --dir /mnt/c > /mnt/log 2>&1 || { cat /mnt/log; die "covey up"; }
export COVEY_CONFIG=/mnt/c/covey.toml
"$covey" volume create disk --size 96M --file /mnt/disk.img --node io1 || die create
echo not-very-secret > /mnt/secret
echo the-other-secret > /mnt/mutual
"$covey" volume acl disk --chap alice --secret-file /mnt/secret || die acl
"$covey" volume acl disk --mutual disk --secret-file /mnt/mutual || die acl
"$covey" volume export disk --listen $portal > /mnt/url || die export
"$covey" volume export disk --listen $other > /dev/null || die export
iqn=$(cut -d/ -f4 < /mnt/url)

# Discovery, at either address.
found=$(iscsiadm -m discovery -t sendtargets -p $portal) || die discovery
[ "$found" = "$portal,1 $iqn" ] || die "discovery found: $found"
record() { iscsiadm -m node -T "$iqn" -p $portal "$@"; }
set_to() { record -o update -n "$1" -v "$2" > /dev/null || die "set $1"; }
set_to node.startup manual
set_to node.session.timeo.replacement_timeout 60

# Without a proof, with a wrong one, with the right one, and with the target's.
login() { record --login > /mnt/login 2>&1; }
login && die "it got in without CHAP"
set_to node.session.auth.authmethod CHAP
set_to node.session.auth.username alice
set_to node.session.auth.password wrong-wrong-wrong
login && die "it got in with a wrong secret"
set_to node.session.auth.password not-very-secret
set_to node.session.auth.username_in disk
set_to node.session.auth.password_in not-the-target
login && die "the target's proof was not looked at"
set_to node.session.auth.password_in the-other-secret
set_to node.conn[0].iscsi.HeaderDigest CRC32C
set_to node.conn[0].iscsi.DataDigest CRC32C
login || { cat /mnt/login; die "login with mutual CHAP and digests"; }
iscsiadm -m session -P 3 > /mnt/session
grep -q "HeaderDigest: CRC32C" /mnt/session && grep -q "DataDigest: CRC32C" /mnt/session || die "no digests: $(cat /mnt/session)"

disk() {
    local device
    for _ in $(seq 100); do
        device=$(iscsiadm -m session -P 3 2> /dev/null | sed -n 's/.*Attached scsi disk \(sd[a-z]*\).*/\1/p')
        [ -z "$device" ] || [ ! -b "/dev/$device" ] || { echo "/dev/$device"; return; }
        sleep 0.1
    done
    die "no disk: $(iscsiadm -m session -P 3)"
}
device=$(disk)
[ "$(blockdev --getsize64 "$device")" = $((96 << 20)) ] || die "its size is $(blockdev --getsize64 "$device")"
mkfs.ext4 -q "$device" || die mkfs
mkdir -p /mnt/fs
mount "$device" /mnt/fs || die mount
head -c 20000000 /dev/urandom > /mnt/fs/big
for number in $(seq 200); do echo "file $number" > "/mnt/fs/f$number"; done
sync
used() { du -k /mnt/disk.img | cut -f1; }
rm /mnt/fs/f1??
dd if=/dev/zero of=/mnt/fs/gone bs=1M count=30 conv=fsync 2> /dev/null
before=$(used)
rm /mnt/fs/gone && sync && fstrim /mnt/fs || die fstrim
[ $((before - $(used))) -gt 20000 ] || die "fstrim gave nothing back: $before KiB, then $(used)"
(cd /mnt/fs && sha256sum big f?) > /mnt/sums
umount /mnt/fs || die umount
record --logout > /dev/null || die logout
login || die "login again"
device=$(disk)
fsck.ext4 -fn "$device" > /mnt/fsck 2>&1 || { cat /mnt/fsck; die fsck; }
mount "$device" /mnt/fs && (cd /mnt/fs && sha256sum -c --quiet /mnt/sums) || die "the files have changed"

# A larger volume is seen without a login.
"$covey" volume resize disk 128M || die resize
for _ in $(seq 100); do
    dd if="$device" of=/dev/null bs=4k count=1 iflag=direct 2> /dev/null
    echo 1 > "/sys/block/${device#/dev/}/device/rescan"
    [ "$(blockdev --getsize64 "$device")" != $((128 << 20)) ] || break
    sleep 0.1
done
[ "$(blockdev --getsize64 "$device")" = $((128 << 20)) ] || die "the new size is not seen"
resize2fs "$device" > /mnt/resize 2>&1 || { cat /mnt/resize; die resize2fs; }
[ "$(df -k --output=size /mnt/fs | tail -1)" -gt 100000 ] || die "the file system has not grown"

# The target is killed again and again while files are written and synced: nothing that was synced is missing.
killer() {
    for _ in 1 2 3; do
        sleep 1.5
        read -r pid _ < /mnt/c/run/io1.pid
        kill -9 "$pid"
        while [ -d "/proc/$pid" ] && ! grep -q ') Z ' "/proc/$pid/stat"; do sleep 0.05; done
        "$covey" up --dir /mnt/c > /mnt/log 2>&1 || echo "FAILED: covey up" > /mnt/killed
    done
    echo "${done:-done}" >> /mnt/killed
}
: > /mnt/killed
killer &
turn=0
while ! grep -q . /mnt/killed; do
    turn=$((turn + 1))
    dd if=/dev/urandom of=/mnt/one bs=64k count=16 2> /dev/null
    # Names come again: their blocks are written over.
    dd if=/mnt/one of="/mnt/fs/turn$((turn % 20))" bs=64k conv=fsync 2> /mnt/dd || { cat /mnt/dd; die "a write in turn $turn"; }
    (cd /mnt && sha256sum one | sed "s|one|fs/turn$((turn % 20))|") > "/mnt/synced$((turn % 20))"
done
! grep -q FAILED /mnt/killed || { cat /mnt/log; die "the target did not come back"; }
echo "$turn turns"
[ "$turn" -gt 3 ] || die "only $turn turns"
echo 3 > /proc/sys/vm/drop_caches
(cd /mnt && cat synced* | sha256sum -c --quiet) || die "what was synced is not there"
umount /mnt/fs || die umount
fsck.ext4 -fn "$device" > /mnt/fsck 2>&1 || { cat /mnt/fsck; die "fsck after the kills"; }
record --logout > /dev/null || die logout
"$covey" volume stats disk > /dev/null || die stats
"$covey" down --dir /mnt/c > /dev/null || die down
