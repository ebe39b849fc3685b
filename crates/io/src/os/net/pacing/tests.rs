use super::*;
use crate::os::file::DataFile;
use crate::os::run::Stream as _;
use covey_wire::Segments;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use tokio::io::AsyncWriteExt;

fn rate_of(stream: &TcpStream) -> u64 {
    get(stream.as_fd(), (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)).unwrap()
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Within this machine nothing is enrolled, so it is done by hand.
fn paced(stream: TcpStream, rate: u64) -> Stream {
    let ends = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let enrolled = admit(stream.try_clone().unwrap().into(), ends);
    limit(ends, Port::Receiver, Some(rate.into()));
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    Stream::Paced(Box::new(Paced { stream, enrolled }))
}

#[test]
fn what_is_sent_in_pieces_arrives_whole() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at >> 3) as u8).collect();
    let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.write_all(&content).unwrap();
    let file = DataFile::new(file).unwrap();
    let range = file.range(0, content.len()).unwrap().expect("it is in memory and long");
    let (ours, mut theirs) = pair();
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).map(|_| got)
    });
    runtime.block_on(async {
        let mut stream = paced(ours, 50_000_000);
        let mut output = Segments::new();
        output.small(|out| out.extend_from_slice(b"before"));
        output.file_range(range);
        output.small(|out| out.extend_from_slice(b"after"));
        while !output.is_empty() {
            let sent = poll_fn(|context| stream.poll_write_files(context, &output)).await;
            output.advance(sent.unwrap());
        }
        stream.write_all(&content).await.unwrap();
    });
    let got = reader.join().unwrap().unwrap();
    assert!(got == [b"before", &content[..], b"after", &content].concat());
}

#[test]
fn only_a_shared_wire_waits_for_more_than_a_frame_and_only_of_large_payloads() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let (client, server) = pair();
    server.set_nonblocking(true).unwrap();
    let wakes = |stream: Stream| [1 << 20, 1448].map(|bytes| stream.worth_waking_for(bytes));
    assert_eq!(wakes(paced(client, 1_000_000)), [16 << 10, 1]);
    let plain = tokio::net::TcpStream::from_std(server).unwrap();
    assert_eq!(wakes(Stream::Tcp(plain)), [1, 1]);
}

/// A peer that resets a connection and dials again from the same port was never paced any more.
#[test]
fn a_connection_between_the_same_ends_stays_enrolled_when_the_old_one_is_dropped() {
    let (client, server) = pair();
    let ends = (([10, 9, 8, 7], 1).into(), ([10, 9, 8, 6], 2).into());
    let [old, new] = [&client, &server].map(|one| admit(one.try_clone().unwrap().into(), ends));
    drop(old);
    limit(ends, Port::Receiver, Some(1_000_000.into()));
    assert_eq!(rate_of(&server), 1_000_000);
    drop(new);
    assert!(list().iter().all(|(found, _)| *found != ends));
}

fn unsent_of(stream: &TcpStream) -> libc::c_int {
    get(stream.as_fd(), (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)).unwrap()
}

/// Whoever joined while messages flowed filled the queue until the receiver had seen it.
#[test]
fn a_connection_begins_with_what_is_kept_for_new_ones() {
    let (client, server) = pair();
    let peer: IpAddr = [10, 9, 7, 6].into();
    let ends = |port| ((([10, 9, 7, 8], port).into()), (peer, 5640).into());
    let before = admit(client.try_clone().unwrap().into(), ends(1));
    assert_eq!(rate_of(&client), u64::MAX);
    limit_new(peer, Some(300_000));
    let after = admit(server.try_clone().unwrap().into(), ends(2));
    assert_eq!((rate_of(&client), rate_of(&server)), (300_000, 300_000));
    // What the receiver says of one that it has seen counts.
    limit(before.ends(), Port::Receiver, Some(4_000_000.into()));
    limit_new(peer, Some(200_000));
    assert_eq!((rate_of(&client), rate_of(&server)), (4_000_000, 200_000));
    limit_new(peer, None);
    assert_eq!((rate_of(&client), rate_of(&server)), (4_000_000, u64::MAX));
    limit(before.ends(), Port::Receiver, None);
    limit_new(peer, Some(200_000));
    assert_eq!(rate_of(&client), u64::MAX, "it has been seen, and is free");
    limit_new(peer, None);
    drop(after);
}

