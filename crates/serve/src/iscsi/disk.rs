//! A volume of some target as a disk: reads and writes that survive the loss of connections, and of portals.
//!
//! The portals of a target are tried in turn. What had no answer when a connection was lost is sent again on the next one.

use super::sense::refused;
use bytes::{Bytes, BytesMut};
use covey_io::os::net::{self, Address, FarEnd, error_text, pacing};
use covey_io::os::{random, run};
pub use covey_iscsi::initiator::{Config, Credentials};
use covey_iscsi::initiator::{Connection, Done, Refusal, Request, Session};
use covey_iscsi::message::login as status;
pub use covey_iscsi::negotiate::Parameters;
use covey_wire::Payload;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// How long one portal may take to connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Between one attempt and the next.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a command is sent again that was not executed for a reason that passes.
const REPEATS_MAX: usize = 16;
/// Most bytes of one command.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;

/// Where a target is.
#[derive(Clone, Debug, Default)]
pub struct Portals {
    addresses: Vec<Address>,
    /// Whose a unix socket among them may be, other than root's and this user's.
    owner: Option<u32>,
}

impl From<Vec<Address>> for Portals {
    fn from(addresses: Vec<Address>) -> Portals {
        Portals { addresses, owner: None }
    }
}

impl Portals {
    /// The same, where a unix socket may be of this user.
    pub fn owned_by(self, owner: Option<u32>) -> Portals {
        Portals { owner, ..self }
    }

    /// Whether a server can be what it is taken for: at a unix socket the kernel says whose it is.
    pub(super) fn trusts(&self, server: FarEnd) -> bool {
        let FarEnd::User(uid) = server else { return true };
        uid == 0 || uid == rustix::process::geteuid().as_raw() || Some(uid) == self.owner
    }
}

/// Answers of fewer bytes are not worth keeping.
const ROOM_BYTES_MIN: usize = 64 << 10;
/// Most of what was read that is kept for what is read next.
const ROOMS_MAX: usize = 4;

/// A unit of a target. Its connections end when it is dropped.
pub struct Disk {
    session: Session,
    lun: u64,
    block_bytes: u32,
    blocks: u64,
    connecting: AbortHandle,
    /// What was read last: where nobody else holds it any more, there is room for what is read next.
    rooms: RefCell<VecDeque<Bytes>>,
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.session.close("it is not used any more");
        self.connecting.abort();
    }
}

impl Disk {
    /// Logs in at one of `portals` and asks for the unit's size. When no portal can be reached for `patience`, now or later,
    /// what waits and all that comes fails. Runs inside a `LocalSet`.
    pub async fn connect(
        config: Config,
        portals: impl Into<Portals>,
        number: u8,
        patience: Duration,
    ) -> io::Result<Disk> {
        let session = Session::new(config);
        let keeping = keep_connected(session.clone(), portals.into(), patience);
        let connecting = tokio::task::spawn_local(keeping).abort_handle();
        let lun = u64::from(number) << 48;
        let rooms = RefCell::default();
        let mut disk = Disk { session, lun, block_bytes: 512, blocks: 0, connecting, rooms };
        (disk.blocks, disk.block_bytes) = disk.capacity().await?;
        Ok(disk)
    }

    /// Bytes of a block: offsets and lengths are multiples of it.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Its size in bytes, when it was connected.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }

    /// Its size in bytes, as it is now.
    pub async fn measure(&self) -> io::Result<u64> {
        let (blocks, block_bytes) = self.capacity().await?;
        Ok(blocks * u64::from(block_bytes))
    }

    /// Why nothing can be asked of it any more, if so.
    pub fn closed(&self) -> Option<String> {
        self.session.closed()
    }

    /// Number of blocks and bytes of one, as they are now.
    async fn capacity(&self) -> io::Result<(u64, u32)> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        let done = self.command(cdb, Payload::default(), 32).await?;
        let number = |range: std::ops::Range<usize>| {
            let bytes = done.get(range).unwrap_or_default();
            bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (last, block_bytes) = (number(0..8), number(8..12) as u32);
        let unfit = || io::Error::other("the target reports no size that a unit can have");
        checked_size(last, block_bytes).ok_or_else(unfit)
    }

