use super::*;
use crate::os::file::DataFile;
use crate::sim::Rng;
use bytes::Bytes;
use std::fs::File;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), future).await };
    runtime.block_on(limited).expect("it hangs")
}

/// Both ends, of which one has not begun to run yet.
fn met() -> (Met, Met) {
    met_as(false)
}

fn met_as(one_copy: bool) -> (Met, Met) {
    let (one, other) = UnixStream::pair().unwrap();
    let there = std::thread::spawn(move || meet_as(other, one_copy).unwrap());
    (meet_as(one, one_copy).unwrap(), there.join().unwrap())
}

fn pair() -> (Channel, Channel) {
    pair_as(false)
}

/// A pair whose ends may fetch, if the system permits it.
fn pair_as(one_copy: bool) -> (Channel, Channel) {
    let (one, other) = met_as(one_copy);
    let (mut one, mut other) = (Channel::new(one).unwrap(), Channel::new(other).unwrap());
    one.pump(None, 1);
    other.pump(None, 1);
    (one, other)
}

async fn receive(channel: &mut Channel) -> io::Result<(bool, Bytes)> {
    let mut input = BytesMut::new();
    match poll_fn(|context| channel.poll_receive(context, &mut input, usize::MAX)).await? {
        Arrived::Bytes(_) => Ok((false, input.freeze())),
        Arrived::Placed(bytes) => Ok((true, bytes)),
    }
}

fn some(length: usize, random: &mut Rng) -> Vec<u8> {
    let first = random.below(251) as u8;
    (0..length).map(|at| first.wrapping_add((at % 253) as u8)).collect()
}

fn file(bytes: &[u8]) -> (File, DataFile) {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.write_all_at(bytes, 0).unwrap();
    (file.try_clone().unwrap(), DataFile::new(file).unwrap())
}

/// Sends pieces of all sizes and kinds while the other side, which holds on to some of what landed, takes them.
async fn pass(from: &mut Channel, to: &mut Channel, seed: u64) {
    let mut random = Rng::new(seed);
    let (_, data) = file(&some(3 << 20, &mut random));
    let mut wanted = Vec::new();
    let mut pieces = Vec::new();
    for _ in 0..100 {
        let length = match random.below(4) {
            0 => random.below(100),
            1 => random.below(20_000),
            2 => random.below(300_000),
            _ => random.below(2_500_000),
        } as usize;
        pieces.push((length, random.chance(500)));
    }
    let send = async {
        for (length, is_file) in pieces {
            match data.range(7, length).unwrap().filter(|_| is_file) {
                Some(range) => {
                    wanted.extend_from_slice(&data.read_now(7, length).unwrap().unwrap());
                    let (mut range, mut left) = (range, length);
                    while left > 0 {
                        let sent = poll_fn(|context| from.poll_write_range(context, &range)).await;
                        let sent = sent.unwrap();
                        (range.offset, range.length) =
                            (range.offset + sent as u64, range.length - sent);
                        left -= sent;
                    }
                }
                None => {
                    let bytes = some(length, &mut random);
                    wanted.extend_from_slice(&bytes);
                    from.write_all(&bytes).await.unwrap();
                }
            }
        }
        from.write_all(b"the end").await.unwrap();
    };
    let mut got = Vec::new();
    let mut held = std::collections::VecDeque::new();
    let mut placed = 0;
    let receive = async {
        while !got.ends_with(b"the end") {
            let (is_placed, bytes) = receive(to).await.unwrap();
            assert!(!bytes.is_empty());
            got.extend_from_slice(&bytes);
            placed += usize::from(is_placed);
            held.push_back(bytes);
            // More than there are blocks, now and then.
            if held.len() > 50 {
                held.drain(..45);
            }
        }
    };
    tokio::join!(send, receive);
    wanted.extend_from_slice(b"the end");
    assert!(got == wanted, "seed {seed}");
    assert!(placed > 20, "seed {seed}: {placed} pieces landed in blocks");
}

#[test]
fn pieces_of_all_sizes_arrive_whole_and_in_order() {
    block_on(async {
        for one_copy in [false, true] {
            let (mut one, mut other) = pair_as(one_copy);
            for seed in 0..2 {
                pass(&mut one, &mut other, seed).await;
                pass(&mut other, &mut one, seed + 100).await;
            }
            one.pump(None, 1);
            other.pump(None, 1);
            assert!(one.state.lent.is_empty() && other.state.lent.is_empty());
        }
    });
}

