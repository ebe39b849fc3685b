//! 9P through shared memory copies a payload once: the kernel does, from the file to where the caller finds it, or into the
//! caller's own buffer, and from the caller's memory to where the server writes it from. It is counted for this process, which
//! has both ends, so this is a test program of its own.

use covey_cluster::net;
use covey_io::os::net::Address;
use covey_io::os::shm::COPIED;
use covey_ninep::client::{Conn, Fid};
use covey_ninep::message::Message;
use covey_serve::accept::serve_export;
use covey_wire::{Bytes, BytesMut, List, Name};
use std::fs;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

const READS: usize = 40;
const LENGTH: usize = 1 << 20;
/// What requests, replies without payload and notes of the channel may take, for each read or write.
const SMALL: u64 = 500;
const RDWR: u32 = 2;

/// Bytes that our own code has copied, and that the kernel has.
fn copied() -> (u64, u64) {
    (COPIED.by_us.load(Ordering::Relaxed), COPIED.by_kernel.load(Ordering::Relaxed))
}

async fn open(conn: &Conn, name: &str) -> Fid {
    let fid = Fid::new(conn);
    let names = List(vec![Name::from(name)]);
    conn.call(Message::Twalk { fid: 0, newfid: fid.number(), names }).await.unwrap();
    conn.call(Message::Tlopen { fid: fid.number(), flags: RDWR }).await.unwrap();
    fid
}

async fn read(conn: &Conn, fid: &Fid, offset: u64) -> Bytes {
    let read = Message::Tread { fid: fid.number(), offset, count: LENGTH as u32 };
    match conn.call(read).await.unwrap() {
        Message::Rread { data } => data.into_bytes(),
        other => panic!("{}", other.name()),
    }
}

async fn count_copies(address: Address, wanted: &[u8]) {
    let conn = net::dial(&address, "/", None, &tokio::runtime::Handle::current()).await.unwrap();
    let fid = open(&conn, "large").await;
    let before = copied();
    let mut caller = vec![0; LENGTH];
    for index in 0..READS {
        let offset = index % 3 * LENGTH;
        let data = read(&conn, &fid, offset as u64).await;
        let placed = COPIED.last.load(Ordering::Relaxed);
        assert_eq!(data.as_ptr() as usize, placed, "the payload has moved");
        caller.copy_from_slice(&data);
        assert!(caller == wanted[offset..][..LENGTH]);
    }
    let after = copied();
    assert_eq!(after.1 - before.1, (READS * LENGTH) as u64, "the kernel's copy is the only one");
    assert!(after.0 - before.0 < READS as u64 * SMALL, "{} bytes were copied", after.0 - before.0);

    let mut buffer = BytesMut::zeroed(LENGTH);
    let place = buffer.as_ptr();
    for index in 0..READS {
        let offset = index % 3 * LENGTH;
        buffer = conn.read_into(fid.number(), offset as u64, buffer).await.unwrap();
        assert_eq!(buffer.as_ptr(), place, "the caller's buffer is another");
        assert_eq!(COPIED.last.load(Ordering::Relaxed), place as usize, "it came elsewhere");
        assert!(buffer == wanted[offset..][..LENGTH]);
    }
    let into = copied();
    assert_eq!(into.1 - after.1, (READS * LENGTH) as u64, "the kernel's copy is the only one");
    assert!(into.0 - after.0 < READS as u64 * SMALL, "{} bytes were copied", into.0 - after.0);
    let after = into;

    let data = Bytes::from(vec![7; LENGTH]);
    for index in 0..READS {
        let offset = (index % 3 * LENGTH) as u64;
        let write = Message::Twrite { fid: fid.number(), offset, data: data.clone().into() };
        let written = conn.call(write).await.unwrap();
        assert!(matches!(written, Message::Rwrite { count } if count as usize == LENGTH));
    }
    let written = copied();
    assert_eq!(written.1 - after.1, (READS * LENGTH) as u64, "it is fetched from where it lies");
    let copies = written.0 - after.0;
    assert!(copies < READS as u64 * SMALL, "{copies} bytes were copied");
}

#[test]
fn a_read_and_a_write_are_copied_once_from_where_they_lie() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let wanted: Vec<u8> = (0..3 * LENGTH).map(|at| (at % 251) as u8).collect();
    fs::write(dir.path().join("large"), &wanted).unwrap();
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("s");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (ready, is_ready) = oneshot::channel();
        let listen = [Address::Unix(socket.clone())];
        let serve = serve_export(dir.path(), &listen, false, |_, _| ready.send(()).unwrap());
        let client = async {
            is_ready.await.unwrap();
            count_copies(Address::Shared(socket.clone()), &wanted).await;
        };
        tokio::select! {
            served = serve => panic!("the server ended: {served:?}"),
            () = client => {}
        }
    });
    assert!(fs::read(dir.path().join("large")).unwrap() == vec![7; 3 * LENGTH]);
    assert!(!socket.exists(), "the server has ended");
}
