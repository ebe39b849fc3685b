//! Endpoints of reliable datagrams: an engine each, with the queues and counters that it reports to.

pub mod atomic;
mod layouts;
mod messages;
mod msg;
mod progress;
mod rma;
mod settings;
mod tagged;

use crate::abi::{self, CqEntry, FiAddr, Fid, FidEp, Info, Ops, OpsCm, OpsEp};
use crate::av::{Av, AvObject};
use crate::boundary::{Errno, Result, call, give, held, object, put, put_bytes, take};
use crate::cntr::{Cntr, CntrObject};
use crate::cq::{Cq, CqObject};
use crate::domain::{Shared, State};
use crate::mr::Region;
use crate::slab::Slab;
use crate::wait::Waker;
use covey_io::os::addresses::{Addresses, span_of};
use covey_io::os::limits;
use covey_io::os::mixed::{ADDRESS_BYTES, Address, Mixed, Secret};
use covey_io::os::random;
use covey_uzura::{Claim, Completion, Config, Engine, OpId, Probe};
use covey_wire::transport::Glance;
use covey_wire::{Peer, Span, Transport};
use libc::iovec;
use messages::Pieces;
pub use messages::span;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// An endpoint.
pub struct Endpoint {
    pub engine: Engine<Mixed, Addresses>,
    pub address: Address,
    is_enabled: bool,
    /// Flags of operations that name none.
    tx_flags: u64,
    rx_flags: u64,
    caps: u64,
    av: Option<usize>,
    tx: Report,
    rx: Report,
    /// By [`COUNTED`].
    counters: [Option<usize>; COUNTED.len()],
    /// Any counter is bound.
    is_counted: bool,
    /// By `fi_addr_t`, those that were met.
    peers: Vec<Option<Peer>>,
    /// By peer.
    numbers: Vec<FiAddr>,
    ops: Slab<Op>,
    /// What peers have written and told, and the queue has no room for.
    late: VecDeque<Completion>,
    /// Messages that were claimed, by the contexts with which they were.
    claims: Vec<(*mut c_void, Claim, Probe)>,
    forms: layouts::Forms,
    /// For the next copy.
    spare: Option<Box<Room>>,
    /// Its transport was told that somebody sleeps.
    sleeps: bool,
    min_multi_recv: usize,
    /// Accesses of peers are reported by themselves, whether they come with a word or not.
    reports_access: bool,
}

/// Where the ends of operations are reported.
#[derive(Clone, Copy, Default)]
struct Report {
    cq: Option<usize>,
    /// Only of those that ask for it.
    is_selective: bool,
}

/// An operation under way.
pub struct Op {
    context: *mut c_void,
    /// Its flags in a queue.
    kind: u64,
    /// Its end is reported to the queue, and not its failure only.
    reports: bool,
    id: Option<OpId>,
    /// None where it is the program's.
    memory: Option<Box<Room>>,
    /// Bytes of it.
    room: usize,
}

/// Memory of an operation that is not simply the program's.
pub enum Room {
    /// A copy of ours, which stays for as long as the operation needs it.
    Copied(Vec<u8>),
    /// What is received, and the places where it belongs.
    Scattered(Box<[u8]>, Vec<iovec>),
    /// That of several operands, and of a result.
    All(Vec<Room>),
    /// The program's, for many messages.
    ForMany(*mut c_void),
}

impl Room {
    /// A copy of what is to be sent, in memory that was used before.
    fn copied(pieces: &Pieces<'_>, mut spare: Option<Box<Room>>) -> (Option<Box<Room>>, Span) {
        let mut bytes = match spare.as_deref_mut() {
            Some(Room::Copied(bytes)) => std::mem::take(bytes),
            _ => Vec::new(),
        };
        pieces.gather(&mut bytes);
        let (local, copied) = (span_of(&mut bytes), Room::Copied(bytes));
        match spare.as_deref_mut() {
            Some(room) => *room = copied,
            None => spare = Some(Box::new(copied)),
        }
        (spare, local)
    }

    /// Room for what belongs to several places.
    fn scattered(places: &[iovec]) -> (Option<Box<Room>>, Span) {
        let bytes = places.iter().map(|place| place.iov_len).sum();
        let mut room = vec![0; bytes].into_boxed_slice();
        let local = span_of(&mut room);
        (Some(Box::new(Room::Scattered(room, places.to_vec()))), local)
    }
}

/// What counters can be asked to count.
const COUNTED: [u64; 6] =
    [abi::SEND, abi::RECV, abi::READ, abi::WRITE, abi::REMOTE_READ, abi::REMOTE_WRITE];