#[test]
fn a_range_of_a_file_lands_where_it_stays_and_zeros_stand_for_what_is_gone() {
    block_on(async {
        let (mut one, mut other) = pair();
        let bytes = some(1 << 20, &mut Rng::new(1));
        let (file, data) = file(&bytes);
        let range = data.range(0, 1 << 20).unwrap().expect("it is in memory");
        let mut before = None;
        for length in [1 << 20, 300_000] {
            file.set_len(length).unwrap();
            let sent = poll_fn(|context| one.poll_write_range(context, &range)).await.unwrap();
            assert_eq!(sent, 1 << 20);
            let (is_placed, got) = receive(&mut other).await.unwrap();
            assert!(is_placed && got[..length as usize] == bytes[..length as usize]);
            assert!(got[length as usize..].iter().all(|byte| *byte == 0));
            // The block that was freed last is filled next.
            assert_eq!(*before.get_or_insert(got.as_ptr()), got.as_ptr());
            drop(got);
            other.tell();
            one.pump(None, 1);
        }
    });
}

#[test]
fn a_range_of_a_file_is_fetched_and_zeros_stand_for_what_is_gone() {
    block_on(async {
        let (mut one, mut other) = pair_as(true);
        if !one.state.peer_fetches {
            return covey_harness::skip("one process may not copy from another's memory here");
        }
        let bytes = some(3 << 20, &mut Rng::new(1));
        let (file, data) = file(&bytes);
        let range = data.range(1 << 20, 1 << 20).unwrap().expect("it is in memory");
        let mut before = None;
        for gone in [0, 5000, 1 << 20] {
            let sent = poll_fn(|context| one.poll_write_range(context, &range)).await.unwrap();
            one.write_all(b"behind").await.unwrap();
            assert_eq!(sent, 1 << 20);
            file.set_len((2 << 20) - gone as u64).unwrap();
            // The sender is asked about what is missing, and answers while it waits for something else.
            let mut nothing = BytesMut::new();
            let (is_placed, got) = tokio::select! {
                got = receive(&mut other) => got.unwrap(),
                _ = poll_fn(|context| one.poll_receive(context, &mut nothing, 1)) => unreachable!(),
            };
            let there = (1 << 20) - gone;
            assert!(is_placed && got[..there] == bytes[1 << 20..][..there], "{gone}");
            assert!(got[there..].iter().all(|byte| *byte == 0), "{gone}");
            assert_eq!(receive(&mut other).await.unwrap().1, &b"behind"[..]);
            // The buffer that was used last is used next.
            assert_eq!(*before.get_or_insert(got.as_ptr()), got.as_ptr());
            one.pump(None, 1);
            assert!(one.state.lent.is_empty());
        }
    });
}

/// Takes as much as a place of the user's has room for.
async fn land(channel: &mut Channel, buffer: BytesMut) -> BytesMut {
    let bytes = buffer.len();
    let mut place = Place::new(buffer, bytes);
    // The channel may keep the place meanwhile, so that it has no room.
    let mut left = bytes;
    while left > 0 {
        left -= poll_fn(|context| channel.poll_land(context, &mut place)).await.unwrap();
    }
    place.into_buffer()
}

#[test]
fn a_payload_lands_in_the_users_place_by_one_copy() {
    block_on(async {
        for one_copy in [false, true] {
            let (mut one, mut other) = pair_as(one_copy);
            let bytes = some(3 << 20, &mut Rng::new(1));
            let (_, data) = file(&bytes);
            let range = data.range(1 << 20, 1 << 20).unwrap().expect("it is in memory");
            let mut buffer = BytesMut::zeroed(1 << 20);
            for _ in 0..3 {
                let at = buffer.as_ptr();
                let sent = poll_fn(|context| one.poll_write_range(context, &range)).await.unwrap();
                assert_eq!(sent, 1 << 20);
                buffer = land(&mut other, buffer).await;
                assert_eq!(buffer.as_ptr(), at);
                assert!(buffer == bytes[1 << 20..][..1 << 20]);
            }
            one.pump(None, 1);
            assert!(one.state.lent.is_empty());
        }
    });
}

