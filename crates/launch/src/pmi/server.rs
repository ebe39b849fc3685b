//! The server of one node's ranks.

use super::line::Line;
use super::{
    KEY_BYTES_MAX, KVS_BYTES_MAX, KVSNAME_BYTES_MAX, LINE_BYTES_MAX, VALUE_BYTES_MAX, entries,
};
use crate::job::Placement;
use covey_wire::{Blame, Bytes};
use std::collections::{BTreeMap, VecDeque};

/// Answers the ranks of one node. Four kinds of methods: what has come (`connected`, `handle_input`,
/// `closed`), what the other nodes have answered (`fenced`), what is to be done (`poll_event`), and getters.
pub struct Server {
    job: String,
    placement: Placement,
    node: usize,
    clients: BTreeMap<u64, Client>,
    /// What everybody has put, up to the last barrier, and what ranks of this node have put since.
    known: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    /// The entries that the other nodes have not seen.
    fresh: Vec<u8>,
    /// The nodes' barrier is on its way.
    is_fencing: bool,
    events: VecDeque<Event>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// These bytes are to be sent on that connection.
    Reply(u64, Vec<u8>),
    /// The connection is to be closed: its peer is no rank of this node, or broke the rules.
    Close(u64),
    /// A rank has begun: from now on others may wait for it.
    Joined {
        /// The rank.
        rank: u32,
    },
    /// All ranks of this node are in the barrier; these entries are for the others. Answered by
    /// [`Server::fenced`].
    Fence(Vec<u8>),
    /// A rank wants the job to end.
    Abort {
        /// The rank.
        rank: u32,
        /// The exit code that the job is to have.
        code: u32,
        /// What it said.
        why: String,
    },
    /// A rank is gone that had not said it would go: others may wait for it for ever.
    Gone {
        /// The rank.
        rank: u32,
    },
}

#[derive(Default)]
struct Client {
    /// Bytes of a line whose end has not come.
    part: Vec<u8>,
    rank: Option<u32>,
    phase: Phase,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// It has not said who it is, or not asked for anything yet.
    #[default]
    New,
    Working,
    InBarrier,
    Finalized,
    /// Within the lines of a spawn, which end with `endcmd`.
    Spawning,
}

