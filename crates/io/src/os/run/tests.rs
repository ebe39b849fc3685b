use super::*;
use bytes::{Buf, Bytes};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

/// Answers each frame (a 32-bit length, then that many bytes) with the same frame. A frame of the one
/// byte `!` is a violation; a `?` is answered when the deadline comes.
#[derive(Default)]
struct Echo {
    replies: VecDeque<Bytes>,
    deadline: Option<Instant>,
    /// It has been told to leave the rest for the next turn.
    leaves: bool,
    /// Length of each frame, and how many bytes had been read past it.
    frames: Vec<(usize, usize)>,
}

impl Machine for Echo {
    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Blame> {
        self.leaves = false;
        while self.bytes_wanted(input) == 0 && !self.leaves {
            let length = input.get_u32_le() as usize;
            let frame = input.split_to(length).freeze();
            match &frame[..] {
                b"!" => return Err(Blame::Violation("a shout".into())),
                b"." => self.leaves = true,
                b"?" => self.deadline = Some(now + Duration::from_millis(10)),
                _ => {
                    self.frames.push((length, input.len()));
                    self.replies.push_back(frame);
                }
            }
        }
        self.leaves &= self.bytes_wanted(input) == 0;
        Ok(())
    }

    fn has_left(&self) -> bool {
        self.leaves
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Blame> {
        assert!(self.deadline.take().is_some_and(|deadline| deadline <= now));
        self.replies.push_back(Bytes::from_static(b"late"));
        Ok(())
    }

    fn poll_output(&mut self, out: &mut Segments, bytes_max: usize) -> bool {
        let before = out.len();
        while out.len() < bytes_max {
            let Some(reply) = self.replies.pop_front() else { break };
            out.small(|out| out.put_u32_le(reply.len() as u32));
            out.shared(reply);
        }
        out.len() > before
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn bytes_wanted(&self, input: &[u8]) -> usize {
        match input.first_chunk::<4>() {
            None => 4 - input.len(),
            Some(header) => (4 + u32::from_le_bytes(*header) as usize).saturating_sub(input.len()),
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn send(stream: &mut UnixStream, frame: &[u8]) {
    stream.write_u32_le(frame.len() as u32).await.unwrap();
    stream.write_all(frame).await.unwrap();
}

async fn receive(stream: &mut UnixStream) -> Vec<u8> {
    let mut frame = vec![0; stream.read_u32_le().await.unwrap() as usize];
    stream.read_exact(&mut frame).await.unwrap();
    frame
}

#[test]
fn frames_of_all_sizes_come_back_and_a_close_is_a_good_end() {
    block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let server = tokio::spawn(run(Echo::default(), server));
        for size in [2, 1, 5000, 1 << 20, 65_532, 65_536, 3, (1 << 20) + 24, 1 << 20, 7] {
            let frame: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            send(&mut client, &frame).await;
            assert_eq!(receive(&mut client).await, frame, "frame of {size} bytes");
        }
        drop(client);
        assert_eq!(server.await.unwrap(), Ok(()));
    });
}

#[test]
fn many_pipelined_frames_come_back_in_order() {
    block_on(async {
        let (client, server) = UnixStream::pair().unwrap();
        tokio::spawn(run(Echo::default(), server));
        let (mut reader, mut writer) = client.into_split();
        let all: Vec<u8> = (0..20_000u32)
            .flat_map(|n| [8u32.to_le_bytes(), n.to_le_bytes(), n.to_le_bytes()].concat())
            .collect();
        let expected = all.clone();
        tokio::spawn(async move { writer.write_all(&all).await });
        let mut got = vec![0; expected.len()];
        reader.read_exact(&mut got).await.unwrap();
        assert!(got == expected);
    });
}

#[test]
fn a_peer_that_takes_nothing_is_not_read_from_without_bound() {
    block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        tokio::spawn(run(Echo::default(), server));
        let frame = vec![7; 1 << 20];
        let mut sent = 0;
        let push = async {
            loop {
                send(&mut client, &frame).await;
                sent += frame.len();
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(300), push).await;
        assert!(sent >= 1 << 20, "sent {sent}");
        assert!(sent <= OUTPUT_BYTES_MAX + (4 << 20), "sent {sent}");
    });
}

#[test]
fn a_deadline_wakes_the_machine() {
    block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        tokio::spawn(run(Echo::default(), server));
        send(&mut client, b"?").await;
        assert_eq!(receive(&mut client).await, b"late");
        send(&mut client, b"?").await;
        assert_eq!(receive(&mut client).await, b"late");
    });
}

