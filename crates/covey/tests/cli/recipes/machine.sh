# A machine of a recipe's own: private namespaces, with empty directories where Covey and its users keep things. $1 is a file
# of lines "FILE PLACE": what is installed here. $2 is a directory of programs that stand for others. The script is on stdin.
set -eu
mount -t tmpfs none /media
mkdir /media/bin /media/home /media/local
cp "$1" /media/files
cp "$2"/* /media/bin
mount --bind /usr/local /media/local
mount -t tmpfs none /usr/local
for dir in bin sbin lib include share; do
    mkdir -p "/usr/local/$dir"
    for entry in "/media/local/$dir"/*; do
        [ ! -e "$entry" ] || ln -s "$entry" "/usr/local/$dir/"
    done
done
while read -r file place; do
    mkdir -p "${place%/*}"
    [ -d "$file" ] && mkdir "$place" || touch "$place"
    mount --bind "$file" "$place"
done </media/files
cp -a /etc /media/etc
mount --bind /media/etc /etc
for dir in /tmp /run /srv /mnt /home /dev/shm /var/lib /var/log /var/tmp; do
    [ ! -d "$dir" ] || mount -t tmpfs -o mode=1777 none "$dir"
done
chmod 755 /run /srv /mnt /home /var/lib /var/log
ip link set lo up
# A card, which needs no other machine: MPI libraries do not take loopback for a network.
card=lo
if ip link add net0 type veth peer name net1 2>/dev/null; then
    card=net0
    ip link set net0 up
    ip link set net1 up
fi
export card
hostname node1
echo 127.0.0.1 localhost >/etc/hosts
rm -rf /etc/covey
export HOME=/media/home USER=me PATH="/media/bin:/usr/local/bin:$PATH" LC_ALL=C COLUMNS=80
unset COVEY_CONFIG COVEY_JOB XDG_DATA_HOME XDG_CONFIG_HOME XDG_STATE_HOME XDG_RUNTIME_DIR TMPDIR
unset SLURM_JOB_ID SLURM_JOB_NODELIST SLURMD_NODENAME LD_PRELOAD
cd "$HOME"
cat >/media/script
exec bash /media/script </dev/null 2>&1