/// A process that had just begun to write filled the queue of the port, and all that went through it was lost.
#[test]
fn a_connection_to_a_machine_that_was_not_heard_begins_slowly() {
    let (client, server) = pair();
    let peer: IpAddr = [10, 9, 3, 6].into();
    let ends = |port| ((([10, 9, 3, 8], port).into()), (peer, 5640).into());
    let first = admit(client.try_clone().unwrap().into(), ends(1));
    assert!(begin_unheard(first.ends()));
    assert_eq!(rate_of(&client), UNHEARD_RATE);
    assert_eq!(first.pieces(), Some(segment_bytes(client.as_fd()).unwrap()), "one at a time");
    limit_new(peer, None);
    assert_eq!(rate_of(&client), u64::MAX);
    // It has been heard.
    let second = admit(server.try_clone().unwrap().into(), ends(2));
    assert!(!begin_unheard(second.ends()));
    assert_eq!(rate_of(&server), u64::MAX);
    forget(peer);
    assert!(begin_unheard(second.ends()));
    heard(peer);
    assert_eq!(rate_of(&server), u64::MAX);
    forget(peer);
    assert!(begin_unheard(second.ends()));
    // Its port is shared, whatever a second node there does not say.
    limit_new(peer, Some(300_000));
    heard(peer);
    assert_eq!(rate_of(&server), 300_000);
    forget(peer);
    limit(second.ends(), Port::Receiver, Some(4_000_000.into()));
    assert!(!begin_unheard(second.ends()), "it has been seen");
    assert_eq!(rate_of(&server), 4_000_000);
}

/// A target's connections at a port that the receiver does not take for bulk's would be slow for as long as they last.
#[test]
fn a_connection_that_the_receiver_does_not_see_is_not_new_for_ever() {
    let (client, _server) = pair();
    let peer: IpAddr = [10, 9, 4, 6].into();
    let guard =
        admit(client.try_clone().unwrap().into(), (([10, 9, 4, 8], 1).into(), (peer, 2).into()));
    limit_new(peer, Some(300_000));
    assert_eq!(rate_of(&client), 300_000);
    let long_ago = Instant::now().checked_sub(2 * NEW_FOR);
    enrolled().get_mut(&guard.ends()).unwrap().new_since = long_ago;
    limit_new(peer, Some(300_000));
    assert_eq!(rate_of(&client), u64::MAX);
    limit_new(peer, None);
}

/// A megabyte that was handed over before the first message left in bursts of nine frames for half a second.
#[test]
fn little_is_unsent_on_a_slow_link_even_without_a_limit() {
    assert_eq!(unsent_on(None), 0);
    assert_eq!(unsent_on(Some(100_000_000)), 64 << 10);
    assert_eq!(unsent_on(Some(1_000_000_000)), 625_000);
    assert_eq!(unsent_on(Some(u64::MAX)), libc::c_int::MAX);
    let (client, _server) = pair();
    let ends = (([10, 9, 5, 8], 1).into(), ([10, 9, 5, 6], 2).into());
    let guard = admit(client.try_clone().unwrap().into(), ends);
    enrolled().get_mut(&ends).unwrap().unsent_free = 500_000;
    limit(ends, Port::Receiver, Some(1_000_000.into()));
    assert_eq!(unsent_of(&client), 64 << 10);
    limit(ends, Port::Receiver, None);
    assert_eq!(unsent_of(&client), 500_000);
    drop(guard);
}

