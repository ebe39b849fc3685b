//! The I/O servers, and the table of the chains that stripings name: see [`crate::chain`].
//!
//! The table is asked for when the client starts, and again when the metadata server takes back the lease on it, when a
//! striping names a chain that is not known, and when an I/O server refuses a generation. Whoever has no lease any more goes
//! on with the table that it has: what counts is what the I/O servers say, and they look at each request.

use super::chain::{Chain, Head};
use super::data::data_call_once;
use super::session::Session;
use super::{Error, Fs, Link, Net, Options, Result, Shared, Start, data_link, unexpected};
use crate::chain;
use crate::objects::{DataOp, DataReply};
use crate::ops::{Caller, Op, Reply, Striping};
use covey_ninep::client::Conn;
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
use futures_util::future::{Either, select};
use futures_util::lock::Mutex;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// Links to the I/O servers, each dialled when it is needed, and the chains.
pub struct Servers {
    net: Arc<dyn Net>,
    options: Options,
    table: RwLock<Table>,
    /// Counts how often the table was asked for.
    asked: AtomicU64,
    /// How often the lease on it had been taken back when it was.
    revocations: AtomicU64,
    /// When it was asked for last because a server was away; who asks, and who waits for the answer, holds this.
    looked_at: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Table {
    links: Vec<Arc<Link>>,
    chains: Vec<Arc<Chain>>,
    /// As the metadata server has told it last; empty where that knows no chains.
    told: Vec<chain::Chain>,
    /// Servers that were removed, by index; those beyond its end were not.
    removed: Vec<bool>,
    /// Which asking that was.
    number: u64,
}

impl Fs {
    /// Names of the I/O servers in the order that the table of chains indexes them; empty for one that was removed.
    pub fn servers(&self) -> Vec<String> {
        let table = self.shared.data.table();
        let name = |at: usize| if table.is_removed(at) { "" } else { table.links[at].server() };
        (0..table.links.len()).map(|at| name(at).to_owned()).collect()
    }

    /// Names of the I/O servers that the parts of a file lie on, in the order of its slots.
    pub async fn servers_of(&self, striping: &Striping) -> Result<Vec<String>> {
        let (data, List(chains)) = (&self.shared.data, &striping.servers);
        data.meet(striping, &self.shared.session).await?;
        chains.iter().map(|&chain| Ok(data.chain(chain)?.link().server().to_owned())).collect()
    }

    /// The chains that stripings name, by index, as they are now; none where the metadata server is of a version before them.
    pub async fn chains(&self) -> Result<Vec<chain::Chain>> {
        self.shared.data.ask_again(&self.shared.session).await?;
        Ok(self.shared.data.told())
    }
}

impl Shared {
    /// An operation on the objects of a chain; with the answer comes from where it is.
    pub(super) async fn on_chain(&self, chain: &Chain, op: DataOp) -> Result<(DataReply, Origin)> {
        self.data.call(&self.session, chain, op).await
    }
}

impl Servers {
    /// Those that the metadata server names.
    pub async fn ask(net: Arc<dyn Net>, options: Options, session: &Session) -> Result<Servers> {
        let (table, asked, revocations, looked_at) = Default::default();
        let servers = Servers { net, options, table, asked, revocations, looked_at };
        servers.ask_again(session).await?;
        Ok(servers)
    }

    /// Takes in the table as it is by now. The servers that are known stay: their order is part of it.
    pub async fn ask_again(&self, session: &Session) -> Result<()> {
        let revocations = session.cache().table_revocations();
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let (names, told) = ask_table(session).await?;
        let mut table = self.table.write().expect("no holder panics");
        if number < table.number {
            return Ok(());
        }
        for server in names.0.iter().skip(table.links.len()) {
            let (net, options) = (self.net.clone(), self.options.clone());
            table.links.push(data_link(net, &server.lossy(), options, session.unique()));
        }
        table.removed = names.0.iter().map(Name::is_empty).collect();
        table.number = number;
        table.follow(told.0)?;
        self.revocations.fetch_max(revocations, Ordering::AcqRel);
        Ok(())
    }

    /// Asks again when a striping names a chain that is not known.
    pub async fn meet(&self, striping: &Striping, session: &Session) -> Result<()> {
        let known = self.table().chains.len();
        if striping.servers.0.iter().all(|&index| usize::from(index) < known) {
            Ok(())
        } else {
            self.ask_again(session).await
        }
    }

    /// Asks again when the metadata server has said that the table changes. Where it does not answer, the I/O servers decide:
    /// they need nobody to serve what they serve.
    pub async fn freshen(&self, session: &Session) {
        if session.cache().table_revocations() > self.revocations.load(Ordering::Acquire) {
            let _ = Box::pin(self.ask_again(session)).await;
        }
    }

