//! What clients have done, by account, as it is collected: who collects sums takes one that falls for a server that has
//! begun anew, and counts what is left of it once more. So each request is on one account at a time, and what was read on
//! one account is never moved to another.
//!
//! Accounts are bounded. A new one takes the place of the one whose last client left longest ago, and never that of one
//! whose clients are connected. Where all are, the new client is on the account of the others for as long as it stays.

use super::Histogram;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Accounts of one part that are kept. What others do is on one account together.
const ACCOUNTS_MAX: usize = 1000;
/// Its name.
pub const OTHERS: &str = "others";
/// The longest name of a client or a job on an account, in characters.
const NAME_CHARS_MAX: usize = 100;

/// The accounts of one part.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    named: BTreeMap<Name, Account>,
    /// Of clients that have ended.
    others: Sums,
    /// Clients that have ended.
    ends: u64,
}

/// A client, and its job or nothing.
type Name = (String, String);

#[derive(Debug, Default)]
struct Account {
    /// Clients that are connected.
    connected: usize,
    /// Of clients that have ended.
    ended: Sums,
    /// All that somebody has read on this account.
    read: Sums,
    /// The number of the last end of one of its clients.
    last_end: u64,
}

/// On which account a client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// On none: nobody has read what it did.
    #[default]
    New,
    /// On its own.
    Named,
    /// On that of the others.
    Others,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    bytes: u64,
    count: u64,
    ns: u64,
}

impl Sums {
    pub fn of(bytes: u64, times: &Histogram) -> Sums {
        let (count, ns) = times.sums();
        Sums { bytes, count, ns }
    }

    pub fn is_nothing(&self) -> bool {
        self.count == 0
    }

    fn add(&mut self, more: Sums) {
        self.bytes += more.bytes;
        self.count += more.count;
        self.ns = self.ns.wrapping_add(more.ns);
    }

    fn without(&self, less: Sums) -> Sums {
        Sums {
            bytes: self.bytes.saturating_sub(less.bytes),
            count: self.count.saturating_sub(less.count),
            ns: self.ns.wrapping_sub(less.ns),
        }
    }
}

impl Accounts {
    /// A client that is connected has done something, and is about to be read.
    pub fn enter(&mut self, client: &str) -> Standing {
        match self.account(client) {
            Some(account) => {
                account.connected += 1;
                Standing::Named
            }
            None => Standing::Others,
        }
    }

    /// A client has ended, or goes on as another one.
    pub fn leave(&mut self, client: &str, standing: Standing, did: Sums) {
        if standing == Standing::New && did.is_nothing() {
            return;
        }
        self.ends += 1;
        let last_end = self.ends;
        let account = match standing {
            Standing::Others => None,
            Standing::New | Standing::Named => self.account(client),
        };
        let Some(account) = account else { return self.others.add(did) };
        account.ended.add(did);
        account.last_end = last_end;
        if standing == Standing::Named {
            account.connected = account.connected.saturating_sub(1);
        }
    }

    /// All accounts are about to be read. [`Accounts::reads`] follows for each client that is connected.
    pub fn read(&mut self) {
        self.named.values_mut().for_each(|account| account.read = account.ended);
    }

    /// What a connected client did is about to be read.
    pub fn reads(&mut self, client: &str, standing: Standing, did: Sums) {
        if standing == Standing::Named
            && let Some(account) = self.named.get_mut(&account(client))
        {
            account.read.add(did);
        }
    }

    /// Forgets what was done, and not who is connected.
    pub fn reset(&mut self) {
        self.others = Sums::default();
        self.named.retain(|_, account| account.connected > 0);
        for account in self.named.values_mut() {
            (account.ended, account.read) = Default::default();
        }
    }

    /// A client's own account, an old or a new one; None where it is on that of the others.
    fn account(&mut self, client: &str) -> Option<&mut Account> {
        let name = account(client);
        let is_others = (name.0.as_str(), name.1.as_str()) == (OTHERS, "");
        if is_others || (!self.named.contains_key(&name) && !self.has_room()) {
            return None;
        }
        Some(self.named.entry(name).or_default())
    }

    /// Whether there is room for one more account, or was made.
    fn has_room(&mut self) -> bool {
        if self.named.len() < ACCOUNTS_MAX {
            return true;
        }
        let idle = self.named.iter().filter(|(_, account)| account.connected == 0);
        let oldest = idle.min_by_key(|(_, account)| account.last_end).map(|(name, _)| name.clone());
        let Some(gone) = oldest.and_then(|name| self.named.remove(&name)) else { return false };
        // What was read on it is known; only the rest may be counted elsewhere.
        self.others.add(gone.ended.without(gone.read));
        true
    }

    /// `ended PART ACCOUNT bytes N count N sum_ns N`.
    pub fn text(&self, part: &str) -> String {
        let mut out = String::new();
        let mut line = |account: &str, Sums { bytes, count, ns }: Sums| {
            if count > 0 {
                writeln!(out, "ended {part} {account:?} bytes {bytes} count {count} sum_ns {ns}")
                    .expect("writing into a string cannot fail");
            }
        };
        for ((client, job), account) in &self.named {
            match job.as_str() {
                "" => line(client, account.ended),
                job => line(&format!("{client} job {job}"), account.ended),
            }
        }
        line(OTHERS, self.others);
        out
    }
}

/// A client's name without what tells apart its processes and connections: `USER@HOST` and `JOB` of `USER@HOST job JOB pid N
/// #COPY`, `tcp!ADDRESS` of `tcp!ADDRESS!PORT`, `unix` of `unix!pid N`; cut where it is long. The account of an account's
/// name is the same.
pub fn account(name: &str) -> (String, String) {
    let name = without_number(name, " #");
    let name = match without_number(name, " pid ") {
        name if name.starts_with("unix!pid ") => "unix",
        name if name.starts_with("tcp!") => without_number(name, "!"),
        name => name,
    };
    let (client, job) = name.split_once(" job ").unwrap_or((name, ""));
    (short(client), short(job))
}

/// A text without a number at its end, and without the word before that.
fn without_number<'t>(text: &'t str, word: &str) -> &'t str {
    let is_number = |(_, number): &(&str, &str)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.rsplit_once(word).filter(is_number).map_or(text, |(text, _)| text)
}

fn short(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
