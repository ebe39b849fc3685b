//! What the machine itself does between two processes with nothing in between: the floors that figures of a
//! message engine are laid beside.
//!
//! Two processes map the same memory. One [asks](Asker): it puts a question there and does and times its
//! half. The other [answers](Answerer): it waits for questions, awake at first, and does the other half.
//!
//! ```text
//!   Asker ──question, arguments──► shared memory ◄──ready, result── Answerer
//!     └──── cache lines, process_vm_readv, a mapped matrix, TCP on loopback ────┘
//! ```
//!
//! Nobody waits for ever: a half that does not come within [`PATIENCE`] is an error.

mod echo;
mod word;

use covey_io::os::process::read_memory;
use covey_io::os::words::Words;
use echo::{Wait, echo, read_full, write_full};
use rustix::io::Errno;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use word::Word;

/// How long one may wait for the other.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The longest matrix that can be mapped, in bytes.
pub const MAPPED_BYTES_MAX: usize = 16 << 20;
/// How long an answerer looks for the next question without sleeping.
const AWAKE: Duration = Duration::from_millis(2);
/// How long it sleeps between two looks afterwards.
const SLEEP: Duration = Duration::from_micros(200);
/// So many looks go by between two looks at the clock.
const LOOKS: u32 = 1 << 16;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Question {
    Line = 1,
    FillMapped,
    FillHeap,
    Connect,
    EchoBlocking,
    EchoBusy,
    CpuTime,
    Part,
    End,
}

impl Question {
    fn of(code: u64) -> Option<Question> {
        use Question::*;
        let all = [Line, FillMapped, FillHeap, Connect, EchoBlocking, EchoBusy, CpuTime, Part, End];
        all.into_iter().find(|question| *question as u64 == code)
    }
}

/// The half that asks and measures.
#[derive(Debug)]
pub struct Asker {
    map: Words,
    asked: u64,
    /// Pings so far: each has its number, so that nothing has to be set back.
    pings: u64,
    mapped_bytes: usize,
    heap: Option<Heap>,
    link: Option<TcpStream>,
    block: Vec<u8>,
}

/// Memory of the other process.
#[derive(Clone, Copy, Debug)]
struct Heap {
    process: i32,
    address: u64,
    bytes: usize,
}

impl Asker {
    /// Makes the shared memory. Whoever opens [`path`](Asker::path) is the other.
    pub fn new() -> io::Result<Asker> {
        let map = Words::new(MAPPED_BYTES_MAX)?;
        let (link, heap, block) = (None, None, Vec::new());
        Ok(Asker { map, asked: 0, pings: 0, mapped_bytes: 0, heap, link, block })
    }

    /// Where the other process finds the memory, as long as this one lives.
    pub fn path(&self) -> PathBuf {
        self.map.path()
    }

    /// Half of the time that a cache line takes there and back: so many round trips, all of them.
    pub fn line(&mut self, rounds: u32) -> io::Result<Duration> {
        let base = self.pings;
        self.ask(Question::Line, base, rounds.into())?;
        self.pings += u64::from(rounds);
        let (ping, pong) = (self.map.word(Word::Ping as usize), self.map.word(Word::Pong as usize));
        let begin = Instant::now();
        for number in base + 1..=self.pings {
            ping.set(number);
            pong.wait_for(number)?;
        }
        Ok(begin.elapsed())
    }

