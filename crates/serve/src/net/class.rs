//! Whose storage is which: a connection that has entered the images or the launcher carries images.

use super::Net;
use covey_ninep::message::Qid;
use covey_ninep::namespace::{Entrance, Handle, Part};
use covey_ninep::tree::{Outcome, User};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;

/// The other ends of connections that carry images and programs.
#[derive(Default)]
pub struct Images(RefCell<BTreeSet<SocketAddr>>);

impl Images {
    /// The name of a connection's class.
    pub fn class_of(&self, peer: &SocketAddr) -> &'static str {
        if self.0.borrow().contains(peer) { "images" } else { "storage" }
    }

    pub fn has(&self, peer: &SocketAddr) -> bool {
        self.0.borrow().contains(peer)
    }

    /// Forgets those that have ended.
    pub fn keep(&self, is_there: impl Fn(&SocketAddr) -> bool) {
        self.0.borrow_mut().retain(is_there);
    }

    fn note(&self, name: &str) {
        self.0.borrow_mut().extend(end_of(name));
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
        let peer = ([10, 1, 2, 3], 40000).into();
        assert_eq!(images.class_of(&peer), "images");
        assert_eq!(images.class_of(&([10, 1, 2, 3], 40001).into()), "storage");
        images.keep(|_| false);
        assert_eq!(images.class_of(&peer), "storage");
    }
}
