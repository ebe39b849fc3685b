//! Chains: what the slots of a striping name. A chain is a list of I/O servers that hold the same objects; with one
//! member it stands for that server.
//!
//! ```text
//!   file ─ striping ─► chain 5 ─ table ─► generation 3: [ server 2, store 9f…, serving ]
//!                                                       [ server 0, store 41…, syncing ]
//! ```
//!
//! The metadata server keeps the table and logs each change of it. The *generation* of a chain is raised whenever a request
//! that was sent with the table of before could do harm: when another store takes the place of a member's, when a member
//! that others go on without is left behind, and when somebody asks for it. Clients say chain and generation with each
//! object that they open; I/O servers, which are told theirs before they serve, refuse any other.
//!
//! Everything here is pure: who is away, and which store has come, is for the caller to find out.

use covey_wire::{List, Name, record};

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// It has everything, and is read and written.
    Serving = 1,
    /// It is written, and gets what it has missed; it is not read.
    Syncing = 2,
    /// It has missed something: it is neither read nor written.
    Stale = 3,
    /// It does not serve, but nobody else has what it has: the chain waits for it.
    Last = 4,
}

impl State {
    /// All of them.
    pub const ALL: [State; 4] = [State::Serving, State::Syncing, State::Stale, State::Last];

    /// By its number; one that is unknown takes no part.
    pub fn of(number: u8) -> State {
        State::ALL.into_iter().find(|state| *state as u8 == number).unwrap_or(State::Stale)
    }

    /// For people and JSON.
    pub fn word(self) -> &'static str {
        match self {
            State::Serving => "serving",
            State::Syncing => "syncing",
            State::Stale => "stale",
            State::Last => "last",
        }
    }

    /// Whether it has everything that was acknowledged.
    pub fn is_whole(self) -> bool {
        matches!(self, State::Serving | State::Last)
    }
}

record! {
    /// A server of a chain.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct Member for () {
        /// The I/O server by its index in the cluster's list.
        pub server: u16,
        /// The store that its objects are in; empty before the first meeting.
        pub store: Name,
        /// A [`State`].
        pub state: u8,
    }
}

impl Member {
    /// How it stands.
    pub fn state(&self) -> State {
        State::of(self.state)
    }
}

record! {
    /// A chain as it is now.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct Chain for () {
        /// Requests of another generation are refused. The first is 1.
        pub generation: u32,
        /// Its servers in order: the first one that is whole is the head, to which requests go.
        pub members: List<Member>,
    }
}

record! {
    /// A chain at a generation: what a client says with an object, and what an I/O server is told that it serves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Served for () {
        /// The chain by its index.
        pub chain: u16,
        /// Its generation.
        pub generation: u32,
    }
}

impl Chain {
    /// A new chain of one server, whose store was not met yet.
    pub fn of_one(server: u16) -> Chain {
        let state = State::Serving as u8;
        let member = Member { server, store: Name::EMPTY, state };
        Chain { generation: 1, members: List(vec![member]) }
    }

    /// Where its requests go: the first member that is whole.
    pub fn head(&self) -> Option<&Member> {
        self.members.0.iter().find(|member| member.state().is_whole())
    }

    /// Its member on a server.
    pub fn member(&self, server: u16) -> Option<&Member> {
        self.members.0.iter().find(|member| member.server == server)
    }