/// Queues and counters, while an endpoint is at work.
pub struct Queues<'a> {
    cqs: &'a mut Slab<Cq>,
    cntrs: &'a mut Slab<Cntr>,
    regions: &'a Slab<Region>,
}

impl State {
    /// An endpoint, and what it works with.
    #[inline(always)]
    fn endpoint(&mut self, number: usize) -> Result<(&mut Endpoint, &Slab<Av>, Queues<'_>)> {
        let State { endpoints, avs, cqs, cntrs, regions } = self;
        let endpoint = endpoints.find(number).ok_or(Errno(libc::EINVAL))?;
        Ok((endpoint, avs, Queues { cqs, cntrs, regions }))
    }

    /// An endpoint goes on.
    #[inline]
    pub fn progress(&mut self, number: usize) {
        if let Ok((endpoint, avs, mut queues)) = self.endpoint(number) {
            endpoint.progress(avs, &mut queues);
        }
    }

    /// Looks for a message of an endpoint that has come, where that takes least, and gives the end of its receive to `with`.
    #[inline(always)]
    pub fn glance(&mut self, number: usize, cq: usize, with: impl FnMut(CqEntry)) -> Glance {
        let Ok((endpoint, avs, mut queues)) = self.endpoint(number) else { return Glance::Unknown };
        endpoint.glance(avs, &mut queues, cq, with)
    }

    /// Whether one may sleep until the endpoint's transport wakes.
    pub fn prepare_sleep(&mut self, number: usize) -> bool {
        let Some(endpoint) = self.endpoints.find(number) else { return true };
        if !endpoint.engine.is_idle() {
            return false;
        }
        endpoint.sleeps = endpoint.engine.transport().prepare_sleep();
        endpoint.sleeps
    }
}

/// `struct fid_ep`, and ours behind it.
#[repr(C)]
pub struct EpObject {
    fid: FidEp,
    shared: Arc<Shared>,
    number: usize,
}

