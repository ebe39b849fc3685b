#!/bin/bash
# The guest's first process: loads 9P, runs the script beside it, leaves its status there, halts.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
HERE=$(dirname "$0")
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs none /mnt
ip link set lo up
for module in fs/netfs/netfs fs/fscache/fscache net/9p/9pnet net/9p/9pnet_fd fs/9p/9p; do
    insmod "/usr/lib/uml/modules/$(uname -r)/kernel/$module.ko"
done
cd /mnt
bash "$HERE/script" "$HERE/covey" 2>&1
echo $? > "$HERE/status"
sync
echo 1 > /proc/sys/kernel/sysrq
echo o > /proc/sysrq-trigger
sleep 10
