//! Targets and initiators over real sockets.

use super::disk::{Disk, Portals, checked_size, parse_portal};
use super::*;
use bytes::Bytes;
use covey_io::os::net::{self, Address, FarEnd};
use covey_io::os::shm::COPIED;
use covey_iscsi::initiator;
use covey_iscsi::negotiate::{Digest, Parameters};
use covey_iscsi::scsi::{Config, Unit, Units};
use covey_iscsi::store::{Answer, Hold, Reply, Request, Store};
use covey_iscsi::target::{Access, Credentials, TargetConfig};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;

const TARGET: &str = "iqn.2026-01.org.example:disk";

/// Bytes in memory, whose answers come later, from another thread.
struct Memory {
    bytes: Mutex<Vec<u8>>,
}

impl Store for Memory {
    fn ask(&self, request: Request, hold: Hold) -> Answer {
        let mut bytes = self.bytes.lock().unwrap();
        let reply = match request {
            Request::Read { offset, bytes: count, .. } => {
                Reply::Data(bytes[offset as usize..][..count as usize].to_vec().into())
            }
            Request::Write { offset, data, .. } => {
                let data = data.into_bytes();
                bytes[offset as usize..][..data.len()].copy_from_slice(&data);
                Reply::Done
            }
            _ => Reply::Done,
        };
        let later = async move {
            let reply = tokio::task::spawn_blocking(move || reply).await.unwrap();
            drop(hold);
            reply
        };
        Answer::Later(Box::pin(later))
    }

    fn bytes(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn losses(&self) -> u64 {
        0
    }
}

fn config() -> initiator::Config {
    initiator::Config {
        initiator: "iqn.2026-01.org.example:me".into(),
        target: Some(TARGET.into()),
        isid: [0x80, 0, 0, 0, 0, 1],
        chap: Some(credentials("me", "0123456789abcdef")),
        mutual: Some(credentials("disk", "fedcba9876543210")),
        parameters: Parameters { data_digest: Digest::Preferred, ..Parameters::INITIATOR },
    }
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.into(), secret: secret.into() }
}

fn portal() -> Arc<Portal<Units>> {
    let unit = Config {
        name: "disk".into(),
        serial: "0123456789".into(),
        target: TARGET.into(),
        block_bytes: 512,
        read_only: false,
        removable: false,
        write_cache: true,
        portal_groups: vec![1],
    };
    let store = Arc::new(Memory { bytes: Mutex::new(vec![0; 8 << 20]) });
    let portal = Portal::new();
    portal.add(TargetConfig {
        name: TARGET.into(),
        alias: None,
        portal_group: 1,
        device: Arc::new(Units::of(Arc::new(Unit::new(unit, store, "").unwrap()))),
        access: Access {
            initiators: None,
            chap: vec![credentials("me", "0123456789abcdef")],
            mutual: Some(credentials("disk", "fedcba9876543210")),
            vouched_only: false,
        },
        addresses: Vec::new(),
        parameters: Parameters::TARGET,
    });
    portal
}

fn in_runtime<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, work)
}

/// Serves the portal at a port of its own.
async fn serve(portal: &Arc<Portal<Units>>, threads: &Arc<Threads>) -> Address {
    serve_at("127.0.0.1", portal, threads).await
}

async fn serve_at(host: &str, portal: &Arc<Portal<Units>>, threads: &Arc<Threads>) -> Address {
    let address = Address::Tcp { host: host.into(), port: 0 };
    let listener = Listener::bind(&address, 0o600).await.unwrap();
    let address = listener.address().clone();
    let gate = Gate::new(1024);
    tokio::task::spawn_local(serve_portal(listener, portal.clone(), threads.clone(), gate));
    address
}

async fn connect(portals: &[Address], number: u8) -> std::io::Result<Disk> {
    let isid = [0x80, 0, 0, 0, 0, number];
    let config = initiator::Config { isid, ..config() };
    Disk::connect(config, portals.to_vec(), 0, Duration::from_secs(10)).await
}

