# A database with its rollback journal in the directory $1, written by four processes at once.
set -eu
db=$1/base
sqlite3 "$db" 'create table t (who int, at int); create index i on t (who);'
for who in 1 2 3 4; do
    for at in 1 2 3 4 5; do
        echo "insert into t values ($who, $at);"
    done | sqlite3 -cmd '.timeout 30000' "$db" > /dev/null &
done
wait
sqlite3 "$db" 'select count(*), sum(who), sum(at) from t; pragma integrity_check;'
sqlite3 "$db" 'begin; delete from t where who = 2; rollback; select count(*) from t;'
sqlite3 "$db" 'delete from t where who < 3; vacuum; select count(*) from t; pragma integrity_check;'
ls "$1"
