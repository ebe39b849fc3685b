//! The bytes of every message, written down once from the layouts of the specification. Fuzzing begins
//! with them, too.
//!
//! Each line is `size[4] number[1] tag[2]`, then the fields; the tag is 0x0102 throughout, and QID
//! is a directory of version 1 and path 2.
#![allow(dead_code)]

use covey_ninep::message::Message::*;
use covey_ninep::message::{Dialect, Extension, Message, NOFID, NONUNAME, Number, Qid, Stat, dm};
use covey_wire::List;

pub const TAG: u16 = 0x0102;
const QID: Qid = Qid { kind: Qid::DIR, version: 1, path: 2 };

/// Dialect, message and its bytes in hexadecimal.
pub fn golden() -> Vec<(Dialect, Message, &'static str)> {
    vec![
        (Dialect::Linux, Rlerror { ecode: 2 }, "0b00000007020102000000"),
        (Dialect::Linux, Tstatfs { fid: 1 }, "0b00000008020101000000"),
        (
            Dialect::Linux,
            Rstatfs {
                kind: 0x01021997,
                bsize: 4096,
                blocks: 1,
                bfree: 2,
                bavail: 3,
                files: 4,
                ffree: 5,
                fsid: 6,
                namelen: 255,
            },
            "4300000009020197190201001000000100000000000000020000000000000003000000\
             00000000040000000000000005000000000000000600000000000000ff000000",
        ),
        (Dialect::Linux, Tlopen { fid: 1, flags: 0x8002 }, "0f0000000c02010100000002800000"),
        (
            Dialect::Linux,
            Rlopen { qid: QID, iounit: 8192 },
            "180000000d02018001000000020000000000000000200000",
        ),
        (
            Dialect::Linux,
            Tlcreate { fid: 1, name: "f".into(), flags: 0x42, mode: 0o644, gid: 5 },
            "1a0000000e02010100000001006642000000a401000005000000",
        ),
        (
            Dialect::Linux,
            Rlcreate { qid: QID, iounit: 0 },
            "180000000f02018001000000020000000000000000000000",
        ),
        (
            Dialect::Linux,
            Tsymlink { dfid: 1, name: "l".into(), target: "to".into(), gid: 5 },
            "160000001002010100000001006c0200746f05000000",
        ),
        (Dialect::Linux, Rsymlink { qid: QID }, "1400000011020180010000000200000000000000"),
        (
            Dialect::Linux,
            Tmknod { dfid: 1, name: "p".into(), mode: 0o10644, major: 3, minor: 4, gid: 5 },
            "1e00000012020101000000010070a4110000030000000400000005000000",
        ),
        (Dialect::Linux, Rmknod { qid: QID }, "1400000013020180010000000200000000000000"),
        (
            Dialect::Linux,
            Trename { fid: 1, dfid: 2, name: "n".into() },
            "12000000140201010000000200000001006e",
        ),
        (Dialect::Linux, Rrename {}, "07000000150201"),
        (Dialect::Linux, Treadlink { fid: 1 }, "0b00000016020101000000"),
        (Dialect::Linux, Rreadlink { target: "to".into() }, "0b0000001702010200746f"),
        (
            Dialect::Linux,
            Tgetattr { fid: 1, request_mask: 0x3fff },
            "1300000018020101000000ff3f000000000000",
        ),
        (
            Dialect::Linux,
            Rgetattr {
                valid: 0x7ff,
                qid: QID,
                mode: 0o40755,
                uid: 1,
                gid: 2,
                nlink: 3,
                rdev: 4,
                size: 5,
                blksize: 6,
                blocks: 7,
                atime_sec: 8,
                atime_nsec: 9,
                mtime_sec: 10,
                mtime_nsec: 11,
                ctime_sec: 12,
                ctime_nsec: 13,
                btime_sec: 14,
                btime_nsec: 15,
                generation: 16,
                data_version: 17,
            },
            "a0000000190201ff0700000000000080010000000200000000000000ed410000010000\
             0002000000030000000000000004000000000000000500000000000000060000000000\
             00000700000000000000080000000000000009000000000000000a000000000000000b\
             000000000000000c000000000000000d000000000000000e000000000000000f000000\
             0000000010000000000000001100000000000000",
        ),
        (
            Dialect::Linux,
            Tsetattr {
                fid: 1,
                valid: 0x1ff,
                mode: 0o644,
                uid: 2,
                gid: 3,
                size: 4,
                atime_sec: 5,
                atime_nsec: 6,
                mtime_sec: 7,
                mtime_nsec: 8,
            },
            "430000001a020101000000ff010000a401000002000000030000000400000000000000\
             0500000000000000060000000000000007000000000000000800000000000000",
        ),
        (Dialect::Linux, Rsetattr {}, "070000001b0201"),
        (
            Dialect::Linux,
            Txattrwalk { fid: 1, newfid: 2, name: "user.x".into() },
            "170000001e020101000000020000000600757365722e78",
        ),
        (Dialect::Linux, Rxattrwalk { size: 9 }, "0f0000001f02010900000000000000"),
        (
            Dialect::Linux,
            Txattrcreate { fid: 1, name: "user.x".into(), attr_size: 9, flags: 1 },
            "1f000000200201010000000600757365722e78090000000000000001000000",
        ),
        (Dialect::Linux, Rxattrcreate {}, "07000000210201"),
        (
            Dialect::Linux,
            Treaddir { fid: 1, offset: 2, count: 3 },
            "1700000028020101000000020000000000000003000000",
        ),
        (Dialect::Linux, Rreaddir { data: b"dir".to_vec().into() }, "0e00000029020103000000646972"),
        (Dialect::Linux, Tfsync { fid: 1, datasync: 1 }, "0f0000003202010100000001000000"),
        (Dialect::Linux, Rfsync {}, "07000000330201"),
        (
            Dialect::Linux,
            Tlock {
                fid: 1,
                kind: 1,
                flags: 1,
                start: 2,
                length: 3,
                proc_id: 4,
                client_id: "c".into(),
            },
            "2700000034020101000000010100000002000000000000000300000000000000040000\
             00010063",
        ),
        (Dialect::Linux, Rlock { status: 1 }, "0800000035020101"),
        (
            Dialect::Linux,
            Tgetlock { fid: 1, kind: 0, start: 2, length: 3, proc_id: 4, client_id: "c".into() },
            "2300000036020101000000000200000000000000030000000000000004000000010063",
        ),
        (
            Dialect::Linux,
            Rgetlock { kind: 2, start: 2, length: 3, proc_id: 4, client_id: "c".into() },
            "1f000000370201020200000000000000030000000000000004000000010063",
        ),
        (
            Dialect::Linux,
            Tlink { dfid: 1, fid: 2, name: "h".into() },
            "120000004602010100000002000000010068",
        ),
        (Dialect::Linux, Rlink {}, "07000000470201"),
        (
            Dialect::Linux,
            Tmkdir { dfid: 1, name: "d".into(), mode: 0o755, gid: 5 },
            "1600000048020101000000010064ed01000005000000",
        ),
        (Dialect::Linux, Rmkdir { qid: QID }, "1400000049020180010000000200000000000000"),
        (
            Dialect::Linux,
            Trenameat { olddirfid: 1, oldname: "a".into(), newdirfid: 2, newname: "b".into() },
            "150000004a02010100000001006102000000010062",
        ),
        (Dialect::Linux, Rrenameat {}, "070000004b0201"),
        (
            Dialect::Linux,
            Tunlinkat { dirfid: 1, name: "a".into(), flags: 0x200 },
            "120000004c02010100000001006100020000",
        ),
        (Dialect::Linux, Runlinkat {}, "070000004d0201"),
        (
            Dialect::Linux,
            Tversion { msize: 8192, version: "9P2000.L".into() },
            "150000006402010020000008003950323030302e4c",
        ),
        (
            Dialect::Linux,
            Rversion { msize: 8192, version: "9P2000.L".into() },
            "150000006502010020000008003950323030302e4c",
        ),
        (
            Dialect::Linux,
            Tauth { afid: 1, uname: "u".into(), aname: "a".into(), n_uname: Number(7) },
            "150000006602010100000001007501006107000000",
        ),
        (
            Dialect::Plan9,
            Tauth { afid: 1, uname: "u".into(), aname: "a".into(), n_uname: Number(NONUNAME) },
            "1100000066020101000000010075010061",
        ),
        (
            Dialect::Unix,
            Tauth { afid: 1, uname: "u".into(), aname: "a".into(), n_uname: Number(7) },
            "150000006602010100000001007501006107000000",
        ),
        (
            Dialect::Covey,
            Tauth { afid: 1, uname: "u".into(), aname: "a".into(), n_uname: Number(7) },
            "150000006602010100000001007501006107000000",
        ),
        (Dialect::Linux, Rauth { aqid: QID }, "1400000067020180010000000200000000000000"),
        (
            Dialect::Linux,
            Tattach {
                fid: 1,
                afid: NOFID,
                uname: "u".into(),
                aname: "/srv".into(),
                n_uname: Number(7),
            },
            "1c00000068020101000000ffffffff01007504002f73727607000000",
        ),
        (
            Dialect::Plan9,
            Tattach {
                fid: 1,
                afid: NOFID,
                uname: "u".into(),
                aname: "".into(),
                n_uname: Number(NONUNAME),
            },
            "1400000068020101000000ffffffff0100750000",
        ),
        (
            Dialect::Unix,
            Tattach {
                fid: 1,
                afid: NOFID,
                uname: "u".into(),
                aname: "/srv".into(),
                n_uname: Number(7),
            },
            "1c00000068020101000000ffffffff01007504002f73727607000000",
        ),
        (
            Dialect::Covey,
            Tattach {
                fid: 1,
                afid: NOFID,
                uname: "u".into(),
                aname: "/srv".into(),
                n_uname: Number(7),
            },
            "1c00000068020101000000ffffffff01007504002f73727607000000",
        ),
        (Dialect::Linux, Rattach { qid: QID }, "1400000069020180010000000200000000000000"),
        (
            Dialect::Unix,
            Rerror { ename: "no".into(), errno: Number(2) },
            "0f0000006b020102006e6f02000000",
        ),
        (
            Dialect::Plan9,
            Rerror { ename: "no".into(), errno: Number(NONUNAME) },
            "0b0000006b020102006e6f",
        ),
        (Dialect::Linux, Tflush { oldtag: 0x0304 }, "090000006c02010403"),
        (Dialect::Linux, Rflush {}, "070000006d0201"),
        (
            Dialect::Linux,
            Twalk { fid: 1, newfid: 2, names: List(vec!["a".into(), "bc".into()]) },
            "180000006e02010100000002000000020001006102006263",
        ),
        (
            Dialect::Linux,
            Rwalk { qids: List(vec![QID, QID]) },
            "230000006f020102008001000000020000000000000080010000000200000000000000",
        ),
        (Dialect::Plan9, Topen { fid: 1, mode: 2 }, "0c0000007002010100000002"),
        (
            Dialect::Plan9,
            Ropen { qid: QID, iounit: 9 },
            "180000007102018001000000020000000000000009000000",
        ),
        (
            Dialect::Plan9,
            Tcreate {
                fid: 1,
                name: "f".into(),
                perm: 0o644,
                mode: 1,
                extension: Extension::default(),
            },
            "1300000072020101000000010066a401000001",
        ),
        (
            Dialect::Unix,
            Tcreate {
                fid: 1,
                name: "l".into(),
                perm: dm::SYMLINK | 0o777,
                mode: 0,
                extension: Extension("to".into()),
            },
            "170000007202010100000001006cff010002000200746f",
        ),
        (
            Dialect::Plan9,
            Rcreate { qid: QID, iounit: 9 },
            "180000007302018001000000020000000000000009000000",
        ),
        (
            Dialect::Linux,
            Tread { fid: 1, offset: 2, count: 3 },
            "1700000074020101000000020000000000000003000000",
        ),
        (Dialect::Linux, Rread { data: b"abc".to_vec().into() }, "0e00000075020103000000616263"),
        (
            Dialect::Linux,
            Twrite { fid: 1, offset: 2, data: b"abc".to_vec().into() },
            "1a00000076020101000000020000000000000003000000616263",
        ),
        (Dialect::Linux, Rwrite { count: 3 }, "0b00000077020103000000"),
        (Dialect::Linux, Tclunk { fid: 1 }, "0b00000078020101000000"),
        (Dialect::Linux, Rclunk {}, "07000000790201"),
        (Dialect::Linux, Tremove { fid: 1 }, "0b0000007a020101000000"),
        (Dialect::Linux, Rremove {}, "070000007b0201"),
        (Dialect::Plan9, Tstat { fid: 1 }, "0b0000007c020101000000"),
        (
            Dialect::Plan9,
            Rstat { stat: stat(Dialect::Plan9) },
            "3e0000007d02013500330003000400000080010000000200000000000000ed01008005\
             00000006000000070000000000000001006601007501006701006d",
        ),
        (
            Dialect::Unix,
            Rstat { stat: stat(Dialect::Unix) },
            "4d0000007d02014400420003000400000080010000000200000000000000ed01008005\
             00000006000000070000000000000001006601007501006701006d0100780800000009\
             0000000a000000",
        ),
        (
            Dialect::Plan9,
            Twstat { fid: 1, stat: stat(Dialect::Plan9) },
            "420000007e0201010000003500330003000400000080010000000200000000000000ed\
             0100800500000006000000070000000000000001006601007501006701006d",
        ),
        (
            Dialect::Unix,
            Twstat { fid: 1, stat: stat(Dialect::Unix) },
            "510000007e0201010000004400420003000400000080010000000200000000000000ed\
             0100800500000006000000070000000000000001006601007501006701006d01007808\
             000000090000000a000000",
        ),
        (Dialect::Plan9, Rwstat {}, "070000007f0201"),
        (
            Dialect::Covey,
            Tcall { fid: 1, body: b"op".to_vec().into() },
            "11000000c8020101000000020000006f70",
        ),
        (Dialect::Covey, Rcall { body: b"re".to_vec().into() }, "0d000000c90201020000007265"),
        (
            Dialect::Covey,
            Treadview { fid: 1, start: 2, end: 9, count: 5, view: b"vw".to_vec().into() },
            "25000000ce0201010000000200000000000000090000000000000005000000020000007677",
        ),
        (
            Dialect::Covey,
            Rreadview { data: b"abc".to_vec().into() },
            "0e000000cf020103000000616263",
        ),
        (
            Dialect::Covey,
            Twriteview {
                fid: 1,
                start: 2,
                end: 9,
                view: b"vw".to_vec().into(),
                data: b"abc".to_vec().into(),
            },
            "28000000d00201010000000200000000000000090000000000000002000000767703000000616263",
        ),
        (Dialect::Covey, Rwriteview { count: 3 }, "0b000000d1020103000000"),
    ]
}

/// A directory's attributes; what a dialect does not carry is as it is read back.
pub fn stat(dialect: Dialect) -> Box<Stat> {
    let stat = Stat {
        kind: 3,
        dev: 4,
        qid: QID,
        mode: dm::DIR | 0o755,
        atime: 5,
        mtime: 6,
        length: 7,
        name: "f".into(),
        uid: "u".into(),
        gid: "g".into(),
        muid: "m".into(),
        ..Stat::dont_touch()
    };
    Box::new(match dialect {
        Dialect::Unix => Stat {
            extension: Extension("x".into()),
            n_uid: Number(8),
            n_gid: Number(9),
            n_muid: Number(10),
            ..stat
        },
        _ => stat,
    })
}