#[test]
fn what_is_written_on_one_connection_is_read_on_another() {
    in_runtime(async {
        let threads = Arc::new(Threads::start("test", 2).unwrap());
        let portal = portal();
        let address = serve(&portal, &threads).await;
        let mut disks = Vec::new();
        for number in 0..4 {
            disks.push(connect(std::slice::from_ref(&address), number).await.unwrap());
        }
        assert_eq!(threads.tasks(), [2, 2]);
        assert_eq!((disks[0].bytes(), disks[0].block_bytes()), (8 << 20, 512));
        let data = Bytes::from((0..3 << 20).map(|at| (at / 3) as u8).collect::<Vec<u8>>());
        disks[0].write(512, data.clone()).await.unwrap();
        disks[0].flush().await.unwrap();
        assert!(disks[3].read(512, data.len()).await.unwrap() == data);
        // A buffer whose last reader is done is read into again, and no other one.
        let large = 1 << 20;
        let first = disks[3].read(512, large).await.unwrap();
        let second = disks[3].read(512 + large as u64, large).await.unwrap();
        let (at, whole) = (first.as_ptr(), second.as_ptr());
        assert!(at != whole && first == data[..large] && second == data[large..2 * large]);
        drop(first);
        let third = disks[3].read(1024, 128 << 10).await.unwrap();
        assert_eq!(third.as_ptr(), at);
        assert!(third == data[512..][..128 << 10] && second == data[large..2 * large]);
        let error = disks[1].read(100, 512).await.unwrap_err();
        assert_eq!(error.to_string(), "512 bytes at 100 are not whole blocks of 512");
        let error = disks[1].read(8 << 20, 512).await.unwrap_err();
        assert!(error.to_string().contains("5h/21h/00h"), "{error}");
        let last = disks.pop().unwrap();
        last.log_out().await;
        assert_eq!(portal.target(TARGET).unwrap().sessions().len(), 3);
    });
}

#[test]
fn initiators_come_by_ipv6() {
    in_runtime(async {
        let threads = Arc::new(Threads::start("test", 1).unwrap());
        let portal = portal();
        let address = serve_at("::1", &portal, &threads).await;
        let Address::Tcp { port, .. } = &address else { panic!("it is {address}") };
        let disk = connect(std::slice::from_ref(&address), 1).await.unwrap();
        disk.write(512, Bytes::from(vec![3; 1024])).await.unwrap();
        assert!(disk.read(512, 1024).await.unwrap() == vec![3; 1024]);
        // What discovery and redirection say can be parsed again.
        let sessions = portal.target(TARGET).unwrap().sessions();
        let said: Vec<&str> = sessions.iter().map(|one| one.entered.address.as_str()).collect();
        assert_eq!(said, [format!("[::1]:{port}")]);
        assert_eq!(parse_portal(said[0]), Some(address.clone()));
    });
}

/// A unix socket stands for the addresses of its node: who does not find the target there, or nobody, or a server of somebody
/// else, comes to those.
#[test]
fn initiators_of_the_same_machine_come_by_a_unix_socket() {
    in_runtime(async {
        let threads = Arc::new(Threads::start("test", 1).unwrap());
        let (portal, empty) = (portal(), Portal::<Units>::new());
        let dir = tempfile::tempdir().unwrap();
        let far = serve(&portal, &threads).await;
        let near = Address::Unix(near_portal(&dir.path().join("node.sock")));
        let at = || -> Vec<String> {
            let sessions = portal.target(TARGET).unwrap().sessions();
            sessions.iter().map(|one| one.entered.address.clone()).collect()
        };
        for (served, place) in
            [(None, "127.0.0.1"), (Some(&empty), "127.0.0.1"), (Some(&portal), "")]
        {
            if let Some(served) = served {
                let listener = Listener::bind(&near, 0o600).await.unwrap();
                let serving =
                    serve_portal(listener, served.clone(), threads.clone(), Gate::new(64));
                let serving = tokio::task::spawn_local(serving);
                let disk = connect(&[near.clone(), far.clone()], 1).await.unwrap();
                disk.write(512, Bytes::from(vec![3; 3 << 20])).await.unwrap();
                assert!(disk.read(512, 3 << 20).await.unwrap() == vec![3; 3 << 20]);
                assert!(at()[0].starts_with(place) && at()[0].is_empty() == place.is_empty());
                disk.log_out().await;
                serving.abort();
                assert!(serving.await.unwrap_err().is_cancelled());
            } else {
                let disk = connect(&[near.clone(), far.clone()], 1).await.unwrap();
                assert!(at()[0].starts_with(place));
                disk.log_out().await;
            }
        }
    });
}

