//! Whose storage is which: a connection that has entered the images or the launcher carries images.
//!
//! Only the node that serves a connection sees what it enters. It says so in `/net/images`, which the nodes at the other ends read
//! once a second.

use super::Net;
use covey_io::os::net::pacing::Ends;
use covey_ninep::message::Qid;
use covey_ninep::namespace::{Entrance, Handle, Part};
use covey_ninep::tree::{Outcome, User};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;

/// The connections that carry images and programs.
#[derive(Default)]
pub struct Images {
    /// Those that this node serves, by their other ends.
    served: RefCell<BTreeSet<SocketAddr>>,
    /// Those that other nodes serve, by node: this machine's end and theirs.
    told: RefCell<BTreeMap<String, BTreeSet<Ends>>>,
}

impl Images {
    /// The name of a connection's class.
    pub fn class_of(&self, ends: &Ends) -> &'static str {
        if self.has(ends) { "images" } else { "storage" }
    }

    pub fn has(&self, ends: &Ends) -> bool {
        self.served.borrow().contains(&ends.1)
            || self.told.borrow().values().any(|all| all.contains(ends))
    }

    /// Forgets those that have ended.
    pub fn keep(&self, is_there: impl Fn(&SocketAddr) -> bool) {
        self.served.borrow_mut().retain(is_there);
    }

    /// What a node says of the connections that it serves.
    pub fn hear(&self, node: &str, text: &str) {
        let all: BTreeSet<Ends> = text.lines().filter_map(parse).take(TOLD_MAX).collect();
        self.told.borrow_mut().insert(node.to_owned(), all);
    }

    /// What this node says: lines of this end and the other.
    pub fn text(&self, ends: impl Iterator<Item = Ends>) -> String {
        let served = self.served.borrow();
        let lines = ends.filter(|(_, peer)| served.contains(peer));
        lines.map(|(local, peer)| format!("{local} {peer}\n")).collect()
    }

    fn note(&self, name: &str) {
        self.served.borrow_mut().extend(end_of(name));
    }
}

/// A part through which images go.
struct Noticed {
    part: Rc<dyn Part>,
    net: Rc<Net>,
}

impl Net {
    /// The same part; connections that enter it are known to carry images.
    pub fn noticed(self: &Rc<Self>, part: Rc<dyn Part>) -> Rc<dyn Part> {
        Rc::new(Noticed { part, net: self.clone() })
    }
}

impl Part for Noticed {
    fn visit(self: Rc<Self>, entrance: Entrance) -> Outcome<(User, Qid, Handle)> {
        self.net.images.note(entrance.peer());
        self.part.clone().visit(entrance)
    }

    fn kind(&self) -> u8 {
        self.part.kind()
    }
}

/// More connections than two nodes have with each other.
const TOLD_MAX: usize = 10_000;

/// A line of a server, as the connection is seen from here.
fn parse(line: &str) -> Option<Ends> {
    let (theirs, ours) = line.split_once(' ')?;
    Some((ours.parse().ok()?, theirs.parse().ok()?))
}

/// The end of a TCP peer, from its name `tcp!HOST!PORT`.
fn end_of(name: &str) -> Option<SocketAddr> {
    let (host, port) = name.strip_prefix("tcp!")?.rsplit_once('!')?;
    let ip: std::net::IpAddr = host.parse().ok()?;
    Some(SocketAddr::new(ip.to_canonical(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_enters_for_images_is_known_until_it_ends() {
        let images = Images::default();
        images.note("tcp!10.1.2.3!40000");
        images.note("unix!pid 7");
        let ends = |port| (([10, 1, 2, 9], 5640).into(), ([10, 1, 2, 3], port).into());
        assert_eq!(images.class_of(&ends(40000)), "images");
        assert_eq!(images.class_of(&ends(40001)), "storage");
        images.keep(|_| false);
        assert_eq!(images.class_of(&ends(40000)), "storage");
    }

    #[test]
    fn both_ends_of_a_connection_have_the_class_that_its_server_knows() {
        let (server, client) = (Images::default(), Images::default());
        let ends = |port| (([10, 1, 2, 9], 5640).into(), ([10, 1, 2, 3], port).into());
        server.note("tcp!10.1.2.3!7");
        client.hear("one", &server.text([ends(7), ends(8)].into_iter()));
        let seen = |port| (ends(port).1, ends(port).0);
        assert_eq!(["images", "storage"], [7, 8].map(|port| client.class_of(&seen(port))));
        client.hear("one", "nonsense\n1 2 3\n10.1.2.9:1\n");
        assert_eq!(client.class_of(&seen(7)), "storage");
    }
}