    /// An I/O server has refused the generation of a chain that was tried: asks for another. One of the two may have heard of
    /// a change before the other, so it is tried for as long as a server that is away is waited for, whatever the request
    /// has waited for before.
    pub async fn learn(
        &self,
        session: &Session,
        chain: &Chain,
        tried: &Head,
        refused: &mut Refused,
    ) -> Result<()> {
        if !chain.has_changed(tried) {
            let asked = self.net.now();
            Box::pin(self.ask_again(session)).await?;
            refused.waits_elsewhere(self.net.now().saturating_duration_since(asked));
        }
        if chain.has_changed(tried) {
            return Ok(());
        }
        if tried.link.is_over(refused.since(tried, self.net.now())) {
            let (server, index) = (tried.link.server(), chain.index());
            let what =
                format!("{server} does not serve chain {index} at the generation that it has");
            return Err(Error::because(Errno::EIO, what));
        }
        self.net.sleep(RETRY_PAUSE).await;
        Ok(())
    }

    /// The connection to the head of a chain, and its generation; None where the chain leads elsewhere meanwhile. Whoever remembers
    /// the table for longer than its lease is told of no change, and a server that was emptied and switched off refuses nothing.
    pub async fn reach(
        &self,
        session: &Session,
        chain: &Chain,
        head: &Head,
        since: Instant,
    ) -> Result<Option<(u64, Conn)>> {
        match head.link.up_now() {
            Some(reached) => Ok(Some(reached)),
            // Apart: each request would carry the room that this needs.
            None => Box::pin(self.reach_in_time(session, chain, head, since)).await,
        }
    }

