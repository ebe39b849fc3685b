#!/bin/bash
# The first process of a guest whose disk is all that survives it: brings the cluster up on that disk, lets
# what was written before the last loss be looked at, then writes until the power goes.
# Beside it lie: covey, program (the test's own), round (its number), before (the round to look at).
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/mnt
HERE=$(dirname "$0")
round=$(cat "$HERE/round")
echo alive > "$HERE/alive.$round"
mount -t proc proc /proc
mount -t sysfs sys /sys
ip link set lo up
mount -t ext4 /dev/ubda /mnt || { echo "cannot mount the disk"; exit 1; }
cd /mnt
"$HERE/covey" up -n 3 --dir /mnt/c > "$HERE/up.$round" 2>&1 || tail -n 20 /mnt/c/log/* >> "$HERE/up.$round"
export COVEY_CONFIG=/mnt/c/covey.toml
# Objects whose files the loss took back go when the metadata server meets their servers.
sleep 4
# So do moves that were under way: on, until here.
for io in io1 io2 io3; do "$HERE/covey" server open $io; done > /dev/null 2>&1
"$HERE/covey" server rebalance --stop > /dev/null 2>&1
if [ -e "$HERE/before" ]; then
    before=$(cat "$HERE/before")
    COVEY_LOOK_CONFIG=$COVEY_CONFIG COVEY_LOOK_LOGS=$HERE COVEY_LOOK_ROUND=$before \
        "$HERE/program" --exact power_loss::a_guest_looks --nocapture > "$HERE/look.$round" 2>&1
    "$HERE/covey" --json fsck --repair > "$HERE/found.$round" 2>&1
    "$HERE/covey" --json fsck > "$HERE/left.$round" 2>&1
    "$HERE/covey" rm -rf "/r$before"w{0..2} > /dev/null 2>&1
fi
echo ready > "$HERE/ready.$round"
sync -f "$HERE/ready.$round"
for writer in 0 1 2; do
    name=r${round}w$writer
    COVEY_WRITER_WAY=library-synced COVEY_WRITER_TARGET=$COVEY_CONFIG COVEY_WRITER_NAME=$name \
        COVEY_WRITER_LOG=$HERE/$name.log COVEY_WRITER_SEED=$(cat "$HERE/seed")$writer \
        "$HERE/program" --exact power_loss::a_writer_obeys --nocapture > /dev/null 2>&1 &
done
# Meanwhile one server after the other is emptied, and files and chains are moved about.
while :; do
    for io in io1 io2 io3; do
        "$HERE/covey" server drain $io
        "$HERE/covey" server open $io
        "$HERE/covey" server rebalance
    done
done > "$HERE/moves.$round" 2>&1