/// Payloads in memory stay with their sender until they were fetched, in order with everything else; where the peer cannot
/// fetch, they are sent.
#[test]
fn a_payload_in_memory_is_held_until_it_is_fetched() {
    block_on(async {
        for one_copy in [false, true] {
            let (mut one, mut other) = pair_as(one_copy);
            let mut random = Rng::new(7);
            let payloads: Vec<Bytes> = [1 << 20, 20_000, 5000, 3 << 20, 300_000]
                .map(|n| some(n, &mut random).into())
                .into();
            let mut output = Segments::new();
            let mut wanted = Vec::new();
            for payload in &payloads {
                output.small(|out| out.extend_from_slice(b"head"));
                output.shared(payload.clone());
                wanted.extend_from_slice(b"head");
                wanted.extend_from_slice(payload);
            }
            let send = async {
                while !output.is_empty() {
                    let count = poll_fn(|context| one.poll_write_files(context, &output)).await;
                    output.advance(count.unwrap());
                }
                // Who sends also hears what was fetched.
                let fetched = poll_fn(|context| {
                    one.pump(None, 1);
                    if one.state.lent.is_empty() {
                        return Poll::Ready(());
                    }
                    context.waker().wake_by_ref();
                    Poll::Pending
                });
                fetched.await;
            };
            let mut got = Vec::new();
            let receive = async {
                while got.len() < wanted.len() {
                    got.extend_from_slice(&receive(&mut other).await.unwrap().1);
                }
            };
            tokio::join!(send, receive);
            assert!(got == wanted);
            if one_copy && one.state.peer_fetches {
                assert!(payloads[0].is_unique(), "nobody holds what was fetched");
            }
        }
    });
}

/// Fetches until the other side, which polls on a thread of its own, has copied a part.
#[test]
fn both_sides_copy_what_is_fetched() {
    let (here, there) = met_as(true);
    let bytes = some(2 << 20, &mut Rng::new(1));
    let (_, data) = file(&bytes);
    let (is_done, turns) = std::sync::mpsc::channel::<()>();
    let helper = std::thread::spawn(move || {
        block_on(async {
            let mut one = Channel::new(there).unwrap();
            // The other side's thread may not have said so yet.
            let begun = std::time::Instant::now();
            while !one.state.peer_fetches {
                if begun.elapsed() > std::time::Duration::from_secs(5) {
                    return false;
                }
                one.pump(None, 1);
                std::thread::yield_now();
            }
            let range = data.range(5000, 1 << 20).unwrap().expect("it is in memory");
            while turns.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
                poll_fn(|context| one.poll_write_range(context, &range)).await.unwrap();
                // It is asked for help meanwhile, and told what was fetched.
                while !one.state.lent.is_empty() {
                    one.pump(None, 1);
                    std::thread::yield_now();
                    if one.state.end.is_some() {
                        return true;
                    }
                }
                if one.shm.helped_bytes() > 0 {
                    one.write_all(b"helped").await.unwrap();
                    let _ = one.read(&mut [0; 1]).await;
                    return true;
                }
            }
            true
        })
    });
    block_on(async {
        let mut other = Channel::new(here).unwrap();
        let mut buffer = BytesMut::zeroed(1 << 20);
        loop {
            let mut place = Place::new(std::mem::take(&mut buffer), 1 << 20);
            let mut done = 0;
            while done < 1 << 20 {
                let landed = poll_fn(|context| other.poll_land(context, &mut place)).await.unwrap();
                if landed < 1000 {
                    // The last words; or it may not fetch here.
                    return;
                }
                done += landed;
            }
            buffer = place.into_buffer();
            assert!(buffer == bytes[5000..][..1 << 20]);
            buffer.fill(0);
        }
    });
    drop(is_done);
    if !helper.join().unwrap() {
        covey_harness::skip("one process may not copy from another's memory here");
    }
}