    /// Reads `bytes` from `offset`, both multiples of the block.
    pub async fn read(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let mut whole = BytesMut::new();
        while whole.len() < bytes {
            let count = (bytes - whole.len()).min(TRANSFER_BYTES_MAX);
            let cdb = self.cdb(READ_16, offset + whole.len() as u64, count)?;
            let part = self.command(cdb, Payload::default(), count).await?;
            if part.len() != count {
                return Err(io::Error::other("the target sends less than was asked for"));
            }
            if count == bytes {
                return Ok(self.keep(part.freeze()));
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole.freeze())
    }

    /// Memory for an answer, which the answer fills. To clear new memory takes as long as to receive into it.
    fn room(&self, bytes: usize) -> BytesMut {
        let mut rooms = self.rooms.borrow_mut();
        let is_free = |room: &Bytes| room.len() >= bytes && room.is_unique();
        let free = (bytes >= ROOM_BYTES_MIN).then(|| rooms.iter().position(is_free)).flatten();
        let free = free.and_then(|at| rooms.remove(at)).map(Bytes::try_into_mut);
        match free {
            Some(Ok(mut room)) => {
                room.truncate(bytes);
                room
            }
            _ => BytesMut::zeroed(bytes),
        }
    }

    fn keep(&self, data: Bytes) -> Bytes {
        if data.len() >= ROOM_BYTES_MIN {
            let mut rooms = self.rooms.borrow_mut();
            rooms.truncate(ROOMS_MAX - 1);
            rooms.push_front(data.clone());
        }
        data
    }

    /// Writes `data` at `offset`, both multiples of the block. It is where [`Disk::flush`] finds it.
    pub async fn write(&self, offset: u64, data: Bytes) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let count = (data.len() - done).min(TRANSFER_BYTES_MAX);
            let cdb = self.cdb(WRITE_16, offset + done as u64, count)?;
            self.command(cdb, data.slice(done..done + count).into(), 0).await?;
            done += count;
        }
        Ok(())
    }

    /// Brings everything that was written to stable storage.
    pub async fn flush(&self) -> io::Result<()> {
        let mut cdb = [0; 16];
        cdb[0] = SYNCHRONIZE_CACHE_16;
        self.command(cdb, Payload::default(), 0).await.map(|_| ())
    }

    /// Logs out, after what is under way.
    pub async fn log_out(self) {
        self.session.log_out();
        let until = Instant::now() + CONNECT_PATIENCE;
        while self.session.closed().is_none() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn cdb(&self, opcode: u8, offset: u64, bytes: usize) -> io::Result<[u8; 16]> {
        let size = u64::from(self.block_bytes);
        if !(offset.is_multiple_of(size) && (bytes as u64).is_multiple_of(size)) {
            let text = format!("{bytes} bytes at {offset} are not whole blocks of {size}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (block, blocks) = (offset / size, bytes as u64 / size);
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        (0..8).for_each(|at| cdb[2 + at] = (block >> (56 - 8 * at)) as u8);
        (0..4).for_each(|at| cdb[10 + at] = (blocks >> (24 - 8 * at)) as u8);
        Ok(cdb)
    }

    /// Does a command, again where the reason why it was not done passes.
    async fn command(
        &self,
        cdb: [u8; 16],
        data_out: Payload,
        bytes_in: usize,
    ) -> io::Result<BytesMut> {
        let mut last = None;
        for _ in 0..REPEATS_MAX {
            let data_in = self.room(bytes_in);
            let (lun, data_out) = (self.lun, data_out.clone());
            let request = Request { lun, cdb, data_out, data_in, is_repeatable: true };
            let Done { status, sense, data_in } =
                self.session.command(request).await.map_err(io::Error::other)?;
            let Some(refused) = refused(status, &sense) else { return Ok(data_in) };
            if !refused.passes {
                return Err(refused.error);
            }
            if refused.is_busy {
                tokio::time::sleep(PAUSE).await;
            }
            last = Some(refused.error);
        }
        Err(last.expect("it was tried at least once"))
    }
}

const READ_16: u8 = 0x88;
const WRITE_16: u8 = 0x8a;
const SYNCHRONIZE_CACHE_16: u8 = 0x91;

/// Connects to one portal after the other for as long as the session lasts.
async fn keep_connected(session: Session, portals: Portals, patience: Duration) {
    let mut next = 0;
    let mut past = Past { lost_at: Instant::now(), was_in: false };
    let elsewhere = RefCell::new(None);
    while session.closed().is_none() {
        let known = &portals.addresses[next % portals.addresses.len()];
        let portal = elsewhere.take().unwrap_or_else(|| known.clone());
        let ended = attempt(&session, &portals, &portal, &mut past).await;
        let ended = ended.err().unwrap_or_else(|| "the target has closed the connection".into());
        tracing::debug!("{portal}: {ended}");
        match session.take_refusal() {
            Some(Refusal::Elsewhere(address)) => match parse_portal(&address) {
                Some(address) => *elsewhere.borrow_mut() = Some(address),
                None => {
                    session.close(&format!("the target is at {address:?}, which is no address"))
                }
            },
            // It was there: its node has just started, or gives it to another one.
            // And of what is served near somebody else may have taken the place.
            Some(Refusal::Refused(status::NOT_FOUND)) if past.was_in || is_near(&portal) => {
                next += 1
            }
            Some(refusal) => session.close(&format!("{portal}: {}", refusal_text(&refusal))),
            None => next += 1,
        }
        if past.lost_at.elapsed() > patience {
            let seconds = patience.as_secs();
            session
                .close(&format!("no portal could be used for {seconds} s; the last one: {ended}"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What earlier connections of a session came to.
struct Past {
    /// When the last one that was of use ended.
    lost_at: Instant,
    /// Whether one of them was logged in.
    was_in: bool,
}

/// One connection, from its beginning to its end.
async fn attempt(
    session: &Session,
    portals: &Portals,
    portal: &Address,
    past: &mut Past,
) -> Result<(), String> {
    let text = |error: std::io::Error| error_text(&error);
    let stream = net::connect(portal, CONNECT_PATIENCE).await.map_err(text)?;
    if !portals.trusts(stream.far_end().map_err(text)?) {
        return Err("somebody else's server is there".into());
    }
    // On this machine through shared memory, where both are processes of one user.
    let asked = tokio::time::timeout(CONNECT_PATIENCE, net::ask(stream)).await;
    let asked = asked.map_err(io::Error::from).flatten();
    let stream = pacing::enroll_dialed(asked.map_err(text)?);
    let challenge = random::nonce().map_err(|error| error_text(&error))?;
    let connection = Connection::new(session, challenge, Instant::now());
    let was_in = RefCell::new(false);
    let answered = session.answered();
    let watch = async {
        if session.logged_in().await {
            was_in.replace(true);
        }
        std::future::pending::<()>().await
    };
    let ended = tokio::select! {
        ended = run::run(connection, stream) => ended,
        () = watch => unreachable!("it never ends"),
    };
    // A target that lets us in and then breaks the rules for the same command each time is of no more use than none.
    let was_in = was_in.take();
    past.was_in |= was_in;
    if was_in && (session.answered() > answered || !session.is_waiting()) {
        past.lost_at = Instant::now();
    }
    ended.map_err(|blame| blame.to_string())
}

fn is_near(portal: &Address) -> bool {
    matches!(portal, Address::Unix(_))
}

/// `HOST:PORT`, with the tag of a portal group or without.
pub fn parse_portal(text: &str) -> Option<Address> {
    let (address, _) = text.split_once(',').unwrap_or((text, ""));
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|_| !host.is_empty())?;
    Some(Address::Tcp { host: host.to_owned(), port })
}

fn refusal_text(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Refused(status::AUTHENTICATION) => {
            "the target does not believe who we are: wrong name or secret".into()
        }
        Refusal::Refused(status::AUTHORIZATION) => "the target does not let this initiator in: by its name, or because it must prove a secret".into(),
        Refusal::Refused(status::NOT_FOUND) => "there is no such target".into(),
        Refusal::Refused(status) => format!("the target refuses the login, status {status:#06x}"),
        Refusal::Impostor => "the target did not prove who it is".into(),
        other => format!("{other:?}"),
    }
}

/// A unit's blocks and the bytes of each; none where it has no such size. A file's size is a signed number.
pub(super) fn checked_size(last: u64, block_bytes: u32) -> Option<(u64, u32)> {
    let is_block = block_bytes.is_power_of_two() && (512..=1 << 20).contains(&block_bytes);
    let blocks = last.checked_add(1).filter(|_| is_block)?;
    let bytes = blocks.checked_mul(block_bytes.into())?;
    i64::try_from(bytes).is_ok().then_some((blocks, block_bytes))
}