    async fn reach_in_time(
        &self,
        session: &Session,
        chain: &Chain,
        head: &Head,
        since: Instant,
    ) -> Result<Option<(u64, Conn)>> {
        let conn = {
            let conn = pin!(head.link.conn(since));
            let elsewhere = pin!(async {
                loop {
                    self.net.sleep(LOOK_EVERY).await;
                    self.look(session, chain, head).await;
                    if chain.has_changed(head) {
                        return;
                    }
                }
            });
            // What is looked at beside it ends here.
            match select(conn, elsewhere).await {
                Either::Left((conn, _)) => conn,
                Either::Right(_) => return Ok(None),
            }
        };
        match conn {
            Ok(conn) => Ok(Some(conn)),
            Err(_) if self.is_elsewhere(session, chain, head).await => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a chain leads elsewhere than to a server that is away.
    pub async fn is_elsewhere(&self, session: &Session, chain: &Chain, head: &Head) -> bool {
        if !chain.has_changed(head) {
            let look = Box::pin(self.look(session, chain, head));
            select(look, self.net.sleep(LOOK_WITHIN)).await;
        }
        chain.has_changed(head)
    }

    /// Asks for the table, unless that was done a moment ago: nothing leaves a server that is away. Whoever comes while it is being
    /// asked for waits for that.
    async fn look(&self, session: &Session, chain: &Chain, head: &Head) {
        let mut looked_at = match select(self.looked_at.lock(), self.net.sleep(LOOK_EVERY)).await {
            Either::Left((looked_at, _)) => Some(looked_at),
            // Who asks may be one whom nobody waits for just now.
            Either::Right(_) => None,
        };
        let last = looked_at.as_ref().and_then(|at| **at);
        let since = last.map(|at| self.net.now().saturating_duration_since(at));
        if !chain.has_changed(head) && since.is_none_or(|since| since >= LOOK_EVERY) {
            let _ = self.ask_again(session).await;
            looked_at.iter_mut().for_each(|at| **at = Some(self.net.now()));
        }
    }

    /// An operation on the objects of a chain, at its head.
    async fn call(
        &self,
        session: &Session,
        chain: &Chain,
        op: DataOp,
    ) -> Result<(DataReply, Origin)> {
        let (mut refused, mut patience) = (Refused::default(), chain.link().patience());
        loop {
            self.freshen(session).await;
            let head = chain.head();
            let link = &head.link;
            let reached = self.reach(session, chain, &head, patience.since).await?;
            let Some(reached) = reached else {
                link.is_answered(&mut patience);
                continue;
            };
            match data_call_once(link, reached, &op, head.served).await {
                Ok(Ok((reply, start))) => return Ok((reply, Origin { head, start })),
                Ok(Err(error)) if error.code() == Errno::EREMCHG => {
                    self.learn(session, chain, &head, &mut refused).await?;
                    link.is_answered(&mut patience);
                }
                Ok(Err(error)) => return Err(error),
                Err(_) if link.goes_on(&mut patience) => refused = Refused::default(),
                Err(_) if self.is_elsewhere(session, chain, &head).await => {}
                Err(why) => return Err(link.lost(why)),
            }
        }
    }

    /// The server of this index.
    pub fn get(&self, index: u16) -> Result<Arc<Link>> {
        let table = self.table();
        table.links.get(usize::from(index)).cloned().ok_or_else(|| {
            let what = format!("no I/O server has index {index}: there are {}", table.links.len());
            Error::because(Errno::EIO, what)
        })
    }

    /// The chain of this index.
    pub fn chain(&self, index: u16) -> Result<Arc<Chain>> {
        let table = self.table();
        table.chains.get(usize::from(index)).cloned().ok_or_else(|| {
            let what = format!("no chain has index {index}: there are {}", table.chains.len());
            Error::because(Errno::EIO, what)
        })
    }

    /// All chains of a striping, in its order.
    pub fn all_of(&self, striping: &Striping) -> Result<Vec<Arc<Chain>>> {
        striping.servers.0.iter().map(|&index| self.chain(index)).collect()
    }

    /// All servers that are known and were not removed.
    pub fn all(&self) -> Vec<Arc<Link>> {
        let table = self.table();
        let links = table.links.iter().enumerate().filter(|(at, _)| !table.is_removed(*at));
        links.map(|(_, link)| link.clone()).collect()
    }

    /// The server that a chain leads to, by its index; the chain's own index where that is not known.
    pub fn server_of(&self, chain: u16) -> u16 {
        let table = self.table();
        let told = table.told.get(usize::from(chain)).and_then(chain::Chain::head);
        told.map_or(chain, |head| head.server)
    }

    /// The table as it was told last, by index; empty where the metadata server knows no chains.
    pub fn told(&self) -> Vec<chain::Chain> {
        self.table().told.clone()
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().expect("no holder panics")
    }
}

/// Where an answer comes from.
pub struct Origin {
    /// The head that was asked.
    pub head: Head,
    /// The start of its machine, where the connection is still the same.
    pub start: Option<Start>,
}

/// Since when a request is refused where the table leads it.
#[derive(Default)]
pub struct Refused(Option<(Head, Instant)>);

impl Refused {
    /// The metadata server was away for so long, which is not the chain's time.
    fn waits_elsewhere(&mut self, time: Duration) {
        if let Some((_, since)) = &mut self.0 {
            *since += time;
        }
    }

    fn since(&mut self, tried: &Head, now: Instant) -> Instant {
        match &self.0 {
            Some((head, since)) if head.is_same(tried) => *since,
            _ => {
                self.0 = Some((tried.clone(), now));
                now
            }
        }
    }
}

impl Table {
    fn is_removed(&self, server: usize) -> bool {
        self.removed.get(server).copied().unwrap_or(false)
    }

    /// Leads each chain to its head; without a table each server is a chain.
    fn follow(&mut self, told: Vec<chain::Chain>) -> Result<()> {
        let heads = if told.is_empty() {
            self.links.iter().cloned().map(|link| Head { served: None, link }).collect()
        } else {
            let heads = told.iter().enumerate().map(|(at, chain)| self.head(at as u16, chain));
            heads.collect::<Result<Vec<Head>>>()?
        };
        for (at, head) in heads.into_iter().enumerate() {
            match self.chains.get(at) {
                Some(chain) => chain.lead_to(head),
                None => self.chains.push(Chain::new(at as u16, head)),
            }
        }
        self.told = told;
        Ok(())
    }

    /// A chain of which nobody is whole leads to its first member, which refuses what it cannot do.
    fn head(&self, index: u16, told: &chain::Chain) -> Result<Head> {
        let member = told.head().or(told.members.0.first());
        let link = member.and_then(|member| self.links.get(usize::from(member.server))).cloned();
        let odd = || Error::Odd(format!("chain {index} names no I/O server that there is"));
        let served = Some(chain::Served { chain: index, generation: told.generation });
        Ok(Head { served, link: link.ok_or_else(odd)? })
    }
}

/// The I/O servers, and the chains, none where the metadata server is of a version before them.
async fn ask_table(session: &Session) -> Result<(List<Name>, List<chain::Chain>)> {
    match session.ask(&Caller::default(), Op::Chains {}).await {
        Ok(Reply::Chains { servers, chains }) => return Ok((servers, chains)),
        Ok(other) => return Err(unexpected(&other)),
        Err(error) if error.code() != Errno::EINVAL => return Err(error),
        Err(_) => {}
    }
    match session.ask(&Caller::default(), Op::Cluster {}).await? {
        Reply::Cluster { servers, .. } => Ok((servers, List::default())),
        other => Err(unexpected(&other)),
    }
}

/// How often the table is asked for while a server is away.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the answer is waited for where the server counts as dead.
const LOOK_WITHIN: Duration = Duration::from_secs(3);
/// How long a generation is waited for.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
