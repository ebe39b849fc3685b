//! A target with one small unit in memory, and a hand that writes PDUs to it and reads what it says.

#![allow(dead_code, clippy::big_endian_bytes)]

use covey_iscsi::message::{Array, Header, Lengths, NO_TAG, flags};
use covey_iscsi::negotiate::Parameters;
use covey_iscsi::pdu::{self, Digests, Limits, Pdu};
use covey_iscsi::scsi::{Command, Completion, Device, Function, Input, Nexus, Step, TaskAttribute};
use covey_iscsi::store::{Answer, Failure, Held, Hold, Reply, Request};
use covey_iscsi::target::{Access, Connection, Credentials, Portal, Target, TargetConfig};
use covey_iscsi::text::Text;
use covey_wire::{Blame, Bytes, BytesMut, FileRange, Machine, Payload, Segments};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub const TARGET: &str = "iqn.2026-01.org.example:disk";
pub const INITIATOR: &str = "iqn.2026-01.org.example:me";
pub const BLOCK: usize = 512;
/// The unit's number in the flat space of numbers.
pub const FLAT: u64 = 0x4000 << 48;

/// A unit in memory that knows TEST UNIT READY, READ(10), WRITE(10), VERIFY(10), which reads its blocks 16 times, and a write
/// whose opcode is AAh, which is made as its data comes. Its store answers at once, or when it is let. A command that is
/// ORDERED waits for its turn in the same way, and does nothing.
#[derive(Default)]
pub struct Toy {
    pub state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    pub bytes: Vec<u8>,
    /// Whether the store answers only when `release` is called.
    pub is_slow: bool,
    /// Whether reads are answered with a range of a file, where they may be.
    pub lends: bool,
    waiting: Vec<(Request, once::Sender)>,
    pub managed: Vec<Function>,
    pub lost: Vec<u64>,
    pub reads: usize,
    pub writes: usize,
    /// Whether writes fail.
    pub is_broken: bool,
    /// Pieces of the last write's data.
    pub pieces: usize,
}

/// A one-shot channel, so that no runtime is needed.
pub mod once {
    use super::*;

    #[derive(Default)]
    struct Slot {
        reply: Option<Reply>,
        waker: Option<Waker>,
    }

    pub struct Sender(Arc<Mutex<Slot>>);
    pub struct Receiver(Arc<Mutex<Slot>>);

    pub fn channel() -> (Sender, Receiver) {
        let slot = Arc::new(Mutex::new(Slot::default()));
        (Sender(slot.clone()), Receiver(slot))
    }

    impl Sender {
        pub fn send(self, reply: Reply) {
            let mut slot = self.0.lock().unwrap();
            slot.reply = Some(reply);
            slot.waker.take().into_iter().for_each(Waker::wake);
        }

        /// Whether somebody would hear of a reply.
        pub fn is_heard(&self) -> bool {
            self.0.lock().unwrap().waker.is_some()
        }
    }

    impl Future for Receiver {
        type Output = Reply;
        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
            let mut slot = self.0.lock().unwrap();
            if let Some(reply) = slot.reply.take() {
                return Poll::Ready(reply);
            }
            slot.waker = Some(context.waker().clone());
            Poll::Pending
        }
    }
}

/// A command of the toy: what its CDB says.
pub struct ToyTask {
    offset: u64,
    bytes: u64,
    /// Reads of a VERIFY that are to come.
    left: u64,
    /// Bytes of a write that are to come, of all that it brings.
    coming: u64,
    brings: u64,
}

impl State {
    fn answer(&mut self, request: Request) -> Reply {
        match request {
            Request::Read { offset, bytes, may_lend: true } if self.lends => {
                let length = bytes as usize;
                Reply::Data(Payload::of_file(FileRange { file: Arc::new(()), offset, length }))
            }
            Request::Read { offset, bytes, .. } => {
                self.reads += 1;
                let part = &self.bytes[offset as usize..][..bytes as usize];
                Reply::Data(Bytes::copy_from_slice(part).into())
            }
            Request::Write { .. } if self.is_broken => Reply::Failed(Failure::Write),
            Request::Write { offset, data, .. } => {
                self.pieces = data.pieces().len();
                let data = data.into_bytes();
                self.writes += 1;
                self.bytes[offset as usize..][..data.len()].copy_from_slice(&data);
                Reply::Done
            }
            _ => Reply::Done,
        }
    }
}

