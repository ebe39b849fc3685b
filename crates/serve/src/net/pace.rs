//! `/net/pace`: the rates for the connections of the reader's machine. A read answers when there is news since the last read of
//! the same open file.

use super::Net;
use covey_cluster::pace::{begin_line, line};
use covey_io::os::net::pacing::Port;
use covey_ninep::client::WINDOW_BYTES;
use covey_ninep::message::Qid;
use covey_ninep::text::check_read_only;
use covey_ninep::tree::{
    Attach, Attr, Data, Errno, Opened, Outcome, Read, S_IFREG, Time, Tree, User,
};
use covey_wire::Bytes;
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// The file.
pub struct Pace(pub Rc<Net>);

/// An open one.
#[derive(Clone)]
pub struct Reader {
    /// The machine; none is this one.
    from: Option<IpAddr>,
    /// The number of the news that was read last.
    read: Rc<Cell<u64>>,
    is_open: bool,
}

const QID: Qid = Qid { kind: Qid::FILE, version: 0, path: 1 };

impl Tree for Pace {
    type Node = Reader;

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, Reader)> {
        Errno::EACCES.into()
    }

    fn enter(&self, user: &User, attach: Attach) -> Outcome<(User, Qid, Reader)> {
        let from = machine_of(&attach.peer.name);
        let reader = Reader { from, read: Rc::default(), is_open: false };
        Ok((user.clone(), QID, reader)).into()
    }

    fn root_kind(&self) -> u8 {
        Qid::FILE
    }

    fn getattr(&self, _: &Rc<User>, _: &Reader) -> Outcome<Attr> {
        Ok(Attr::new(QID.path, S_IFREG | 0o444, 0, 0, Time::default())).into()
    }

    fn open(&self, _: &Rc<User>, node: &Reader, flags: u32) -> Outcome<Opened<Reader>> {
        let node = Reader { from: node.from, read: Rc::default(), is_open: true };
        check_read_only(flags).map(|()| Opened { qid: QID, node, blocking: true }).into()
    }

    fn read(&self, _: &Rc<User>, node: &Reader, read: Read<'_>) -> Data {
        if !node.is_open {
            return Errno::EBADF.into();
        }
        let (net, node, count) = (self.0.clone(), node.clone(), read.count as usize);
        let look = move || {
            let number = net.news.number.get();
            (number != node.read.get()).then(|| {
                node.read.set(number);
                net.news_for(node.from, count)
            })
        };
        let wait = self.0.news.bell.wait(look);
        Data::later(async move { Ok(wait.await) })
    }
}

impl Net {
    /// Lines for a machine, as many as fit in `bytes_max`. An empty answer would be the end of the file.
    fn news_for(&self, from: Option<IpAddr>, bytes_max: usize) -> Bytes {
        let mut text = format!("news {}\n", self.news.number.get());
        let set = self.set.borrow();
        text += &format!("dscp {}\n", set.dscp);
        text += &format!("window {}\n", set.window.unwrap_or(WINDOW_BYTES));
        for (own, rate) in self.news.begin.borrow().iter().filter(|_| from.is_some()) {
            text += &begin_line(*own, *rate);
        }
        for (((own, other), is_sender), rate) in self.news.lines.borrow().iter() {
            let is_meant = from.map_or(*is_sender, |from| own.ip() == from);
            let port = if *is_sender { Port::Sender } else { Port::Receiver };
            let line = line(port, (*own, *other), *rate);
            if is_meant && text.len() + line.len() <= bytes_max {
                text += &line;
            }
        }
        text.into()
    }
}

/// The address of a TCP peer, from its name `tcp!HOST!PORT`.
fn machine_of(name: &str) -> Option<IpAddr> {
    let (host, _) = name.strip_prefix("tcp!")?.rsplit_once('!')?;
    let ip: IpAddr = host.parse().ok()?;
    Some(SocketAddr::new(ip, 0).ip().to_canonical()).filter(|ip| !ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_known_by_its_machine() {
        assert_eq!(machine_of("tcp!10.1.2.3!40000"), Some([10, 1, 2, 3].into()));
        assert_eq!(machine_of("tcp!::1!40000"), None);
        assert_eq!(machine_of("unix!pid 7"), None);
    }
}
