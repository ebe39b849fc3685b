# Two kernels and one volume: this runs on the machine, in a network namespace of its own, with the target and a cable to each
# guest. two.sh WORK COVEY: WORK has a directory for each guest, `1` and `2`.
work=$1
covey=$2
die() { echo "FAILED: $*"; cat "$work"/c/log/* 2> /dev/null | tail -n 20; exit 1; }
ip link set lo up
for guest in 1 2; do
    ip tuntap add "tap$guest" mode tap && ip address add "10.215.9$guest.1/30" dev "tap$guest" && ip link set "tap$guest" up ||
        die "no cable to guest $guest"
    echo "10.215.9$guest.2/30" > "$work/$guest/address"
    echo "iqn.2026-01.org.example:guest$guest" > "$work/$guest/name"
done
trap '"$covey" down --dir "$work/c" > /dev/null 2>&1' EXIT
"$covey" up -n 1 --dir "$work/c" > "$work/log" 2>&1 || { cat "$work/log"; die "covey up"; }
export COVEY_CONFIG=$work/c/covey.toml
"$covey" volume create disk --size 32M --file "$work/disk.img" --node io1 || die create
"$covey" volume acl disk --allow iqn.2026-01.org.example:guest1 --allow iqn.2026-01.org.example:guest2 --trust-initiator-names || die acl
"$covey" volume export disk --listen 0.0.0.0:3260 > "$work/url" || die export
guests=
for guest in 1 2; do
    timeout -k 5 240 linux.uml mem=256M "umid=guest$guest" "uml_dir=$work/$guest/" rootfstype=hostfs rootflags=/ rw \
        "init=$work/$guest/init" "vec0:transport=tap,ifname=tap$guest,depth=128,gro=1" con=null con0=fd:0,fd:1 quiet loglevel=1 \
        < /dev/null > "$work/$guest/said" 2>&1 &
    guests="$guests $!"
done
# shellcheck disable=SC2086
wait $guests
for guest in 1 2; do
    [ "$(cat "$work/$guest/status" 2> /dev/null)" = 0 ] || { cat "$work"/?/said; die "guest $guest"; }
done