    /// The servers that take part in changes: all but those that are stale, which get them when they sync.
    pub fn written(&self) -> impl Iterator<Item = u16> + '_ {
        let takes_part = |member: &&Member| member.state() != State::Stale;
        self.members.0.iter().filter(takes_part).map(|member| member.server)
    }

    /// Requests of before are refused from now on.
    pub fn raise(&mut self) {
        self.skip(1);
    }

    /// The same for tables that were handed out and are not remembered.
    pub fn skip(&mut self, by: u32) {
        self.generation = self.generation.saturating_add(by);
    }

    /// A server keeps its objects in this store from now on. Whether that changes anything.
    ///
    /// Another store in the place of one that was known has none of its objects: with others in the chain it is stale, alone
    /// it serves (its losses are marked), and either way nobody goes on with the table of before.
    pub fn has_store(&mut self, server: u16, store: &Name) -> bool {
        let others = self.is_served_without(server);
        let Some(member) = self.member_mut(server) else { return false };
        if member.store == *store {
            return false;
        }
        let before = std::mem::replace(&mut member.store, store.clone());
        if !before.is_empty() {
            if others {
                member.state = State::Stale as u8;
            }
            self.raise();
        }
        true
    }

    /// A server has everything in its store, and takes the place of the head, which has left.
    pub fn moves_to(&mut self, server: u16, store: Name, generation: u32) {
        let head = self.head().map(|head| head.server);
        let state = State::Serving as u8;
        match self.members.0.iter_mut().find(|member| Some(member.server) == head) {
            Some(member) => *member = Member { server, store, state },
            None => self.members.0.push(Member { server, store, state }),
        }
        self.generation = generation;
    }

    /// A server does not serve. Whether that changes anything.
    ///
    /// As long as another member is whole the chain goes on without it: it is stale, and the generation rises. The last one
    /// stays what it is, and is waited for.
    pub fn has_left(&mut self, server: u16) -> bool {
        let others = self.is_served_without(server);
        let Some(member) = self.member_mut(server) else { return false };
        let (before, is_raised) = (member.state(), others || !member.state().is_whole());
        member.state = match before {
            State::Serving | State::Last if others => State::Stale,
            State::Serving | State::Last => State::Last,
            State::Syncing | State::Stale => State::Stale,
        } as u8;
        let is_changed = member.state() != before;
        if is_changed && is_raised {
            self.raise();
        }
        is_changed
    }

    /// A server serves again, from the store that is known. Whether that changes anything: one that is stale has to sync first.
    pub fn is_back(&mut self, server: u16) -> bool {
        let Some(member) = self.member_mut(server) else { return false };
        let was_last = member.state() == State::Last;
        if was_last {
            member.state = State::Serving as u8;
        }
        was_last
    }

    fn is_served_without(&self, server: u16) -> bool {
        let is_other =
            |member: &Member| member.server != server && member.state() == State::Serving;
        self.members.0.iter().any(is_other)
    }

    fn member_mut(&mut self, server: u16) -> Option<&mut Member> {
        self.members.0.iter_mut().find(|member| member.server == server)
    }
}

record! {
    /// What a chain has left on a server from which it was moved.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Dropped for () {
        /// The chain.
        pub chain: u16,
        /// The server that had it.
        pub server: u16,
        /// The generation with which it serves elsewhere.
        pub generation: u32,
    }
}

/// All chains, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table(pub Vec<Chain>);

impl Table {
    /// That of so many servers which know no chains.
    pub fn of_servers(count: usize) -> Table {
        Table((0..count).map(|server| Chain::of_one(server as u16)).collect())
    }

    /// The servers that have the objects of a chain, but for those that are stale.
    pub fn servers(&self, chain: u16) -> impl Iterator<Item = u16> + '_ {
        self.0.get(usize::from(chain)).into_iter().flat_map(Chain::written)
    }

    /// The server that a chain's requests go to.
    pub fn head(&self, chain: u16) -> Option<u16> {
        Some(self.0.get(usize::from(chain))?.head()?.server)
    }

    /// The chains that a server has the objects of, or had them.
    pub fn on(&self, server: u16) -> Vec<u16> {
        (0..self.0.len() as u16).filter(|&chain| self.is_on(chain, server)).collect()
    }

    /// The chains whose requests go to one of these servers.
    pub fn led_by(&self, servers: &[u16]) -> Vec<u16> {
        let is_led = |&chain: &u16| self.head(chain).is_some_and(|head| servers.contains(&head));
        (0..self.0.len() as u16).filter(is_led).collect()
    }

    /// Whether a server has the objects of a chain, or had them.
    pub fn is_on(&self, chain: u16, server: u16) -> bool {
        self.0.get(usize::from(chain)).is_some_and(|chain| chain.member(server).is_some())
    }
}

impl Served {
    /// As it stands in a name or a log: `CHAIN.GENERATION`.
    pub fn text(self) -> String {
        format!("{}.{}", self.chain, self.generation)
    }

    /// Reads it back.
    pub fn parse(text: &str) -> Option<Served> {
        let (chain, generation) = text.split_once('.')?;
        Some(Served { chain: chain.parse().ok()?, generation: generation.parse().ok()? })
    }
}

/// More generations than are given out between two syncs of the metadata server's log, or since a copy of the metadata
/// was made.
pub const SKIPPED: u32 = 1 << 16;

#[cfg(test)]
mod tests;
