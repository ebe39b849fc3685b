//! `/net/pace`: the rates for the connections of the reader's machine. A read answers when there is news for that machine since
//! the last read of the same open file, or when the reader would else take this node for silent.

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
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The file.
pub struct Pace(pub Rc<Net>);

/// An open one.
#[derive(Clone)]
pub struct Reader {
    /// The machine; none is this one.
    from: Option<IpAddr>,
    read: Rc<LastRead>,
    is_open: bool,
}

/// What was read last.
#[derive(Default)]
struct LastRead {
    /// The number of the news.
    number: Cell<u64>,
    text: RefCell<Option<(Instant, String)>>,
}

impl LastRead {
    /// Notes what is to be read, unless it says the same as before.
    fn renew(&self, number: u64, text: &str, now: Instant) -> bool {
        self.number.set(number);
        let mut last = self.text.borrow_mut();
        let says_same = |(at, last): &(Instant, String)| {
            now.saturating_duration_since(*at) < REPEATED_AFTER && last == text
        };
        if last.as_ref().is_some_and(says_same) {
            return false;
        }
        *last = Some((now, text.to_owned()));
        true
    }
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
            if number == node.read.number.get() {
                return None;
            }
            let head = format!("news {number}\n");
            let text = net.news_for(node.from, count.saturating_sub(head.len()));
            let is_new = node.read.renew(number, &text, Instant::now());
            is_new.then(|| Bytes::from(head + &text))
        };
        let wait = self.0.news.bell.wait(look);
        Data::later(async move { Ok(wait.await) })
    }
}

impl Net {
    /// Lines for a machine, as many as fit in `bytes_max`.
    fn news_for(&self, from: Option<IpAddr>, bytes_max: usize) -> String {
        let set = self.set.borrow();
        let mut text = format!("dscp {}\n", set.dscp);
        text += &format!("window {}\n", set.window.unwrap_or(WINDOW_BYTES));
        for (own, rate) in self.news.begin.borrow().iter().filter(|_| from.is_some()) {
            text += &begin_line(*own, *rate);
        }
        let lines = self.news.lines.borrow();
        let is_meant = |own: IpAddr, is_sender| from.map_or(is_sender, |from| own == from);
        let meant =
            lines.iter().filter(|(((own, _), is_sender), _)| is_meant(own.ip(), *is_sender));
        for (((own, other), is_sender), limit) in meant {
            let port = if *is_sender { Port::Sender } else { Port::Receiver };
            let line = line(port, (*own, *other), *limit);
            if text.len() + line.len() <= bytes_max {
                text += &line;
            }
        }
        text
    }
}

/// What has not changed is said again after this time: what a silent node has said is not obeyed.
const REPEATED_AFTER: Duration = Duration::from_millis(375);

/// The address of a TCP peer, from its name `tcp!HOST!PORT`.
fn machine_of(name: &str) -> Option<IpAddr> {
    let (host, _) = name.strip_prefix("tcp!")?.rsplit_once('!')?;
    let ip: IpAddr = host.parse().ok()?;
    Some(SocketAddr::new(ip, 0).ip().to_canonical()).filter(|ip| !ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_cluster::pace::SILENCE_MAX;

    /// All readers were answered a hundred times a second because the rate of somebody else's connection had changed.
    #[test]
    fn what_says_the_same_is_no_news_until_the_reader_would_miss_it() {
        let (read, now) = (LastRead::default(), Instant::now());
        assert!(read.renew(1, "a", now));
        assert!(!read.renew(2, "a", now + REPEATED_AFTER / 2));
        assert!(read.renew(3, "b", now + REPEATED_AFTER / 2));
        assert!(!read.renew(4, "b", now + REPEATED_AFTER));
        assert!(read.renew(5, "b", now + 2 * REPEATED_AFTER));
        assert_eq!(read.number.get(), 5);
        // Nodes repeat themselves each quarter of that, and one may come too soon.
        assert!(REPEATED_AFTER + SILENCE_MAX / 2 < SILENCE_MAX);
    }

    #[test]
    fn a_reader_is_known_by_its_machine() {
        assert_eq!(machine_of("tcp!10.1.2.3!40000"), Some([10, 1, 2, 3].into()));
        assert_eq!(machine_of("tcp!::1!40000"), None);
        assert_eq!(machine_of("unix!pid 7"), None);
    }
}