impl Toy {
    pub fn new(blocks: usize) -> Arc<Toy> {
        let bytes = (0..blocks * BLOCK).map(|at| (at / BLOCK) as u8).collect();
        Arc::new(Toy { state: Mutex::new(State { bytes, ..State::default() }) })
    }

    /// Lets the store answer what it was asked longest ago.
    pub fn release(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.waiting.is_empty() {
            return false;
        }
        let (request, sender) = state.waiting.remove(0);
        let reply = state.answer(request);
        sender.send(reply);
        true
    }

    pub fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting.len()
    }

    /// Whether every answer of the store would wake the connection.
    pub fn is_heard(&self) -> bool {
        self.state.lock().unwrap().waiting.iter().all(|(_, sender)| sender.is_heard())
    }
}

struct Lent;

impl Held for Lent {}

const CHECK: u8 = 2;

impl Device for Toy {
    type Task = ToyTask;

    fn start(&self, lun: u64, _: &Nexus, command: Command) -> (ToyTask, Step) {
        let cdb = &command.cdb;
        let block = u64::from(u32::from_be_bytes(cdb[2..6].try_into().unwrap()));
        let blocks = u64::from(u16::from_be_bytes(cdb[7..9].try_into().unwrap()));
        let (offset, bytes) = (block * BLOCK as u64, blocks * BLOCK as u64);
        let left = if cdb[0] == 0x2f { 15 } else { 0 };
        let brings = if cdb[0] == 0xaa { bytes.min(command.data_out) } else { 0 };
        let task = ToyTask { offset, bytes, left, coming: brings, brings };
        let step = match cdb[0] {
            _ if self.plain(lun) != 0 => end(CHECK),
            _ if command.attribute == TaskAttribute::Ordered => Step::Turn,
            0x00 => end(0),
            0x28 | 0x2f => Step::Store(Request::Read { offset, bytes, may_lend: true }),
            0x2a => Step::Collect { bytes: bytes.min(command.data_out) },
            0xaa => stream(&task),
            _ => end(CHECK),
        };
        (task, step)
    }

    fn next(&self, task: &mut ToyTask, input: Input) -> Step {
        match input {
            Input::Data(data) => {
                let offset = task.offset + task.brings - task.coming;
                task.coming -= task.coming.min(data.len() as u64);
                Step::Store(Request::Write { offset, data, fua: false, continues: false })
            }
            Input::Stored(Reply::Failed(_)) => end(CHECK),
            Input::Stored(_) if task.coming > 0 => stream(task),
            Input::Stored(Reply::Data(_)) if task.left > 0 => {
                task.left -= 1;
                let (offset, bytes) = (task.offset, task.bytes);
                Step::Store(Request::Read { offset, bytes, may_lend: false })
            }
            Input::Stored(Reply::Data(data_in)) => {
                let is_lent = data_in.is_in_files();
                let lent = if is_lent { Hold::new(Arc::new(Lent)) } else { Hold::default() };
                let in_bytes = task.bytes;
                Step::End(Completion { data_in, in_bytes, lent, ..Completion::default() })
            }
            _ => Step::End(Completion { out_bytes: task.bytes, ..Completion::default() }),
        }
    }

    fn ask(&self, _: &ToyTask, request: Request) -> Answer {
        let mut state = self.state.lock().unwrap();
        if !state.is_slow {
            return Answer::Now(state.answer(request));
        }
        let (sender, receiver) = once::channel();
        state.waiting.push((request, sender));
        Answer::Later(Box::pin(receiver))
    }