#[test]
fn what_was_answered_before_a_violation_is_still_sent() {
    block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let server = tokio::spawn(run(Echo::default(), server));
        client.write_all(b"\x02\0\0\0hi\x01\0\0\0!").await.unwrap();
        assert_eq!(receive(&mut client).await, b"hi");
        assert_eq!(server.await.unwrap(), Err(Blame::Violation("a shout".into())));
    });
}

#[test]
fn a_close_inside_a_message_is_blamed_on_the_peer() {
    block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let server = tokio::spawn(run(Echo::default(), server));
        client.write_all(b"\x09\0\0\0half").await.unwrap();
        drop(client);
        let Err(Blame::Malformed(what)) = server.await.unwrap() else { panic!("no blame") };
        assert_eq!(what, "connection closed inside a message, after 8 bytes with 5 to come");
    });
}

#[test]
fn nothing_is_read_past_a_large_message() {
    block_on(async {
        let (client, server) = UnixStream::pair().unwrap();
        let mut link = Link::new(Echo::default(), server, ());
        let (mut reader, mut writer) = client.into_split();
        let mut frame = (1u32 << 20).to_le_bytes().to_vec();
        frame.resize(4 + (1 << 20), 9);
        let send = async {
            for _ in 0..4 {
                writer.write_all(&frame).await.unwrap();
            }
            drop(writer);
        };
        let receive = async {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).await.unwrap();
            assert!(all == frame.repeat(4));
        };
        let serve = async {
            let end = poll_fn(|context| link.poll_turns(context)).await;
            link.last_words().await;
            let frames = std::mem::take(&mut link.machine.frames);
            drop(link);
            (end, frames)
        };
        let ((end, frames), (), ()) = tokio::join!(serve, send, receive);
        assert_eq!(end, Ok(()));
        assert_eq!(frames, [(1 << 20, 0); 4]);
    });
}

/// Takes frames as `Echo` does, into one buffer as long as it has it.
#[derive(Default)]
struct Lander {
    buffer: Option<BytesMut>,
    landed: Option<BytesMut>,
    partly: usize,
}

impl Machine for Lander {
    fn handle_input(&mut self, _: Instant, input: &mut BytesMut) -> Result<(), Blame> {
        self.partly += usize::from(self.bytes_wanted(input) > 0 && self.buffer.is_none());
        Ok(())
    }

    fn handle_timeout(&mut self, _: Instant) -> Result<(), Blame> {
        unreachable!("there is no deadline")
    }

    fn poll_output(&mut self, _: &mut Segments, _: usize) -> bool {
        false
    }

    fn poll_deadline(&self) -> Option<Instant> {
        None
    }

    fn bytes_wanted(&self, input: &[u8]) -> usize {
        Echo::default().bytes_wanted(input)
    }

    fn deposit(&mut self, input: &[u8]) -> Deposit {
        Deposit::UpTo(4_usize.saturating_sub(input.len()).max(1))
    }

    fn landing(&mut self, input: &mut BytesMut) -> Option<Landing> {
        let length = u32::from_le_bytes(*input.first_chunk()?);
        let mut landing = Landing::new(self.buffer.take()?, length as usize);
        landing.put(&input[4..]);
        input.truncate(4);
        Some(landing)
    }

    fn landed(&mut self, _: Instant, input: &mut BytesMut, landing: Landing) -> Result<(), Blame> {
        input.clear();
        self.landed = Some(landing.into_buffer());
        Err(Blame::Violation("it has what it wanted".into()))
    }
}

#[test]
fn a_payload_with_a_place_is_received_there_and_nowhere_else() {
    block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let buffer = BytesMut::zeroed(1 << 20);
        let at = buffer.as_ptr();
        let mut link = Link::new(Lander { buffer: Some(buffer), ..Lander::default() }, server, ());
        let frame: Vec<u8> = (0..1_000_000).map(|at| (at % 251) as u8).collect();
        let (_, end) =
            tokio::join!(send(&mut client, &frame), poll_fn(|context| link.poll_turns(context)));
        assert!(end.is_err());
        let landed = link.machine.landed.take().expect("it has landed");
        assert_eq!(landed.as_ptr(), at);
        assert!(landed == frame);
        assert!(link.input.capacity() <= 2 * READ_BYTES, "no room was made for the payload");
        assert!(link.machine.partly > 0, "parts of it are signs of life");
    });
}