/// Between processes of one user data goes by memory that both have: the kernel copies it from where one has it to where the
/// other wants it. Other tests here may have it copy, too, but not as much.
#[test]
fn data_between_processes_of_one_user_is_fetched_from_where_it_lies() {
    in_runtime(async {
        let threads = Arc::new(Threads::start("test", 1).unwrap());
        let portal = portal();
        let dir = tempfile::tempdir().unwrap();
        let near = Address::Unix(near_portal(&dir.path().join("node.sock")));
        let listener = Listener::bind(&near, 0o600).await.unwrap();
        tokio::task::spawn_local(serve_portal(listener, portal, threads, Gate::new(64)));
        let config = initiator::Config { parameters: Parameters::INITIATOR, ..config() };
        let disk = Disk::connect(config, vec![near], 0, Duration::from_secs(10)).await.unwrap();
        let data = Bytes::from((0..1 << 20).map(|at| (at / 5) as u8).collect::<Vec<u8>>());
        let copied = || COPIED.by_kernel.load(Ordering::Relaxed);
        const TIMES: u64 = 32;
        let before = copied();
        for _ in 0..TIMES {
            disk.write(512, data.clone()).await.unwrap();
        }
        let written = copied();
        for _ in 0..TIMES {
            assert!(disk.read(512, data.len()).await.unwrap() == data);
        }
        let bytes = TIMES << 20;
        if copied() == before {
            return covey_harness::skip("one process may not copy from another's memory here");
        }
        assert!(written - before >= bytes && copied() - written >= bytes);
    });
}

#[test]
fn a_unix_socket_of_somebody_else_is_no_portal() {
    let own = rustix::process::geteuid().as_raw();
    let portals = Portals::from(Vec::new());
    assert!([0, own].iter().all(|uid| portals.trusts(FarEnd::User(*uid))));
    assert!(!portals.trusts(FarEnd::User(own + 1)));
    assert!(portals.owned_by(Some(own + 1)).trusts(FarEnd::User(own + 1)));
    // Of who has no user here it is known by CHAP, or not at all, who he is.
    assert!(Portals::from(Vec::new()).trusts(FarEnd::Away));
}