impl Server {
    /// For the ranks of the placement's node of this index.
    pub fn new(job: &str, placement: Placement, node: usize) -> Server {
        let mapping = placement.process_mapping();
        let known = [("PMI_process_mapping", mapping.as_str())];
        let known = known.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));
        Server {
            job: job.to_owned(),
            placement,
            node,
            clients: BTreeMap::new(),
            // MPICH does without it when it does not fit, and uses no shared memory then.
            known: known.into_iter().filter(|(_, value)| value.len() < VALUE_BYTES_MAX).collect(),
            bytes: 0,
            fresh: Vec::new(),
            is_fencing: false,
            events: VecDeque::new(),
        }
    }

    /// Somebody has connected; the number is the caller's.
    pub fn connected(&mut self, connection: u64) {
        self.clients.insert(connection, Client::default());
    }

    /// Bytes have come.
    pub fn handle_input(&mut self, connection: u64, data: &[u8]) {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let Some(client) = self.clients.get_mut(&connection) else { return };
            client.part.extend_from_slice(piece);
            if client.part.len() > LINE_BYTES_MAX {
                return self.close(connection);
            }
            if client.part.last() == Some(&b'\n') {
                let line = std::mem::take(&mut client.part);
                self.handle_line(connection, &line[..line.len() - 1]);
            }
        }
    }

    /// The connection has ended.
    pub fn closed(&mut self, connection: u64) {
        let Some(client) = self.clients.remove(&connection) else { return };
        let was_working = !matches!(client.phase, Phase::New | Phase::Finalized);
        if let (Some(rank), true) = (client.rank, was_working) {
            self.events.push_back(Event::Gone { rank });
        }
    }

    /// Every node is in the barrier, and this is what all of them have put.
    pub fn fenced(&mut self, data: Bytes) -> Result<(), Blame> {
        if !std::mem::take(&mut self.is_fencing) {
            return Err(Blame::Violation("a barrier ended that had not begun".into()));
        }
        for (key, value) in entries::take(data)? {
            // Two ranks may have put the same key: the last one is as good as any, but the same everywhere.
            self.keep(key, value);
        }
        let waiting =
            self.clients.iter_mut().filter(|(_, client)| client.phase == Phase::InBarrier);
        for (connection, client) in waiting {
            client.phase = Phase::Working;
            self.events.push_back(Event::Reply(*connection, b"cmd=barrier_out\n".to_vec()));
        }
        Ok(())
    }

    /// The next thing to do.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn keep(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        if let Some(old) = self.known.insert(key.clone(), value) {
            self.bytes = self.bytes.saturating_sub(key.len() + old.len());
        }
    }

    fn close(&mut self, connection: u64) {
        self.events.push_back(Event::Close(connection));
        self.closed(connection);
    }

    fn reply(&mut self, connection: u64, line: impl AsRef<str>) {
        let line = format!("{}\n", line.as_ref());
        self.events.push_back(Event::Reply(connection, line.into_bytes()));
    }

    fn handle_line(&mut self, connection: u64, line: &[u8]) {
        let phase = self.clients[&connection].phase;
        if phase == Phase::Spawning {
            if line == b"endcmd" {
                self.set_phase(connection, Phase::Working);
                self.reply(connection, "cmd=spawn_result rc=-1 msg=not_supported");
            }
            return;
        }
        let Some(line) = Line::parse(line) else { return self.close(connection) };
        let command = line.value("cmd").or_else(|| line.value("mcmd")).unwrap_or_default();
        let is_known = self.clients[&connection].rank.is_some();
        match (command, phase) {
            ("initack", Phase::New) if !is_known => self.introduce(connection, &line),
            ("init", Phase::New) if is_known => self.init(connection, &line),
            (_, Phase::Working) => self.ask(connection, command, &line),
            _ => self.close(connection),
        }
    }

    /// `initack`: who it is. The answer tells it what it would else find in its environment.
    fn introduce(&mut self, connection: u64, line: &Line<'_>) {
        let here = self.placement.of_node(self.node);
        let rank = line.number("pmiid").filter(|rank| here.contains(rank));
        let is_taken = self.clients.values().any(|client| client.rank == rank);
        let Some(rank) = rank.filter(|_| !is_taken) else { return self.close(connection) };
        self.client(connection).rank = Some(rank);
        let size = self.placement.ranks();
        self.reply(
            connection,
            format!("cmd=initack rc=0\ncmd=set size={size}\ncmd=set rank={rank}\ncmd=set debug=0"),
        );
    }

    fn init(&mut self, connection: u64, line: &Line<'_>) {
        let is_ours = line.number("pmi_version") == Some(1u32);
        let rc = if is_ours { 0 } else { -1 };
        if let (true, Some(rank)) = (is_ours, self.clients[&connection].rank) {
            self.set_phase(connection, Phase::Working);
            self.events.push_back(Event::Joined { rank });
        }
        let answer = format!("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}");
        self.reply(connection, answer);
    }

    fn ask(&mut self, connection: u64, command: &str, line: &Line<'_>) {
        let size = self.placement.ranks();
        match command {
            "get_maxes" => self.reply(connection, format!(
                "cmd=maxes kvsname_max={KVSNAME_BYTES_MAX} keylen_max={KEY_BYTES_MAX} vallen_max={VALUE_BYTES_MAX}"
            )),
            "get_appnum" => self.reply(connection, "cmd=appnum appnum=0"),
            "get_my_kvsname" => self.reply(connection, format!("cmd=my_kvsname kvsname={}", self.job)),
            "get_universe_size" => self.reply(connection, format!("cmd=universe_size size={size}")),
            "put" => self.put(connection, line),
            "get" => self.get(connection, line),
            "barrier_in" => self.barrier(connection),
            "finalize" => {
                self.set_phase(connection, Phase::Finalized);
                self.reply(connection, "cmd=finalize_ack");
            }
            "abort" => self.abort(connection, line),
            "spawn" => self.set_phase(connection, Phase::Spawning),
            "publish_name" => self.reply(connection, "cmd=publish_result rc=-1 msg=not_supported"),
            "unpublish_name" => self.reply(connection, "cmd=unpublish_result rc=-1 msg=not_supported"),
            "lookup_name" => self.reply(connection, "cmd=lookup_result rc=-1 msg=not_supported"),
            _ => self.close(connection),
        }
    }

    fn put(&mut self, connection: u64, line: &Line<'_>) {
        let refusal = match (line.value("key"), line.value("value")) {
            (Some(key), Some(value)) if self.fits(key, value) => {
                entries::put(key.as_bytes(), value.as_bytes(), &mut self.fresh);
                self.keep(key.into(), value.into());
                return self.reply(connection, "cmd=put_result rc=0 msg=success");
            }
            (Some(_), Some(_)) => "too_long",
            _ => "no_key_or_value",
        };
        self.reply(connection, format!("cmd=put_result rc=-1 msg={refusal}"));
    }

    fn fits(&self, key: &str, value: &str) -> bool {
        // What this node sends at a barrier is bounded as well: the same key may be put again and again.
        let held = self.bytes.max(self.fresh.len()) + key.len() + value.len();
        key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX && held <= KVS_BYTES_MAX
    }

    fn get(&mut self, connection: u64, line: &Line<'_>) {
        let value = line.value("key").and_then(|key| self.known.get(key.as_bytes()));
        let answer = match value {
            Some(value) => {
                format!("cmd=get_result rc=0 msg=success value={}", String::from_utf8_lossy(value))
            }
            None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
        };
        self.reply(connection, answer);
    }

    fn barrier(&mut self, connection: u64) {
        self.set_phase(connection, Phase::InBarrier);
        let waiting =
            self.clients.values().filter(|client| client.phase == Phase::InBarrier).count();
        if waiting == self.placement.of_node(self.node).len() {
            self.is_fencing = true;
            self.events.push_back(Event::Fence(std::mem::take(&mut self.fresh)));
        }
    }

    fn abort(&mut self, connection: u64, line: &Line<'_>) {
        // It ends with its connection; that is no surprise any more.
        self.set_phase(connection, Phase::Finalized);
        let rank = self.clients[&connection].rank.expect("it has said who it is");
        let code = line.number::<i64>("exitcode").unwrap_or(1) as u32;
        let why =
            line.value("error_msg").or_else(|| line.value("msg")).unwrap_or_default().to_owned();
        self.events.push_back(Event::Abort { rank, code, why });
    }

    fn client(&mut self, connection: u64) -> &mut Client {
        self.clients.get_mut(&connection).expect("the connection is open")
    }

    fn set_phase(&mut self, connection: u64, phase: Phase) {
        self.client(connection).phase = phase;
    }
}

#[cfg(test)]
mod tests;