#[test]
fn a_close_while_a_payload_lands_is_blamed_on_the_peer() {
    block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let buffer = Some(BytesMut::zeroed(100));
        let server = tokio::spawn(run(Lander { buffer, ..Lander::default() }, server));
        client.write_all(b"\x09\0\0\0half").await.unwrap();
        drop(client);
        assert!(matches!(server.await.unwrap(), Err(Blame::Malformed(_))));
    });
}

/// Notes what it hears.
struct Ear(Rc<RefCell<Vec<(usize, bool)>>>);

impl Observer<UnixStream> for Ear {
    fn heard(&mut self, _: &UnixStream, bytes: usize, owed: bool) {
        self.0.borrow_mut().push((bytes, owed));
    }
}

#[test]
fn an_observer_hears_what_is_read_and_whether_an_answer_was_owed() {
    block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let heard = Rc::new(RefCell::new(Vec::new()));
        let ear = Ear(heard.clone());
        let served = run_on(Echo::default(), server, BytesMut::new(), ear);
        let asked = async {
            let first = *b"\x03\0\0\0abc";
            client.write_all(&first).await.unwrap();
            receive(&mut client).await;
            // In two parts: that is one message, and nothing was owed when it came.
            client.write_all(&first[..5]).await.unwrap();
            yield_often().await;
            client.write_all(&first[5..]).await.unwrap();
            receive(&mut client).await;
            // The answer to this one is still owed when the next one comes.
            client.write_all(b"\x01\0\0\0?").await.unwrap();
            while heard.borrow().len() < 3 {
                tokio::task::yield_now().await;
            }
            client.write_all(&first).await.unwrap();
            receive(&mut client).await;
            receive(&mut client).await;
            drop(client);
        };
        let (served, ()) = tokio::join!(served, asked);
        served.unwrap();
        assert_eq!(*heard.borrow(), [(7, false), (7, false), (5, false), (7, true)]);
    });
}

/// Gives the other side the time to read what was sent.
async fn yield_often() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// What a machine has left in the input is handed to it when what it said is sent, without anything more to read.
#[test]
fn what_a_machine_leaves_comes_in_the_next_turn() {
    block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let frames: Vec<u8> = [&b"one"[..], b".", b"two", b".", b".", b"three", b"."]
            .iter()
            .flat_map(|frame| [&(frame.len() as u32).to_le_bytes()[..], frame].concat())
            .collect();
        client.write_all(&frames).await.unwrap();
        let serving = run(Echo::default(), server);
        let asking = async move {
            for expected in ["one", "two", "three"] {
                assert_eq!(receive(&mut client).await, expected.as_bytes());
            }
        };
        tokio::join!(serving, asking).0.unwrap();
    });
}

/// Notes what it is told to wait for.
struct Noting {
    stream: UnixStream,
    told: Rc<RefCell<Vec<usize>>>,
}

impl Stream for Noting {
    fn set_low_water(&mut self, bytes: usize) {
        self.told.borrow_mut().push(bytes);
    }

    fn worth_waking_for(&self, wanted: usize) -> usize {
        (wanted / 4).max(1)
    }
}

impl AsyncRead for Noting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Noting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A wire that is shared brings a payload in single frames: nobody wants to be woken for each.
#[test]
fn a_stream_is_told_how_much_of_a_large_message_to_wait_for() {
    assert_eq!(told(Echo::default()), [1000, 250, 1]);
    assert_eq!(
        told(Lander { buffer: Some(BytesMut::zeroed(4000)), ..Lander::default() }),
        [1000, 250]
    );
}

/// What the stream is told while a message of 4,000 bytes comes in two parts.
fn told(machine: impl Machine) -> Vec<usize> {
    let told = Rc::<RefCell<Vec<usize>>>::default();
    let told_by_now = told.clone();
    let until = async |bytes| {
        while told_by_now.borrow().last() != Some(&bytes) {
            tokio::task::yield_now().await;
        }
    };
    block_on(async {
        let (mut client, stream) = UnixStream::pair().unwrap();
        let end = run(machine, Noting { stream, told: told.clone() });
        let send = async {
            client.write_u32_le(4000).await.unwrap();
            until(1000).await;
            client.write_all(&[7; 3000]).await.unwrap();
            until(250).await;
            client.write_all(&[7; 1000]).await.unwrap();
            yield_often().await;
            drop(client);
        };
        let both = async { tokio::join!(end, send) };
        tokio::time::timeout(Duration::from_secs(20), both).await.expect("it is told").1
    });
    told.take()
}
