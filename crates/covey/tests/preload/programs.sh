# Ordinary programs in the directory $1; what they say must be the same wherever that directory is.
set -eu
cd "$1"
printf 'one\ntwo\nthree\n' > lines
echo four >> lines
sort lines | tr '\n' ' '; echo
wc -l < lines
head -c 300000 /dev/zero | tr '\0' x > large
sha256sum large lines
cp large copy && cmp large copy
cp -a lines kept && stat -c '%n %s %a' kept
dd if=large of=blocks bs=7000 2>/dev/null && cmp large blocks
dd if=lines of=blocks bs=3 seek=10 conv=notrunc 2>/dev/null
sha256sum blocks
mkdir -p tree/a/b
mv copy tree/a/b/moved
ln -s a/b/moved tree/link
ln lines tree/hard
chmod 600 tree/hard
ls -R tree
ls -l tree | sed 1d | awk '{ print $1, $2, /^d/ ? "" : $5, $NF }'
find . -type f | sort
tar cf tree.tar tree
mkdir out && tar xf tree.tar -C out
diff -r tree out/tree && echo same
grep -c t lines
sed -i s/two/zwei/ lines
cat lines
(echo begin; cat lines; echo end) > all; tail -1 all
while read -r line; do echo "got $line"; done < lines
touch -d '2001-02-03 04:05:06 UTC' old && TZ=UTC stat -c '%n %y' old
test -w old && test ! -x old && echo judged
if command -v rsync > /dev/null; then
    mkdir mirror
    rsync -a --exclude mirror ./ mirror/
    find mirror | sort
    # The second time nothing is left to do.
    rsync -ai --exclude mirror ./ mirror/ | wc -l
    rm -r mirror
fi
cd tree/a && ls ../.. | wc -l && cat ../../lines | head -1
cd ../.. && rm -r tree out
find . | sort