/// A connection that was closed before another was made is gone before that one has logged in, on whatever thread it was.
#[test]
fn what_was_closed_before_a_login_is_gone_after_it() {
    in_runtime(async {
        let threads = Arc::new(Threads::start("test", 4).unwrap());
        let portal = portal();
        let address = [serve(&portal, &threads).await];
        for turn in 0..100 {
            let disk = connect(&address, turn).await.unwrap();
            let sessions = portal.target(TARGET).unwrap().sessions();
            let numbers: Vec<u8> = sessions.iter().map(|one| one.nexus.isid[5]).collect();
            assert_eq!(numbers, [turn]);
            drop(disk);
            // Its socket is closed by its task's end.
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_portal_that_is_gone_is_left_for_another() {
    in_runtime(async {
        let portal = portal();
        let first_threads = Arc::new(Threads::start("first", 1).unwrap());
        let threads = Arc::new(Threads::start("second", 1).unwrap());
        let portals = [serve(&portal, &first_threads).await, serve(&portal, &threads).await];
        let disk = connect(&portals, 1).await.unwrap();
        disk.write(0, Bytes::from(vec![1; 4096])).await.unwrap();
        // Its connections end with its threads; it listens on, and hands what comes to nobody.
        drop(first_threads);
        disk.write(4096, Bytes::from(vec![2; 4096])).await.unwrap();
        let back = disk.read(0, 8192).await.unwrap();
        assert!(back[..4096] == [1; 4096] && back[4096..] == [2; 4096]);
    });
}

/// Passes everything on between initiators and a target, but that the data of reads of 4096 bytes is said to be of another place.
async fn misplace(target: Address) -> Address {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::task::spawn_local(async move {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            let far = net::connect(&target, Duration::from_secs(5)).await.unwrap();
            tokio::task::spawn_local(async move {
                let (mut from_near, mut to_near) = near.into_split();
                let (mut from_far, mut to_far) = tokio::io::split(far);
                let forth = tokio::io::copy(&mut from_near, &mut to_far);
                let back = async {
                    let mut pdu = vec![0; 48];
                    while from_far.read_exact(&mut pdu[..48]).await.is_ok() {
                        let bytes = usize::from(pdu[6]) << 8 | usize::from(pdu[7]);
                        pdu.resize(48 + bytes.next_multiple_of(4), 0);
                        if from_far.read_exact(&mut pdu[48..]).await.is_err() {
                            break;
                        }
                        if pdu[0] == 0x25 && bytes == 4096 {
                            pdu[42] = 0x10;
                        }
                        if to_near.write_all(&pdu).await.is_err() {
                            break;
                        }
                    }
                };
                let _ = tokio::join!(forth, back);
            });
        }
    });
    Address::Tcp { host: "127.0.0.1".into(), port }
}

/// Passes everything on between initiators and a target, and counts the connections.
async fn counted(target: Address) -> (Address, Rc<Cell<u32>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    tokio::task::spawn_local(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = net::connect(&target, Duration::from_secs(5)).await.unwrap();
            counted.set(counted.get() + 1);
            tokio::task::spawn_local(async move {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    (Address::Tcp { host: "127.0.0.1".into(), port }, count)
}

/// As where its node has just started and does not have it yet. Who has never been in is told at once that there is none.
#[test]
fn a_target_that_was_there_is_waited_for() {
    in_runtime(async {
        let threads = Arc::new(Threads::start("test", 1).unwrap());
        let portal = portal();
        let (address, connections) = counted(serve(&portal, &threads).await).await;
        let disk = connect(std::slice::from_ref(&address), 1).await.unwrap();
        let target = portal.remove(TARGET, 0).unwrap();
        target.disconnect("its node has ended");
        let reading = async {
            // The second one more is made after the first has met that there is no target.
            while connections.get() < 3 && disk.closed().is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            portal.share(&target);
            disk.read(0, 512).await
        };
        assert_eq!(reading.await.unwrap().len(), 512);
        portal.remove(TARGET, 0);
        let Err(error) = connect(&[address], 2).await else { panic!("it got in") };
        assert!(error.to_string().contains("there is no such target"), "{error}");
    });
}

/// It lets us in each time, and then breaks the rules for the same command.
#[test]
fn a_target_that_never_answers_a_command_well_is_given_up() {
    in_runtime(async {
        let threads = Arc::new(Threads::start("test", 1).unwrap());
        let address = misplace(serve(&portal(), &threads).await).await;
        let parameters = Parameters { data_digest: Digest::No, ..Parameters::INITIATOR };
        let config = initiator::Config { parameters, ..config() };
        let patience = Duration::from_secs(1);
        let disk = Disk::connect(config, vec![address], 0, patience).await.unwrap();
        assert_eq!(disk.read(0, 512).await.unwrap().len(), 512);
        let read = tokio::time::timeout(Duration::from_secs(60), disk.read(0, 4096));
        let error = read.await.expect("it is not asked for ever").unwrap_err();
        assert!(error.to_string().contains("no portal could be used"), "{error}");
    });
}

#[test]
fn a_login_that_cannot_succeed_is_told_at_once() {
    in_runtime(async {
        let threads = Arc::new(Threads::start("test", 1).unwrap());
        let portal = portal();
        let address = serve(&portal, &threads).await;
        let wrong =
            initiator::Config { chap: Some(credentials("me", "0123456789abcdeX")), ..config() };
        let patience = Duration::from_secs(600);
        let Err(error) = Disk::connect(wrong, vec![address], 0, patience).await else {
            panic!("it got in")
        };
        assert!(error.to_string().contains("wrong name or secret"), "{error}");
    });
}

#[test]
fn portals_are_written_as_discovery_reports_them() {
    let tcp = |host: &str, port| Some(Address::Tcp { host: host.into(), port });
    assert_eq!(parse_portal("10.0.0.1:3260,1"), tcp("10.0.0.1", 3260));
    assert_eq!(parse_portal("[fe80::1]:3260"), tcp("fe80::1", 3260));
    for bad in ["", "host", ":3260", "host:port", "host:99999"] {
        assert_eq!(parse_portal(bad), None, "{bad}");
    }
}

#[test]
fn a_size_that_no_unit_has_is_not_believed() {
    assert_eq!(checked_size(7, 512), Some((8, 512)));
    assert_eq!(checked_size((1 << 51) - 2, 4096), Some(((1 << 51) - 1, 4096)));
    let most = u64::MAX;
    for (last, block) in [(most, 512), (most >> 1, 512), (most >> 12, 4096), (7, 1), (7, 1 << 31)] {
        assert_eq!(checked_size(last, block), None, "{last} of {block}");
    }
}

#[test]
fn an_address_is_written_as_initiators_read_it() {
    assert_eq!(address_text("[::ffff:10.0.0.1]:3260".parse().unwrap()), "10.0.0.1:3260");
    assert_eq!(address_text("[fe80::1]:3260".parse().unwrap()), "[fe80::1]:3260");
}
