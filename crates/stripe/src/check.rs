//! Checking a file system, and repairing it: the half that runs at the client.
//!
//! The metadata server judges its rows itself, a page at a time and inside its transaction
//! (`Op::Check`). Here is put together what takes more than a page, while the cluster goes on working:
//!
//! ```text
//!   rows ──► entries of each directory ──► links, a window of files at a time ──► objects, a server
//!            at a time ──► bytes that should be there ──► findings
//! ```
//!
//! **Nothing is found that was not looked at twice.** Counts are compared only when the inode's version
//! was the same before and after the counting. What an I/O server says is compared with what the
//! metadata server says later, and both are asked again after a moment. What changes each time it is looked
//! at is counted as [`Report::busy`] and not judged.
//!
//! **Memory is bounded**, whatever the number of files: a page of rows, a window of
//! [`Options::window`] files in 32 bytes each, and the findings' counts.

mod links;
mod lost;
mod objects;
mod pages;
mod text;

pub use lost::{
    Held, Path, bytes_on, each_name, forgive, held_by, laid_out_after, laid_out_on, lost_on,
};
pub use text::{describe, paths_in_words};

use crate::chain::Table;
use crate::error::Error;
pub use crate::error::Result;
use crate::objects::{DataOp, DataReply};
use crate::ops::check::{Class, Finding, Severity};
use crate::ops::{Id, Op, Reply};
use covey_ninep::tree::Errno;
use covey_wire::Name;
use objects::At;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

/// What is checked: the servers of a running cluster, or a store that nobody serves.
pub trait Access {
    /// Asks the metadata, changing nothing.
    fn ask(&self, op: Op) -> impl Future<Output = Result<Reply>>;
    /// Changes the metadata.
    fn change(&self, op: Op) -> impl Future<Output = Result<Reply>>;
    /// Asks an I/O server.
    fn data(&self, server: u16, op: DataOp) -> impl Future<Output = Result<DataReply>>;
    /// Names of the I/O servers by index; empty when only metadata is checked.
    fn servers(&self) -> Vec<String>;
    /// Waits.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()>;
}

/// How to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Repair what is found.
    pub repair: bool,
    /// Files whose links are counted at once.
    pub window: u64,
    /// Rows asked for at once.
    pub rows: u32,
    /// How long to wait before an object that does not fit is looked at again.
    pub second_look: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { repair: false, window: 1 << 18, rows: 2048, second_look: Duration::from_secs(1) }
    }
}

/// What became of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Only told.
    Found,
    /// Repaired.
    Repaired,
    /// The repair was refused, or there is none: why.
    Left(String),
}

/// A finding as it is told.
#[derive(Clone, Debug)]
pub struct Told {
    /// What.
    pub finding: Finding,
    /// Its class.
    pub class: Class,
    /// What became of it.
    pub outcome: Outcome,
    /// Of bytes that are lost: the paths of their file.
    pub paths: Vec<Path>,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Rows of the store that were judged.
    pub rows: u64,
    /// Inodes counted.
    pub files: u64,
    /// Objects looked at.
    pub objects: u64,
    /// Findings by class: found, repaired.
    pub findings: BTreeMap<Class, (u64, u64)>,
    /// Files and directories that changed each time they were looked at.
    pub busy: u64,
    /// I/O servers that could not be asked, and why.
    pub unasked: Vec<(String, String)>,
}

impl Report {
    /// Findings that count (notes do not), whether repaired or not.
    pub fn found(&self) -> u64 {
        self.counted(|(found, _)| *found)
    }

    /// Findings that count and were not repaired.
    pub fn left(&self) -> u64 {
        self.counted(|(found, repaired)| found - repaired)
    }

    /// Takes in another pass over the same file system: what was found is added up, what there is
    /// counts once.
    pub fn add_pass(&mut self, next: Report) {
        for (class, (found, repaired)) in next.findings {
            let of = self.findings.entry(class).or_default();
            // What the pass before could not repair was counted then.
            let again = of.0 - of.1;
            of.0 += found.saturating_sub(again);
            of.1 += repaired;
        }
        (self.rows, self.files, self.objects) = (next.rows, next.files, next.objects);
        (self.busy, self.unasked) = (next.busy, next.unasked);
    }

    fn counted(&self, count: impl Fn(&(u64, u64)) -> u64) -> u64 {
        let counts = |class: &Class| class.severity() > Severity::Note;
        self.findings.iter().filter(|(class, _)| counts(class)).map(|(_, of)| count(of)).sum()
    }
}