/// # Safety
///
/// As `fi_endpoint`.
pub unsafe fn open(
    shared: &Arc<Shared>,
    info: &Info,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> Result<c_int> {
    // SAFETY: the caller's promise.
    let (tx_flags, rx_flags) = unsafe {
        let ep = info.ep_attr.as_ref();
        if ep.is_some_and(|ep| !matches!(ep.ep_type, abi::EP_UNSPEC | abi::EP_RDM)) {
            return Err(Errno(libc::EINVAL));
        }
        let tx_flags = info.tx_attr.as_ref().map_or(0, |tx| tx.op_flags);
        (tx_flags, info.rx_attr.as_ref().map_or(0, |rx| rx.op_flags))
    };
    let settings = settings::of(info)?;
    // A peer takes up to three of them, and the usual 1024 are soon gone. Where it may not have more it meets fewer by memory.
    let _ = limits::raise_open_files();
    let mut mixed = Mixed::new(&settings)?;
    let address = mixed.open(&settings, Secret::of_job()?)?;
    let seed = u64::from_le_bytes(random::bytes()?);
    let (eager, config) = (settings::eager_limit(), Config::default());
    let eager_bytes_max = eager.unwrap_or(settings::EAGER_BYTES);
    let eager_posted_bytes_max = eager.unwrap_or(config.eager_posted_bytes_max);
    let config = Config { seed, eager_bytes_max, eager_posted_bytes_max, ..config };
    // SAFETY: what a program names in its operations and registrations is memory of its own for as long as libfabric
    // says, which is until their end.
    let memory = unsafe { Addresses::new() };
    let mut engine = Engine::new(mixed, memory, config);
    if let Some(descriptor) = engine.transport().sleep_on() {
        shared.waker.watch(descriptor)?;
    }
    let endpoint = Endpoint {
        engine,
        address,
        is_enabled: false,
        tx_flags,
        rx_flags,
        caps: info.caps,
        av: None,
        tx: Report::default(),
        rx: Report::default(),
        counters: [None; COUNTED.len()],
        is_counted: false,
        peers: Vec::new(),
        numbers: Vec::new(),
        ops: Slab::default(),
        late: VecDeque::new(),
        claims: Vec::new(),
        forms: layouts::Forms::default(),
        spare: None,
        sleeps: false,
        min_multi_recv: 64,
        reports_access: shared.reports_access,
    };
    let number = shared.gate.with(|state| {
        let mut endpoint = endpoint;
        for (_, region) in state.regions.each() {
            region.enter(&mut endpoint.engine)?;
        }
        for (_, cntr) in state.cntrs.each().filter(|(_, cntr)| cntr.regions > 0) {
            endpoint.wakes(cntr.waker())?;
        }
        Ok::<usize, Errno>(state.endpoints.add(endpoint))
    })?;
    let fid = Fid { class: abi::CLASS_EP, context, ops: &raw const OPS };
    let fid = FidEp {
        fid,
        ops: &raw const EP_OPS,
        cm: &raw const CM_OPS,
        msg: &raw const msg::OPS,
        rma: &raw const rma::OPS,
        tagged: &raw const tagged::OPS,
        atomic: &raw const atomic::OPS,
        collective: std::ptr::null(),
    };
    // SAFETY: the caller's promise.
    unsafe { give(out, EpObject { fid, shared: shared.clone(), number }) }
}

impl Endpoint {
    /// Wakes a sleeper when something comes.
    pub fn wakes(&mut self, waker: &Waker) -> Result<()> {
        if let Some(descriptor) = self.engine.transport().sleep_on() {
            waker.watch(descriptor)?;
        }
        Ok(())
    }

    /// A number of an address vector means something else from now on.
    pub fn forget(&mut self, av: usize, number: FiAddr) {
        if self.av != Some(av) {
            return;
        }
        let place = usize::try_from(number).ok().and_then(|at| self.peers.get_mut(at));
        if let Some(peer) = place.and_then(Option::take)
            && let Some(number) = self.numbers.get_mut(peer.0 as usize)
        {
            *number = abi::ADDR_UNSPEC;
        }
    }

    /// The peer of a number, which is called where it was not known.
    #[inline]
    fn peer(&mut self, avs: &Slab<Av>, number: FiAddr) -> Result<Peer> {
        match self.peers.get(number as usize) {
            Some(Some(peer)) => Ok(*peer),
            _ => self.meet(avs, number),
        }
    }

    #[cold]
    fn meet(&mut self, avs: &Slab<Av>, number: FiAddr) -> Result<Peer> {
        let av = self.av.and_then(|av| avs.look(av)).ok_or(Errno(abi::ENOAV))?;
        let address = av.at(number).ok_or(Errno(libc::EINVAL))?;
        let peer = self.engine.transport().call(address)?;
        let at = number as usize;
        if self.peers.len() <= at {
            self.peers.resize(at + 1, None);
        }
        self.peers[at] = Some(peer);
        self.name(peer, number);
        Ok(peer)
    }

    fn name(&mut self, peer: Peer, number: FiAddr) {
        let at = peer.0 as usize;
        if self.numbers.len() <= at {
            self.numbers.resize(at + 1, abi::ADDR_UNSPEC);
        }
        if self.numbers[at] == abi::ADDR_UNSPEC {
            self.numbers[at] = number;
        }
    }

    /// The number of a peer, if its address was inserted.
    #[inline]
    fn number(&mut self, avs: &Slab<Av>, peer: Peer) -> FiAddr {
        match self.numbers.get(peer.0 as usize) {
            Some(&number) if number != abi::ADDR_UNSPEC => number,
            _ => self.look_up(avs, peer).unwrap_or(abi::ADDR_UNSPEC),
        }
    }

    #[cold]
    fn look_up(&mut self, avs: &Slab<Av>, peer: Peer) -> Option<FiAddr> {
        let address = self.engine.transport().address_of(peer)?;
        let number = avs.look(self.av?)?.find(address)?;
        self.name(peer, number);
        Some(number)
    }
}

impl EpObject {
    #[inline]
    fn with<R>(
        &self,
        work: impl FnOnce(&mut Endpoint, &Slab<Av>, Queues<'_>) -> Result<R>,
    ) -> Result<R> {
        self.shared.gate.with(|state| {
            let (endpoint, avs, queues) = state.endpoint(self.number)?;
            work(endpoint, avs, queues)
        })
    }

    fn bind_av(&self, av: &AvObject) -> Result<()> {
        self.check_domain(&av.shared)?;
        self.shared.gate.with(|state| {
            let endpoint = state.endpoints.find(self.number).ok_or(Errno(libc::EINVAL))?;
            if endpoint.av.is_some() {
                return Err(Errno(libc::EINVAL));
            }
            endpoint.av = Some(av.number);
            state.avs.find(av.number).ok_or(Errno(libc::EINVAL))?.users += 1;
            Ok(())
        })
    }

    fn bind_cq(&self, cq: &CqObject, flags: u64) -> Result<()> {
        self.check_domain(&cq.shared)?;
        let known = abi::SEND | abi::RECV | abi::SELECTIVE_COMPLETION;
        if flags & !known != 0 || flags & (abi::SEND | abi::RECV) == 0 {
            return Err(Errno(abi::EBADFLAGS));
        }
        self.shared.gate.with(|state| {
            let (endpoint, _, queues) = state.endpoint(self.number)?;
            let report = Report {
                cq: Some(cq.number),
                is_selective: flags & abi::SELECTIVE_COMPLETION != 0,
            };
            for (direction, place) in [(abi::SEND, &mut endpoint.tx), (abi::RECV, &mut endpoint.rx)]
            {
                if flags & direction != 0 {
                    if place.cq.is_some() {
                        return Err(Errno(libc::EINVAL));
                    }
                    *place = report;
                }
            }
            let cq = queues.cqs.find(cq.number).ok_or(Errno(libc::EINVAL))?;
            endpoint.wakes(cq.waker())?;
            if !cq.endpoints.contains(&self.number) {
                cq.endpoints.push(self.number);
            }
            Ok(())
        })
    }

    fn bind_cntr(&self, cntr: &CntrObject, flags: u64) -> Result<()> {
        self.check_domain(&cntr.shared)?;
        self.shared.gate.with(|state| {
            let (endpoint, _, queues) = state.endpoint(self.number)?;
            for (kind, place) in COUNTED.iter().zip(&mut endpoint.counters) {
                if flags & kind != 0 {
                    *place = Some(cntr.number);
                    endpoint.is_counted = true;
                }
            }
            let cntr = queues.cntrs.find(cntr.number).ok_or(Errno(libc::EINVAL))?;
            endpoint.wakes(cntr.waker())?;
            if !cntr.endpoints.contains(&self.number) {
                cntr.endpoints.push(self.number);
            }
            Ok(())
        })
    }

    fn check_domain(&self, other: &Arc<Shared>) -> Result<()> {
        if Arc::ptr_eq(&self.shared, other) { Ok(()) } else { Err(Errno(abi::EDOMAIN)) }
    }

    fn enable(&self) -> Result<()> {
        self.with(|endpoint, _, _| {
            if endpoint.av.is_none() {
                return Err(Errno(abi::ENOAV));
            }
            let (sends, receives) = (abi::SEND | abi::READ | abi::WRITE, abi::RECV);
            let lacks = |caps: u64, report: Report, counted: u64| {
                let is_counted = COUNTED
                    .iter()
                    .zip(&endpoint.counters)
                    .any(|(kind, counter)| kind & counted != 0 && counter.is_some());
                endpoint.caps & caps != 0 && report.cq.is_none() && !is_counted
            };
            if lacks(sends, endpoint.tx, sends) || lacks(receives, endpoint.rx, receives) {
                return Err(Errno(abi::ENOCQ));
            }
            endpoint.is_enabled = true;
            Ok(())
        })
    }
}

call! {
    entry close(fid: *mut Fid) -> c_int {
        let ep: &EpObject = object(fid)?;
        let mut gone = None;
        // Registrations may be closed, and memory given back, after that: by this endpoint nobody gets there any more.
        ep.shared.until_done(|state| {
            let endpoint = state.endpoints.find(ep.number);
            if endpoint.is_some_and(|endpoint| !endpoint.engine.transport().is_left_alone()) {
                return false;
            }
            gone = state.endpoints.remove(ep.number);
            let is_other = |number: &usize| *number != ep.number;
            state.cqs.each_mut().for_each(|(_, cq)| cq.endpoints.retain(is_other));
            state.cntrs.each_mut().for_each(|(_, cntr)| cntr.endpoints.retain(is_other));
            if let Some(av) = gone.as_ref().and_then(|gone| gone.av).and_then(|av| state.avs.find(av)) {
                av.users -= 1;
            }
            true
        })?;
        drop(gone);
        drop(take::<EpObject, _>(fid)?);
        Ok(0)
    }
}

call! {
    entry bind(fid: *mut Fid, to: *mut Fid, flags: u64) -> c_int {
        let ep: &EpObject = object(fid)?;
        match object::<Fid, _>(to)?.class {
            abi::CLASS_AV => ep.bind_av(object(to)?)?,
            abi::CLASS_CQ => ep.bind_cq(object(to)?, flags)?,
            abi::CLASS_CNTR => ep.bind_cntr(object(to)?, flags)?,
            // Nothing is reported there: datagrams have no connections.
            abi::CLASS_EQ => {}
            _ => return Err(Errno(libc::EINVAL)),
        }
        Ok(0)
    }
}

call! {
    entry control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
        let ep: &EpObject = object(fid)?;
        match command {
            abi::ENABLE => ep.enable()?,
            abi::GETOPSFLAG => {
                let place = argument.cast::<u64>();
                let which = *held(place.cast_const())?;
                let flags = ep.with(|endpoint, _, _| match which & (abi::SEND | abi::RECV) {
                    abi::SEND => Ok(endpoint.tx_flags),
                    abi::RECV => Ok(endpoint.rx_flags),
                    _ => Err(Errno(libc::EINVAL)),
                })?;
                put(place, flags);
            }
            abi::SETOPSFLAG => {
                let which = *held(argument.cast::<u64>().cast_const())?;
                let flags = which & !(abi::SEND | abi::RECV);
                ep.with(|endpoint, _, _| match which & (abi::SEND | abi::RECV) {
                    abi::SEND => { endpoint.tx_flags = flags; Ok(()) }
                    abi::RECV => { endpoint.rx_flags = flags; Ok(()) }
                    _ => Err(Errno(libc::EINVAL)),
                })?;
            }
            _ => return Err(Errno(libc::ENOSYS)),
        }
        Ok(0)
    }
}

call! {
    entry getname(fid: *mut Fid, into: *mut c_void, bytes: *mut usize) -> c_int {
        let ep: &EpObject = object(fid)?;
        let address = ep.with(|endpoint, _, _| Ok(endpoint.address))?;
        let room = bytes.as_mut().ok_or(Errno(libc::EINVAL))?;
        let had = std::mem::replace(room, ADDRESS_BYTES);
        put_bytes(into.cast(), had, &address.encode());
        if had < ADDRESS_BYTES { Err(Errno(abi::ETOOSMALL)) } else { Ok(0) }
    }
}

call! {
    entry cancel(fid: *mut Fid, context: *mut c_void) -> isize {
        let ep: &EpObject = object(fid)?;
        ep.with(|endpoint, avs, mut queues| endpoint.cancel(avs, &mut queues, context))?;
        Ok(0)
    }
}

call! {
    entry getopt(
        fid: *mut Fid, level: c_int, name: c_int, into: *mut c_void, bytes: *mut usize,
    ) -> c_int {
        let ep: &EpObject = object(fid)?;
        let value = match (level, name) {
            (abi::OPT_ENDPOINT, abi::OPT_MIN_MULTI_RECV) => {
                ep.with(|endpoint, _, _| Ok(endpoint.min_multi_recv))?
            }
            (abi::OPT_ENDPOINT, abi::OPT_CM_DATA_SIZE) => 0,
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        };
        let room = bytes.as_mut().ok_or(Errno(libc::EINVAL))?;
        if *room < size_of::<usize>() {
            return Err(Errno(abi::ETOOSMALL));
        }
        put(into.cast(), value);
        *room = size_of::<usize>();
        Ok(0)
    }
}

call! {
    entry setopt(
        fid: *mut Fid, level: c_int, name: c_int, from: *const c_void, bytes: usize,
    ) -> c_int {
        let ep: &EpObject = object(fid)?;
        match (level, name) {
            (abi::OPT_ENDPOINT, abi::OPT_MIN_MULTI_RECV) if bytes == size_of::<usize>() => {
                let value = *held(from.cast::<usize>())?;
                ep.with(|endpoint, _, _| { endpoint.min_multi_recv = value; Ok(()) })?;
                Ok(0)
            }
            (abi::OPT_ENDPOINT, abi::OPT_MIN_MULTI_RECV) => Err(Errno(libc::EINVAL)),
            // Shared memory is used, and may be.
            (abi::OPT_ENDPOINT, abi::OPT_SHARED_MEMORY_PERMITTED) if bytes == 1 => {
                if *held(from.cast::<u8>())? == 0 { Err(Errno(libc::EOPNOTSUPP)) } else { Ok(0) }
            }
            _ => Err(Errno(libc::ENOPROTOOPT)),
        }
    }
}

static OPS: Ops = Ops {
    close: Some(close),
    bind: Some(bind),
    control: Some(control),
    ops_open: Some(layouts::ops_open),
    ..Ops::NONE
};

static EP_OPS: OpsEp =
    OpsEp { cancel: Some(cancel), getopt: Some(getopt), setopt: Some(setopt), ..OpsEp::NONE };

static CM_OPS: OpsCm = OpsCm { getname: Some(getname), ..OpsCm::NONE };
