#!/bin/bash
# The guest's first process: loads the SCSI disk and iSCSI modules, starts iscsid, runs the script beside it, leaves its status
# there, halts.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
HERE=$(dirname "$0")
mount -t proc proc /proc
mount -t sysfs sys /sys
[ -e /dev/null ] || mount -t devtmpfs dev /dev
mount -t tmpfs none /run && mkdir -p /run/lock
# The machine's own files stay as they are.
mount -t tmpfs none /mnt
cp -a /etc /mnt/etc && mount --bind /mnt/etc /etc
echo "InitiatorName=$(cat "$HERE/name" 2> /dev/null || echo iqn.2026-01.org.example:guest)" > /etc/iscsi/initiatorname.iscsi
rm -rf /etc/iscsi/nodes /etc/iscsi/send_targets
ip link set lo up
[ ! -e "$HERE/address" ] || { ip address add "$(cat "$HERE/address")" dev vec0 && ip link set vec0 up; }
modules=/usr/lib/uml/modules/$(uname -r)
load() {
    local module
    module=$(grep -o "^[^:]*/$1\.ko" "$modules/modules.dep") || return 0
    ! grep -q "^${1//-/_} " /proc/modules || return 0
    local need
    for need in $(sed -n "s|^$module: *||p" "$modules/modules.dep"); do load "$(basename "$need" .ko)"; done
    insmod "$modules/$module" 2> /dev/null
}
for module in sd_mod iscsi_tcp; do load "$module"; done
cd /mnt
iscsid -f > /mnt/iscsid.log 2>&1 &
for _ in $(seq 50); do iscsiadm -m session > /dev/null 2>&1; [ $? = 21 ] && break; sleep 0.1; done
export HERE
bash "$HERE/script" "$HERE/covey" 2>&1
status=$?
[ $status = 0 ] || tail -n 30 /mnt/iscsid.log
echo $status > "$HERE/status"
sync
echo 1 > /proc/sys/kernel/sysrq
echo o > /proc/sysrq-trigger
sleep 10