/// Goes through everything once. `tell` hears of each finding as it is made.
pub async fn run<A: Access>(
    access: &A,
    options: Options,
    tell: &mut dyn FnMut(&Told),
) -> Result<Report> {
    let servers = access.servers();
    let table = chain_table(access).await?;
    let mut check = Check { access, options, tell, report: Report::default(), servers, table };
    let id_end = check.rows().await?;
    check.links(id_end).await?;
    for At { server, chain } in check.asked() {
        let result = check.objects_of(server, chain).await;
        check.note_unasked(server, result)?;
    }
    check.missing_bytes(id_end).await?;
    Ok(check.report)
}

/// A check under way.
struct Check<'a, A: Access> {
    access: &'a A,
    options: Options,
    tell: &'a mut dyn FnMut(&Told),
    report: Report,
    servers: Vec<String>,
    table: Table,
}

/// The table of chains, by which stripings lead to servers. That of a metadata server which knows no chains is one of its servers.
pub async fn chain_table<A: Access>(access: &A) -> Result<Table> {
    match access.ask(Op::Chains {}).await {
        Ok(Reply::Chains { chains, .. }) => Ok(Table(chains.0)),
        // A metadata server of a version before them.
        Err(error) if error.code() == Errno::EINVAL => {
            Ok(Table::of_servers(access.servers().len()))
        }
        Err(error) => Err(error),
        Ok(_) => Err(odd("Chains")),
    }
}

impl<A: Access> Check<'_, A> {
    /// A finding is certain: it is repaired, if that is wanted, counted and told.
    async fn found(&mut self, finding: Finding) {
        self.found_at(finding, Vec::new()).await;
    }

    async fn found_at(&mut self, finding: Finding, paths: Vec<Path>) {
        let Some(class) = Class::of(finding.class) else { return };
        let outcome = match (self.options.repair, class.repair()) {
            (false, _) => Outcome::Found,
            (true, _) if class == Class::LostObject => {
                Outcome::Left("this is for somebody to accept: `covey server accept-loss`".into())
            }
            (true, "") => Outcome::Left("it cannot be repaired".into()),
            (true, _) => match self.repair(class, &finding).await {
                Ok(()) => Outcome::Repaired,
                Err(error) => Outcome::Left(error.to_string()),
            },
        };
        let count = self.report.findings.entry(class).or_default();
        count.0 += 1;
        count.1 += u64::from(outcome == Outcome::Repaired);
        (self.tell)(&Told { finding, class, outcome, paths });
    }

    async fn repair(&self, class: Class, finding: &Finding) -> Result<()> {
        match class {
            Class::OrphanObject | Class::StrayObject => self.remove_object(class, finding).await,
            Class::OldObject => {
                let recut = Op::Recut { id: finding.id, epoch: finding.wanted as u32 };
                self.access.ask(recut).await.map(drop)
            }
            Class::AheadObject => {
                self.check_ahead(finding).await?;
                self.access.change(Op::Mend { finding: finding.clone() }).await.map(drop)
            }
            _ => self.access.change(Op::Mend { finding: finding.clone() }).await.map(drop),
        }
    }

    /// The chains whose objects are looked at, on each server: not on those that were removed, which have no name any more.
    fn asked(&self) -> Vec<At> {
        let named = self.servers.iter().enumerate().filter(|(_, name)| !name.is_empty());
        let on =
            |server: u16| self.table.on(server).into_iter().map(move |chain| At { server, chain });
        named.flat_map(|(at, _)| on(at as u16)).collect()
    }

    fn note_unasked(&mut self, server: u16, result: Result<()>) -> Result<()> {
        match result {
            // The metadata server is needed for everything; without an I/O server the rest goes on.
            // So the check does where a chain is moved meanwhile.
            Err(error) if matches!(error.code(), Errno::EIO | Errno::EREMCHG) => {
                let name = self.servers[usize::from(server)].clone();
                if !self.report.unasked.iter().any(|(other, _)| *other == name) {
                    self.report.unasked.push((name, error.to_string()));
                }
                Ok(())
            }
            other => other,
        }
    }
}

/// A finding of a file.
fn finding(class: Class, id: Id) -> Finding {
    Finding { class: class as u8, id, name: Name::EMPTY, ..Finding::default() }
}

fn odd(what: &str) -> Error {
    Error::Odd(format!("an odd answer to {what}"))
}