#[test]
fn a_channel_ends_although_its_peer_has_begun_to_copy_and_does_not_go_on() {
    block_on(async {
        let (mut one, mut other) = pair_as(true);
        if !one.state.peer_fetches {
            return covey_harness::skip("one process may not copy from another's memory here");
        }
        let bytes = some(1 << 20, &mut Rng::new(1));
        let (_, data) = file(&bytes);
        let range = data.range(0, 1 << 20).unwrap().expect("it is in memory");
        // It claims a part and is never seen again.
        let arena = one.shm.arena.clone();
        let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let claims = std::thread::spawn({
            let is_over = is_over.clone();
            move || {
                let (claim, mut seen) = (&arena.offer(0).claim, 0);
                while !is_over.load(Ordering::Relaxed) {
                    let now = claim.load(Ordering::Acquire);
                    if now >> 32 != seen >> 32
                        && claim
                            .compare_exchange(now, now + 1, Ordering::AcqRel, Ordering::Acquire)
                            .is_ok()
                    {
                        seen = now;
                    }
                    std::hint::spin_loop();
                }
            }
        });
        while other.fetching.is_none() {
            poll_fn(|context| one.poll_write_range(context, &range)).await.unwrap();
            let mut place = Place::new(BytesMut::zeroed(1 << 20), 1 << 20);
            let poll = poll_fn(|context| Poll::Ready(other.poll_land(context, &mut place)));
            match poll.await {
                Poll::Ready(landed) => assert_eq!(landed.unwrap(), 1 << 20),
                Poll::Pending => assert_eq!(place.wanted(), 0, "the channel has it"),
            }
            one.pump(None, 1);
        }
        drop(other);
        is_over.store(true, Ordering::Relaxed);
        claims.join().unwrap();
    });
}

#[test]
fn places_of_all_sizes_are_filled_in_order_by_whatever_comes() {
    block_on(async {
        for one_copy in [false, true] {
            let (mut one, mut other) = pair_as(one_copy);
            let bytes = some(3 << 20, &mut Rng::new(1));
            let (_, data) = file(&bytes);
            let range = data.range(0, 1 << 20).unwrap().expect("it is in memory");
            // A range, bytes of a block, bytes of packets; and places that end anywhere in them.
            let send = async {
                let sent = poll_fn(|context| one.poll_write_range(context, &range)).await.unwrap();
                assert_eq!(sent, 1 << 20);
                one.write_all(&bytes[1 << 20..2 << 20]).await.unwrap();
                one.write_all(&bytes[2 << 20..][..5000]).await.unwrap();
                one.write_all(&bytes[(2 << 20) + 5000..]).await.unwrap();
            };
            let mut got = Vec::new();
            let take = async {
                let mut random = Rng::new(2);
                while got.len() < bytes.len() {
                    let most = (bytes.len() - got.len()) as u64;
                    let length = random.below(700_000).min(most - 1) + 1;
                    let filled = land(&mut other, BytesMut::zeroed(length as usize)).await;
                    got.extend_from_slice(&filled);
                }
            };
            tokio::join!(send, take);
            assert!(got == bytes);
        }
    });
}

#[test]
fn an_idle_channel_sleeps_until_its_peer_sends() {
    block_on(async {
        let (mut one, mut other) = pair();
        for _ in 0..20 {
            let mut input = BytesMut::new();
            let is_asleep = std::cell::Cell::new(false);
            let sender = async {
                while !is_asleep.get() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                one.write_all(b"?").await.unwrap();
            };
            let receiver = poll_fn(|context| {
                let received = other.poll_receive(context, &mut input, 100);
                is_asleep.set(other.is_asleep);
                received
            });
            let (_, received) = tokio::join!(sender, receiver);
            assert!(matches!(received.unwrap(), Arrived::Bytes(1)));
            assert!(!other.is_asleep);
        }
    });
}

#[test]
fn a_sleeper_that_is_behind_lets_the_sender_sleep_too() {
    block_on(async {
        let (mut one, mut other) = pair();
        let bytes = vec![7; 1 << 20];
        let mut held = Vec::new();
        // All blocks are taken; then the window is full.
        let send = async {
            for _ in 0..landing::BLOCKS + 1 {
                one.write_all(&bytes).await.unwrap();
            }
        };
        let take = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut count = 0;
            while count < bytes.len() * (landing::BLOCKS as usize + 1) {
                let (_, got) = receive(&mut other).await.unwrap();
                count += got.len();
                held.push(got);
            }
        };
        tokio::join!(send, take);
        assert!(held.iter().flat_map(|got| got.iter()).all(|byte| *byte == 7));
    });
}