#[test]
fn the_lower_of_two_limits_counts_and_both_can_be_lifted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let ends @ (local, peer) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
    enable();
    assert!(enroll_socket(client.as_fd(), local, peer).is_none(), "it has no wire");
    let guard = admit(client.as_fd().try_clone_to_owned().unwrap(), ends);
    limit(ends, Port::Receiver, Some(2_000_000.into()));
    assert_eq!(rate_of(&client), 2_000_000);
    assert_eq!(rustix::net::sockopt::ip_tos(&client).unwrap(), 32, "CS1");
    mark_all(0);
    assert_eq!(rustix::net::sockopt::ip_tos(&client).unwrap(), 0);
    mark_all(MARK_DEFAULT);
    limit(ends, Port::Sender, Some(1_000_000.into()));
    assert_eq!(rate_of(&client), 1_000_000);
    limit(ends, Port::Sender, None);
    assert_eq!(rate_of(&client), 2_000_000);
    lift(Port::Receiver, |found| *found == ends);
    assert_eq!(rate_of(&client), u64::MAX);
    assert!(has(peer.ip()));
    drop(guard);
    limit(ends, Port::Receiver, Some(5.into()));
    assert!(list().iter().all(|(found, _)| *found != ends));
    assert_eq!(rate_of(&client), u64::MAX);
}

/// A connection that had ended made known that its peer was heard, which had been forgotten meanwhile: the next one was free.
#[test]
fn a_connection_that_has_ended_says_nothing_of_its_peer() {
    let (client, server) = pair();
    let peer: IpAddr = [10, 9, 2, 6].into();
    let ends = |port| ((([10, 9, 2, 8], port).into()), (peer, 5640).into());
    let first = admit(client.try_clone().unwrap().into(), ends(1));
    assert!(begin_unheard(first.ends()));
    let pieces = Arc::downgrade(&first.pieces);
    drop(first);
    // Its place may have been taken.
    let again = admit(client.try_clone().unwrap().into(), ends(1));
    assert!(begin_unheard(again.ends()));
    not_heard(ends(1), &pieces);
    assert_eq!(rate_of(&client), UNHEARD_RATE);
    not_heard(ends(1), &Arc::downgrade(&again.pieces));
    assert_eq!(rate_of(&client), u64::MAX);
    let second = admit(server.try_clone().unwrap().into(), ends(2));
    assert!(!begin_unheard(second.ends()), "nobody waits for long");
    forget(peer);
}

/// Half frames take as much of the wire as full ones, and so they are slower. Either port may ask for them.
#[test]
fn half_frames_are_sent_where_one_of_two_ports_asks_for_them() {
    let (client, _server) = pair();
    let ends = (([10, 9, 1, 8], 1).into(), ([10, 9, 1, 6], 2).into());
    let guard = admit(client.try_clone().unwrap().into(), ends);
    let full = segment_bytes(client.as_fd()).unwrap();
    let half = Limit { rate: 4_000_000, in_half: true };
    limit(ends, Port::Receiver, Some(half));
    let slower = rate_of(&client);
    assert_eq!(slower, Frames::of(full, true).payload(4_000_000));
    assert!(slower < 4_000_000);
    assert_eq!(guard.pieces(), Some(full.div_ceil(2)));
    assert!(list().contains(&(ends, Some(4_000_000))), "as it was said");
    limit(ends, Port::Sender, Some(3_900_000.into()));
    assert_eq!(rate_of(&client), Frames::of(full, true).payload(3_900_000));
    assert_eq!(guard.pieces(), Some(full.div_ceil(2)));
    limit(ends, Port::Receiver, Some(4_000_000.into()));
    assert_eq!(rate_of(&client), 3_900_000);
    limit(ends, Port::Receiver, Some(Limit { rate: 0, in_half: true }));
    assert_eq!(rate_of(&client), RATE_MIN);
}
