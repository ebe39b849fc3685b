//! Headers of the protocols that carry blocks and files: each payload lands in its final place while its header is
//! told apart, whatever comes first, and nothing is copied between.

use covey_io::os::own::Own;
use covey_io::os::shm::{Settings, Shm};
use covey_uzura::{Completion, Config, Engine, Local, Rule, Source, Started, Tag};
use covey_wire::{Memory, Peer, Span};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const PAYLOAD: usize = 256 << 10;
const TAG: u64 = 9;

/// A message of a protocol: its header, and the bytes of that by which it is told from others.
struct Form {
    name: &'static str,
    header: Vec<u8>,
    matters: Vec<Range<usize>>,
}

/// In the order of the network, which all but 9P have.
#[allow(clippy::big_endian_bytes)]
fn word(word: u32) -> [u8; 4] {
    word.to_be_bytes()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().copied().flat_map(word).collect()
}

/// 9P2000: size, type and tag, and of a write fid and offset; count.
fn ninep(name: &'static str, kind: u8, rest: &[u8]) -> Form {
    let count = PAYLOAD as u32;
    let size = count + 11 + rest.len() as u32;
    let header = [&size.to_le_bytes(), &[kind, 5, 0][..], rest, &count.to_le_bytes()].concat();
    Form { name, header, matters: vec![4..5, 5..7] }
}

/// RFC 1813: a reply to READ with attributes, behind the record mark and the head of RFC 5531.
fn nfs_read() -> Form {
    let reply = words(&[0x8000_0000 + PAYLOAD as u32 + 128, 0x1234, 1, 0, 0, 0, 0]);
    let result = words(&[0, 1]);
    let end = words(&[PAYLOAD as u32, 0, PAYLOAD as u32]);
    // The call's number, that it is a reply, that it was accepted and done.
    let header = [reply, result, vec![7; 84], end].concat();
    Form { name: "NFS READ", header, matters: vec![4..12, 24..36] }
}

/// RFC 1813: a call of WRITE by a user of AUTH_SYS to a file with a handle of 32 bytes.
fn nfs_write() -> Form {
    let call = words(&[0x8000_0000 + PAYLOAD as u32 + 124, 0x77, 0, 2, 100_003, 3, 7]);
    let user = [words(&[1, 24, 0, 4]), b"node".to_vec(), words(&[1000, 1000, 0, 0, 0])].concat();
    let file = [words(&[32]), vec![3; 32], words(&[0, 4096, PAYLOAD as u32, 2])].concat();
    let header = [call, user, file, words(&[PAYLOAD as u32])].concat();
    Form { name: "NFS WRITE", header, matters: vec![8..16, 16..28] }
}

/// RFC 7143: 48 bytes; which command it is of, and where in the command's buffer it belongs.
fn iscsi(name: &'static str, opcode: u8, offset: u32) -> Form {
    let mut header = vec![0; 48];
    header[0] = opcode;
    header[5..8].copy_from_slice(&word(PAYLOAD as u32)[1..]);
    header[16..20].copy_from_slice(&word(0xaa55));
    header[40..44].copy_from_slice(&word(offset));
    Form { name, header, matters: vec![0..1, 16..20, 40..44] }
}

fn forms() -> Vec<Form> {
    let fid_and_offset = [7, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0];
    vec![
        ninep("9P Rread", 117, &[]),
        ninep("9P Twrite", 118, &fid_and_offset),
        nfs_read(),
        nfs_write(),
        iscsi("iSCSI Data-In", 0x25, 0),
        iscsi("iSCSI Data-In, the second of its command", 0x25, PAYLOAD as u32),
        iscsi("iSCSI Data-Out", 0x05, 0),
    ]
}

/// What the message of this place carries.
fn payload(number: usize) -> Vec<u8> {
    (0..PAYLOAD).map(|at| (at * 7 + number * 31) as u8).collect()
}

struct End {
    engine: Engine<Shm, Own>,
    peer: Peer,
}

impl End {
    fn new(socket: UnixStream) -> End {
        let mut shm = Shm::new(Settings::default()).expect("shared memory");
        let memory = shm.memory().expect("the first time");
        let peer = shm.meet(socket).expect("they meet");
        End { engine: Engine::new(shm, memory, Config::default()), peer }
    }