    fn turn(&self, _: &ToyTask) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (sender, receiver) = once::channel();
        self.state.lock().unwrap().waiting.push((Request::Flush, sender));
        Box::pin(async move { _ = receiver.await })
    }

    fn plain(&self, lun: u64) -> u64 {
        if lun == FLAT { 0 } else { lun }
    }

    fn has_unit(&self, lun: u64) -> bool {
        self.plain(lun) == 0
    }

    fn manage(&self, _: u64, _: &Nexus, function: Function) {
        self.state.lock().unwrap().managed.push(function);
    }

    fn lost(&self, nexus: &Nexus) {
        self.state.lock().unwrap().lost.push(nexus.number);
    }
}

fn stream(task: &ToyTask) -> Step {
    let block_bytes = BLOCK as u64;
    Step::Stream { from: task.brings - task.coming, to: task.brings, block_bytes }
}

fn end(status: u8) -> Step {
    let sense = match status {
        CHECK => Bytes::from_static(&[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0]),
        _ => Bytes::new(),
    };
    Step::End(Completion { status, sense, ..Completion::default() })
}

/// A portal with the toy.
pub fn portal(toy: &Arc<Toy>) -> Arc<Portal<Toy>> {
    portal_with(toy, Access::default(), Parameters::TARGET)
}

pub fn portal_with(toy: &Arc<Toy>, access: Access, parameters: Parameters) -> Arc<Portal<Toy>> {
    let portal = Portal::new();
    portal.add(TargetConfig {
        name: TARGET.into(),
        alias: Some("toy".into()),
        portal_group: 1,
        device: toy.clone(),
        access,
        addresses: Vec::new(),
        parameters,
    });
    portal
}

pub fn target(portal: &Portal<Toy>) -> Arc<Target<Toy>> {
    portal.target(TARGET).unwrap()
}

pub fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.into(), secret: secret.as_bytes().to_vec() }
}

/// One connection, and the hand at its other end.
pub struct Line {
    pub connection: Connection<Toy>,
    pub now: Instant,
    pub digests: Digests,
    pub cmd_sn: u32,
    pub itt: u32,
    pub cid: u16,
    pub isid: [u8; 6],
    pub tsih: u16,
    pub lun: u64,
    pub end: Option<Blame>,
    input: BytesMut,
}

impl Line {
    pub fn new(portal: &Arc<Portal<Toy>>) -> Line {
        let now = Instant::now();
        let connection = Connection::new(portal.clone(), "127.0.0.1:3260".into(), [7; 33], now);
        let (digests, input) = Default::default();
        let isid = [0x80, 0, 0, 1, 0, 0];
        Line {
            connection,
            now,
            digests,
            cmd_sn: 10,
            itt: 0,
            cid: 1,
            isid,
            tsih: 0,
            lun: 0,
            end: None,
            input,
        }
    }

    /// A connection that has logged in with `keys`.
    pub fn logged_in(portal: &Arc<Portal<Toy>>, keys: &[(&str, &str)]) -> Line {
        let mut line = Line::new(portal);
        line.enter(keys);
        line
    }

    /// Another connection of the session of `first`, which has yet to log in.
    pub fn beside(portal: &Arc<Portal<Toy>>, first: &Line, cid: u16) -> Line {
        let mut line = Line::new(portal);
        (line.cid, line.tsih) = (cid, first.tsih);
        line
    }

    pub fn enter(&mut self, keys: &[(&str, &str)]) -> Text {
        let mut text = Text::default();
        text.push("InitiatorName", INITIATOR);
        text.push("TargetName", TARGET);
        keys.iter().for_each(|(key, value)| text.push(key, *value));
        let (status, answer) = self.login(0x80 | 1 << 2 | 3, &text);
        assert_eq!(status, 0, "{answer:?}");
        let has = |key| answer.value(key) == Some("CRC32C");
        self.digests = Digests { header: has("HeaderDigest"), data: has("DataDigest") };
        answer
    }

    /// Sends a login request; status and text of the response.
    pub fn login(&mut self, bits: u8, text: &Text) -> (u16, Text) {
        let data = Payload::from(text.to_bytes());
        let header = self.login_header(bits, &data);
        self.send(&header, true, data);
        let (header, data) = self.answer();
        let Header::LoginResponse { status, tsih, .. } = header else { panic!("{header:?}") };
        self.tsih = tsih;
        (status, Text::parse(&data).unwrap())
    }