    /// Has the other write numbers 0, 1, 2, ... as f32 to the shared memory.
    pub fn fill_mapped(&mut self, bytes: usize) -> io::Result<()> {
        self.mapped_bytes = 0;
        if bytes > MAPPED_BYTES_MAX {
            let text = format!("{bytes} bytes are to be mapped, limit is {MAPPED_BYTES_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.ask(Question::FillMapped, bytes as u64, 0)?;
        self.mapped_bytes = bytes;
        Ok(())
    }

    /// What the other wrote there.
    pub fn mapped(&self) -> &[u8] {
        self.map.data(self.mapped_bytes)
    }

    /// Has the other write the same numbers to memory of its own.
    pub fn fill_heap(&mut self, bytes: usize) -> io::Result<()> {
        self.heap = None;
        let address = self.ask(Question::FillHeap, bytes as u64, 0)?;
        let process = self.map.word(Word::Process as usize).value() as i32;
        self.heap = Some(Heap { process, address, bytes });
        Ok(())
    }

    /// Reads the other's own memory with `process_vm_readv`, from `at` on.
    pub fn read_heap(&self, at: usize, into: &mut [u8]) -> io::Result<()> {
        let heap = self.heap.ok_or(io::ErrorKind::NotConnected)?;
        if at.checked_add(into.len()).is_none_or(|end| end > heap.bytes) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match read_memory(heap.process, heap.address + at as u64, into)? {
            count if count == into.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// So many round trips of a block over TCP on loopback; both wait awake, or in the kernel.
    pub fn echo(&mut self, bytes: usize, rounds: u32, is_busy: bool) -> io::Result<Duration> {
        self.connect()?;
        let question = if is_busy { Question::EchoBusy } else { Question::EchoBlocking };
        self.ask(question, bytes as u64, rounds.into())?;
        let link = self.link.as_ref().expect("it was just connected");
        self.block.resize(bytes, 0);
        let wait = Wait::on(link, is_busy)?;
        let begin = Instant::now();
        for _ in 0..rounds {
            write_full(link, &self.block, wait)?;
            read_full(link, &mut self.block, wait)?;
        }
        Ok(begin.elapsed())
    }

    fn connect(&mut self) -> io::Result<()> {
        if self.link.is_some() {
            return Ok(());
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        // The other connects before it is ready, so nobody waits here.
        self.ask(Question::Connect, listener.local_addr()?.port().into(), 0)?;
        let (link, _) = listener.accept()?;
        link.set_nodelay(true)?;
        self.link = Some(link);
        Ok(())
    }

    /// Asks for what the other's [`Part`] understands. When this returns, the other has prepared and begun it.
    pub fn part(&mut self, first: u64, second: u64) -> io::Result<u64> {
        self.ask(Question::Part, first, second)
    }

    /// CPU time of the other process so far.
    pub fn cpu_time_of_other(&mut self) -> io::Result<Duration> {
        Ok(Duration::from_nanos(self.ask(Question::CpuTime, 0, 0)?))
    }

    /// Lets the other end.
    pub fn end(mut self) -> io::Result<()> {
        self.ask(Question::End, 0, 0).map(drop)
    }

    fn ask(&mut self, question: Question, first: u64, second: u64) -> io::Result<u64> {
        self.asked += 1;
        self.map.word(Word::Question as usize).put(question as u64);
        self.map.word(Word::First as usize).put(first);
        self.map.word(Word::Second as usize).put(second);
        self.map.word(Word::Asked as usize).set(self.asked);
        self.map.word(Word::Ready as usize).wait_for(self.asked)?;
        match self.map.word(Word::Failed as usize).value() {
            0 => Ok(self.map.word(Word::Result as usize).value()),
            code => Err(io::Error::from_raw_os_error(code as i32)),
        }
    }
}

/// What else one that answers can do: its half of something that is measured against the floors.
pub trait Part {
    /// Makes ready, and answers with a number.
    fn prepare(&mut self, first: u64, second: u64) -> io::Result<u64>;

    /// Does its half while the other measures.
    fn run(&mut self, first: u64, second: u64) -> io::Result<()>;
}

/// The half that answers.
#[derive(Debug)]
pub struct Answerer {
    map: Words,
    heap: Vec<u8>,
    link: Option<TcpStream>,
    block: Vec<u8>,
    parent: Option<rustix::process::Pid>,
}

impl Answerer {
    /// Opens the memory of one that asks.
    pub fn open(path: &Path) -> io::Result<Answerer> {
        let map = Words::open(path, MAPPED_BYTES_MAX)?;
        let parent = rustix::process::getppid();
        Ok(Answerer { map, heap: Vec::new(), link: None, block: Vec::new(), parent })
    }

    /// Answers until the other ends, or is gone.
    pub fn serve(mut self, part: &mut dyn Part) -> io::Result<()> {
        let mut number = 0;
        while self.is_asked(number + 1) {
            number += 1;
            let question = Question::of(self.map.word(Word::Question as usize).value());
            let arguments =
                [Word::First, Word::Second].map(|word| self.map.word(word as usize).value());
            let result = self.prepare(question, arguments, part);
            let code = result
                .as_ref()
                .err()
                .map_or(0, |error| error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
            self.map.word(Word::Failed as usize).put(code as u64);
            self.map.word(Word::Result as usize).put(result.unwrap_or(0));
            self.map.word(Word::Ready as usize).set(number);
            if question == Some(Question::End) {
                break;
            }
            if code == 0 {
                self.answer(question, arguments, part)?;
            }
        }
        Ok(())
    }

    /// Waits for a question; none comes from one that is gone.
    fn is_asked(&self, number: u64) -> bool {
        let asked = self.map.word(Word::Asked as usize);
        let begin = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if asked.value() == number {
                    return true;
                }
                std::hint::spin_loop();
            }
            while begin.elapsed() > AWAKE {
                if asked.value() == number {
                    return true;
                }
                if rustix::process::getppid() != self.parent {
                    return false;
                }
                std::thread::sleep(SLEEP);
            }
        }
    }

    /// What comes before the other may begin.
    fn prepare(
        &mut self,
        question: Option<Question>,
        [first, second]: [u64; 2],
        part: &mut dyn Part,
    ) -> io::Result<u64> {
        match question {
            Some(Question::Part) => part.prepare(first, second),
            Some(Question::FillMapped) => {
                numbers(self.map.data_mut(first as usize));
                Ok(0)
            }
            Some(Question::FillHeap) => {
                self.heap.clear();
                self.heap.resize(first as usize, 0);
                numbers(&mut self.heap);
                let process = rustix::process::getpid().as_raw_nonzero().get();
                self.map.word(Word::Process as usize).put(process as u64);
                Ok(self.heap.as_ptr().addr() as u64)
            }
            Some(Question::Connect) => {
                let to = SocketAddr::from((Ipv4Addr::LOCALHOST, first as u16));
                let link = TcpStream::connect_timeout(&to, PATIENCE)?;
                link.set_nodelay(true)?;
                self.link = Some(link);
                Ok(0)
            }
            Some(Question::CpuTime) => Ok(cpu_time().as_nanos() as u64),
            Some(Question::End | Question::Line | Question::EchoBlocking | Question::EchoBusy) => {
                Ok(0)
            }
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// What comes while the other measures.
    fn answer(
        &mut self,
        question: Option<Question>,
        [first, second]: [u64; 2],
        part: &mut dyn Part,
    ) -> io::Result<()> {
        match question {
            Some(Question::Part) => part.run(first, second),
            Some(Question::Line) => {
                let (ping, pong) =
                    (self.map.word(Word::Ping as usize), self.map.word(Word::Pong as usize));
                for number in first + 1..=first + second {
                    ping.wait_for(number)?;
                    pong.set(number);
                }
                Ok(())
            }
            Some(question @ (Question::EchoBlocking | Question::EchoBusy)) => {
                let link = self.link.as_ref().ok_or(io::ErrorKind::NotConnected)?;
                self.block.resize(first as usize, 0);
                let wait = Wait::on(link, question == Question::EchoBusy)?;
                (0..second).try_for_each(|_| echo(link, &mut self.block, wait))
            }
            _ => Ok(()),
        }
    }
}

/// CPU time of this process so far.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), time.tv_nsec as u32)
}

/// The numbers 0, 1, 2, ... as f32.
#[expect(clippy::host_endian_bytes, reason = "both processes are on this machine")]
fn numbers(bytes: &mut [u8]) {
    for (index, four) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *four = (index as f32).to_ne_bytes();
    }
}

#[cfg(test)]
mod tests;