    fn next(&mut self) -> Completion {
        let begun = Instant::now();
        loop {
            self.engine.poll();
            if let Some(completion) = self.engine.completion() {
                return completion;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing happened for a minute");
            std::thread::yield_now();
        }
    }

    /// Where a message of a form is expected: its header, and the payload at the given place.
    fn expect(&mut self, form: &Form, payload: Span, context: u64) -> Span {
        let bytes = form.header.len();
        let header = self.engine.memory().block(bytes);
        let (mut mask, mut value) = (vec![0; bytes], vec![0; bytes]);
        for range in &form.matters {
            mask[range.clone()].fill(0xff);
            value[range.clone()].copy_from_slice(&form.header[range.clone()]);
        }
        let rule = Rule {
            from: Source::From(self.peer),
            tag: Tag::exact(TAG),
            mask: &mask,
            value: &value,
            header,
            payload: Local::bytes(payload),
        };
        let placed = self.engine.place(&rule, context).expect("there is room");
        assert!(matches!(placed, Started::Pending(_)), "nothing has come yet");
        header
    }

    fn bytes(&mut self, span: Span) -> Vec<u8> {
        self.engine.memory().read(span, <[u8]>::to_vec).expect("it is ours")
    }
}

#[test]
fn payloads_of_files_and_blocks_land_in_their_places_whatever_comes_first() {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let (ready, go) = std::sync::mpsc::channel();
    let sender = std::thread::spawn(move || {
        let mut end = End::new(theirs);
        go.recv().expect("everything is expected");
        // The other way round, and a message before them that nobody has a place for.
        let other = end.engine.memory().block(PAYLOAD);
        let mut under_way = 1;
        let sent = end.engine.send_headed(end.peer, TAG, &[99; 200], Local::bytes(other), 100);
        assert!(matches!(sent, Ok(Started::Pending(_))));
        for (number, form) in forms().iter().enumerate().rev() {
            let what = end.engine.memory().block(PAYLOAD);
            end.engine.memory().write(what, |into| into.copy_from_slice(&payload(number))).unwrap();
            let what = Local::bytes(what);
            let sent = end.engine.send_headed(end.peer, TAG, &form.header, what, 0);
            assert!(matches!(sent, Ok(Started::Pending(_))), "it is gathered from where it lies");
            under_way += 1;
        }
        for _ in 0..under_way {
            end.next().result.expect("it is taken");
        }
        end.engine.stats()
    });
    let mut end = End::new(ours);
    let forms = forms();
    let memory = end.engine.memory().block(forms.len() * PAYLOAD);
    let place = |number: usize| memory.part((number * PAYLOAD) as u64, PAYLOAD as u64).unwrap();
    let headers: Vec<Span> = forms
        .iter()
        .enumerate()
        .map(|(number, form)| end.expect(form, place(number), number as u64))
        .collect();
    ready.send(()).expect("the other one waits");
    for _ in &forms {
        let done = end.next();
        assert_eq!(done.result, Ok(()), "{}", forms[done.context as usize].name);
    }
    for (number, form) in forms.iter().enumerate() {
        assert!(end.bytes(headers[number]) == form.header, "{}: its header", form.name);
        assert!(end.bytes(place(number)) == payload(number), "{}: its payload", form.name);
    }
    // The one that fitted no form is still there.
    let rest = end.engine.memory().block(200 + PAYLOAD);
    let taken = end.engine.receive(Source::Any, Tag::exact(TAG), Local::bytes(rest), 0);
    let taken = match taken.expect("there is room") {
        Started::Done(done) => done,
        Started::Pending(_) => end.next(),
    };
    assert_eq!((taken.result, taken.bytes), (Ok(()), 200 + PAYLOAD as u64));
    let (here, there) = (end.engine.stats(), sender.join().expect("it ended well"));
    // Where there is no form, what was sent as a header is payload too.
    let all = ((forms.len() + 1) * PAYLOAD + 200) as u64;
    assert_eq!((here.bytes_held, there.bytes_held), (0, 0), "copied to be copied again");
    assert_eq!(here.bytes_copied + there.bytes_copied, all, "each payload once, by either side");
}