    pub fn login_header(&self, bits: u8, data: &Payload) -> Header {
        Header::LoginRequest {
            flags: bits,
            version_max: 0,
            version_min: 0,
            lengths: Lengths::of_data(data.len()),
            isid: Array(self.isid),
            tsih: self.tsih,
            itt: 0,
            cid: self.cid,
            reserved: Default::default(),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: 0,
            reserved_2: Default::default(),
        }
    }

    /// Sends a PDU.
    pub fn send(&mut self, header: &Header, is_immediate: bool, data: Payload) {
        let mut out = Segments::new();
        pdu::put_with_data(header, is_immediate, &data, self.digests, &mut out);
        let bytes: Vec<u8> = out.runs().flatten().copied().collect();
        self.send_bytes(&bytes);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let mut input = BytesMut::from(bytes);
        let result = self.connection.handle_input(self.now, &mut input);
        assert!(result.is_err() || input.is_empty(), "{} bytes are left", input.len());
        self.end = self.end.take().or(result.err());
        self.poll();
    }

    /// Lets the connection act.
    pub fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(result) = self.connection.poll_user(&mut context) {
            if let Err(blame) = result {
                self.end = Some(blame);
                break;
            }
            self.take_output();
        }
        self.take_output();
    }

    fn take_output(&mut self) {
        let mut out = Segments::new();
        while self.connection.poll_output(&mut out, 1 << 20) {}
        for run in out.runs() {
            self.input.extend_from_slice(run);
        }
    }

    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        if self.connection.poll_deadline().is_some_and(|deadline| deadline <= self.now) {
            self.end = self.connection.handle_timeout(self.now).err();
        }
        self.poll();
    }

    /// The next PDU, which must be there.
    pub fn answer(&mut self) -> (Header, Bytes) {
        let pdu = self.next().unwrap_or_else(|| panic!("no answer; ended by {:?}", self.end));
        (pdu.header.unwrap(), pdu.data)
    }

    /// The next PDU, if there is one.
    pub fn next(&mut self) -> Option<Pdu> {
        let limits = Limits { data_bytes_max: 1 << 24, digests: self.digests };
        let pdu = pdu::next(&mut self.input, limits).unwrap();
        assert!(pdu.as_ref().is_none_or(|pdu| pdu.is_sound));
        pdu
    }

    /// Sends a command; its tag.
    pub fn command(&mut self, bits: u8, cdb: [u8; 16], expected: usize, data: &[u8]) -> u32 {
        self.itt += 1;
        let (itt, cmd_sn) = (self.itt, self.cmd_sn);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.command_as(itt, cmd_sn, bits, cdb, expected, data);
        itt
    }

    pub fn command_as(
        &mut self,
        itt: u32,
        cmd_sn: u32,
        bits: u8,
        cdb: [u8; 16],
        expected: usize,
        data: &[u8],
    ) {
        let header = Header::ScsiCommand {
            // SIMPLE, where nothing is said.
            flags: if bits & 7 == 0 { bits | 1 } else { bits },
            reserved: Default::default(),
            lengths: Lengths::of_data(data.len()),
            lun: self.lun,
            itt,
            expected_bytes: expected as u32,
            cmd_sn,
            exp_stat_sn: 0,
            cdb: Array(cdb),
        };
        self.send(&header, false, Bytes::copy_from_slice(data).into());
    }

    pub fn read(&mut self, block: u32, blocks: u16) -> u32 {
        let bits = flags::FINAL | flags::READ;
        self.command(bits, cdb(0x28, block, blocks), usize::from(blocks) * BLOCK, &[])
    }

    /// The bytes of a read.
    pub fn raw_read(&mut self, input: &mut BytesMut, block: u32, blocks: u16) {
        self.raw_read_as(77, input, block, blocks);
    }

    pub fn raw_read_as(&mut self, itt: u32, input: &mut BytesMut, block: u32, blocks: u16) {
        let header = Header::ScsiCommand {
            flags: flags::FINAL | flags::READ | 1,
            reserved: Default::default(),
            lengths: Lengths::default(),
            lun: 0,
            itt,
            expected_bytes: u32::from(blocks) * BLOCK as u32,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: 0,
            cdb: Array(cdb(0x28, block, blocks)),
        };
        let mut bytes = Vec::new();
        header.put(false, &mut bytes);
        input.extend_from_slice(&bytes);
    }

    /// A write whose first `immediate` bytes come with it, and nothing else that is not asked for.
    pub fn write(&mut self, block: u32, data: &[u8], immediate: usize) -> u32 {
        let blocks = data.len().div_ceil(BLOCK) as u16;
        let bits = flags::FINAL | flags::WRITE;
        self.command(bits, cdb(0x2a, block, blocks), data.len(), &data[..immediate])
    }

    pub fn data_out(
        &mut self,
        itt: u32,
        ttt: u32,
        sn: u32,
        offset: usize,
        data: &[u8],
        last: bool,
    ) {
        let header = Header::DataOut {
            flags: if last { flags::FINAL } else { 0 },
            reserved: Default::default(),
            lengths: Lengths::of_data(data.len()),
            lun: 0,
            itt,
            ttt,
            reserved_2: Default::default(),
            exp_stat_sn: 0,
            reserved_3: Default::default(),
            data_sn: sn,
            offset: offset as u32,
            reserved_4: Default::default(),
        };
        self.send(&header, false, Bytes::copy_from_slice(data).into());
    }

    pub fn manage(&mut self, function: u8, referenced_itt: u32, ref_cmd_sn: u32) -> u32 {
        self.itt += 1;
        let header = Header::TaskRequest {
            function: 0x80 | function,
            reserved: Default::default(),
            lengths: Lengths::default(),
            lun: self.lun,
            itt: self.itt,
            referenced_itt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: 0,
            ref_cmd_sn,
            exp_data_sn: 0,
            reserved_2: Default::default(),
        };
        self.send(&header, true, Payload::default());
        self.itt
    }

    /// The response of a command, which must come next.
    pub fn status(&mut self, of: u32) -> u8 {
        let (header, _) = self.answer();
        let Header::ScsiResponse { itt, status, .. } = header else { panic!("{header:?}") };
        assert_eq!(itt, of);
        status
    }

    /// The response to a task management function, which must come next.
    pub fn managed(&mut self, of: u32) -> u8 {
        let (header, _) = self.answer();
        let Header::TaskResponse { itt, response, .. } = header else { panic!("{header:?}") };
        assert_eq!(itt, of);
        response
    }

    /// All data of a read, with its status.
    pub fn data(&mut self, of: u32) -> (Vec<u8>, u8) {
        let mut all = Vec::new();
        loop {
            let (header, data) = self.answer();
            match header {
                Header::DataIn { itt, flags: bits, status, offset, .. } => {
                    assert_eq!((itt, offset as usize), (of, all.len()));
                    all.extend_from_slice(&data);
                    if bits & flags::STATUS != 0 {
                        return (all, status);
                    }
                }
                Header::ScsiResponse { itt, status, .. } if itt == of => return (all, status),
                other => panic!("{other:?}"),
            }
        }
    }

    /// An R2T, which must come next: its tag, offset and length.
    pub fn r2t(&mut self, of: u32) -> (u32, usize, usize) {
        let (header, _) = self.answer();
        let Header::R2t { itt, ttt, offset, desired_bytes, .. } = header else {
            panic!("{header:?}")
        };
        assert_eq!(itt, of);
        assert_ne!(ttt, NO_TAG);
        (ttt, offset as usize, desired_bytes as usize)
    }
}

pub fn cdb(opcode: u8, block: u32, blocks: u16) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&block.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

pub fn text(pairs: &[(&str, &str)]) -> Text {
    let mut text = Text::default();
    pairs.iter().for_each(|(key, value)| text.push(key, *value));
    text
}