#[test]
fn a_peer_that_is_gone_is_read_to_its_end_and_fails_the_write() {
    block_on(async {
        let (mut one, mut other) = pair();
        other.write_all(b"last words").await.unwrap();
        drop(other);
        let mut words = [0; 10];
        one.read_exact(&mut words).await.unwrap();
        assert_eq!(&words, b"last words");
        assert_eq!(one.read(&mut words).await.unwrap(), 0);
        let error = one.write_all(&[0; 300_000]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn what_landed_stays_when_the_channel_is_gone() {
    block_on(async {
        let (mut one, mut other) = pair();
        one.write_all(&[9; 100_000]).await.unwrap();
        let (is_placed, got) = receive(&mut other).await.unwrap();
        drop((one, other));
        assert!(is_placed && got == vec![9; 100_000]);
    });
}

/// Sends a packet of any kind and tells what the other side makes of it.
async fn answer_to(head: &[u8], payload: &[u8]) -> io::Result<(bool, Bytes)> {
    let (one, Met(mut odd)) = met();
    let mut channel = Channel::new(one).unwrap();
    odd.send(PEER, head, payload.len(), |out| out.copy_from_slice(payload)).unwrap();
    drop(odd);
    receive(&mut channel).await
}

#[test]
fn a_peer_that_breaks_the_rules_is_let_go() {
    let landed = |block: u32, bytes: u32| Head::Landed { block, bytes }.encode();
    let longer = landing::BLOCK_BYTES as u32 + 1;
    let lies = Head::Lies { index: 0, bytes: longer, address: 1 << 40 }.encode();
    let fetched = Head::Fetched { index: 0, is_whole: false }.encode();
    let odd: [(&[u8], &[u8]); 10] = [
        (&lies, &[]),
        (&fetched, &[]),
        (&[], &[]),
        (&[0], b"x"),
        (&[9; 48], b"x"),
        (&landed(0, longer), &[]),
        (&landed(landing::BLOCKS, 1), &[]),
        (&landed(u32::MAX, u32::MAX), &[]),
        (&[3], &0_u32.to_le_bytes()),
        (&Head::Credit { bytes: 1 }.encode(), &[]),
    ];
    block_on(async {
        for (head, payload) in odd {
            let error = answer_to(head, payload).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{head:?}");
        }
        let (is_placed, bytes) = answer_to(&landed(3, 5), &[]).await.unwrap();
        assert_eq!((is_placed, &bytes[..]), (true, &[0; 5][..]));
        let (is_placed, bytes) = answer_to(&[1], b"fine").await.unwrap();
        assert_eq!((is_placed, &bytes[..]), (false, &b"fine"[..]));
    });
}

#[test]
fn a_block_is_not_filled_twice_nor_given_back_twice() {
    block_on(async {
        let (one, Met(mut odd)) = met();
        let mut channel = Channel::new(one).unwrap();
        let landed = Head::Landed { block: 3, bytes: 100 }.encode();
        for _ in 0..2 {
            odd.send(PEER, &landed, 0, |_| {}).unwrap();
        }
        let held = receive(&mut channel).await.unwrap();
        let error = receive(&mut channel).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        drop(held);
    });
}

/// Whatever lies in the memory that a peer writes to, nothing is read or written elsewhere, and nobody panics.
#[test]
fn noise_in_the_inbox_ends_the_channel_or_is_bytes() {
    block_on(async {
        for seed in 0..200 {
            let mut random = Rng::new(seed);
            let (one, Met(mut odd)) = met();
            let mut channel = Channel::new(one).unwrap();
            for _ in 0..20 {
                let head: Vec<u8> = match random.below(3) {
                    0 => (0..random.below(49)).map(|_| random.below(256) as u8).collect(),
                    1 => Head::Landed {
                        block: random.below(40) as u32,
                        bytes: random.below(1 << 21) as u32,
                    }
                    .encode(),
                    _ => vec![random.below(9) as u8],
                };
                let length = random.below(2000) as usize;
                let _ = odd.send(PEER, &head, length, |out| out.fill(head.len() as u8));
            }
            // The words of the ring itself, too: lengths of packets that are none.
            let theirs = odd.links[0].memory();
            for _ in 0..20 {
                let line = random.below(64);
                // SAFETY: a line of the mapping, its word an atomic.
                let word = unsafe { &(*theirs.slots(0).add(line as usize)).word };
                word.store((line + 1) << 32 | random.below(1 << 32), Ordering::Release);
            }
            theirs.consumed(0).slots.store(random.below(u64::MAX), Ordering::Release);
            theirs.consumed(0).bytes.store(random.below(u64::MAX), Ordering::Release);
            drop(odd);
            while let Ok((_, bytes)) = receive(&mut channel).await {
                if bytes.is_empty() {
                    break;
                }
            }
        }
    });
}
