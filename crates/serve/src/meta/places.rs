//! Which I/O servers get new files: the metadata server looks who serves and how full the disks are, and what changes
//! goes into the log before the next file is dealt (see `covey_stripe::meta::place`).

use super::Meta;
use covey_io::task;
use covey_ninep::message::Message;
use covey_ninep::tree::{Errno, Outcome};
use covey_stripe::meta::place;
use covey_stripe::ops::{Op, Place, Reply};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often it is looked who serves.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// An I/O server that does not serve for so long gets no new files. A restart is shorter.
const AWAY_AFTER: Duration = Duration::from_secs(3);
/// How often the disks are asked for their space, and how long an answer is waited for.
const SPACE_EVERY: Duration = Duration::from_secs(5);
const SPACE_WAIT: Duration = Duration::from_secs(2);
/// A disk is nearly full below this share of free space, in percent, and until there is the second again.
const FULL_BELOW: u64 = 5;
const FULL_UNTIL: u64 = 7;

/// What has been seen of an I/O server.
#[derive(Clone, Debug, Default)]
pub(super) struct Sight {
    /// Its connection is there.
    pub is_connected: bool,
    /// Since when it does not serve.
    away_since: Option<Instant>,
    /// Bytes of its disk, and those that can be had.
    space: Option<(u64, u64)>,
}

impl Meta {
    /// Looks at the I/O servers for as long as this server lives.
    pub(super) async fn look_at_servers(self: Rc<Self>) {
        let mut asked: Option<Instant> = None;
        loop {
            if asked.is_none_or(|asked| task::now() - asked >= SPACE_EVERY) {
                asked = Some(task::now());
                for server in 0..self.servers_known() {
                    task::spawn(self.clone().ask_space(server));
                }
                task::spawn(self.clone().tidy_chains());
            }
            self.store_is_here().await;
            let known = self.store_mut().places();
            for (server, known) in known.into_iter().enumerate() {
                if known & place::REMOVED != 0 {
                    continue;
                }
                let seen = self.place_seen(server, known);
                if seen != known {
                    self.tell_place(server, known, seen);
                    let place = Op::Place { server: server as u16, state: seen };
                    self.keep_place(place).await;
                }
            }
            self.store_is_here().await;
            self.tell_of_changes();
            task::sleep(LOOK_EVERY).await;
        }
    }

    /// What is to be so of a server's place.
    fn place_seen(&self, server: usize, known: u8) -> u8 {
        let is_serving = self.is_serving(server);
        let mut sights = self.sights.borrow_mut();
        let sight = &mut sights[server];
        let since = sight.away_since.take().filter(|_| !is_serving);
        sight.away_since = (!is_serving).then(|| since.unwrap_or_else(task::now));
        let is_away = match sight.away_since {
            // One that was away stays so until it serves.
            Some(since) => known & place::AWAY != 0 || task::now() - since >= AWAY_AFTER,
            None => false,
        };
        let is_full = is_full(sight.space, known & place::FULL != 0);
        let bit = |is_so: bool, bit: u8| if is_so { bit } else { 0 };
        known & (place::CLOSED | place::LEAVING)
            | bit(is_away, place::AWAY)
            | bit(is_full, place::FULL)
    }

    /// Refuses to begin a move that would wait: while those who had the file open before a start may not have come back, and
    /// where a server that the file lies on does not serve.
    pub(super) fn may_move(&self, op: &Op) -> Result<(), Errno> {
        let refuse = |why: String| Err(Errno::because(Errno::EBUSY, why));
        if self.is_lock_grace() {
            return refuse("the metadata server has just started".into());
        }
        let Op::BeginMove { id } = *op else { return Ok(()) };
        let Reply::Node { inode } = self.ask_own(Op::Getattr { id }) else { return Ok(()) };
        let Some(striping) = inode.striping else { return Ok(()) };
        let members = self.members_of(&striping)?;
        match members.iter().find(|part| !self.is_serving(usize::from(part.server))) {
            None => Ok(()),
            Some(part) => {
                let link = self.link(part.server)?;
                let name = link.server();
                Err(Errno::because(
                    Errno::EIO,
                    format!("{name}, where the file lies, does not serve"),
                ))
            }
        }
    }

    /// What has been seen of a server; nothing of it is lost if the server ends meanwhile, since it is seen again.
    async fn keep_place(self: &Rc<Self>, place: Op) {
        if let Err(error) = self.apply_claimed(place).await {
            tracing::warn!("what was seen of an I/O server is not kept: {error}");
        }
    }

    pub(super) fn is_serving(&self, server: usize) -> bool {
        self.sights.borrow()[server].is_connected && self.may_serve(server)
    }

    fn tell_place(&self, server: usize, before: u8, now: u8) {
        let Ok(link) = self.link(server as u16) else { return };
        let name = link.server();
        let reasons = [
            (place::AWAY, "it does not serve", "it serves again"),
            (place::FULL, "its disk is nearly full", "its disk has space again"),
        ];
        for (bit, begins, ends) in reasons {
            match (before & bit != 0, now & bit != 0) {
                (false, true) => tracing::warn!("{name} gets no new files: {begins}"),
                (true, false) => tracing::info!("{name} may get new files: {ends}"),
                _ => {}
            }
        }
    }

    async fn ask_space(self: Rc<Self>, server: usize) {
        if !self.is_serving(server) {
            return;
        }
        let Ok(link) = self.link(server as u16) else { return };
        let asked = async {
            let (_, conn) = link.conn(link.now()).await.ok()?;
            conn.call(Message::Tstatfs { fid: 0 }).await.ok()
        };
        if let Some(Some(Message::Rstatfs { bsize, blocks, bavail, .. })) =
            task::timeout(SPACE_WAIT, asked).await
        {
            let unit = u64::from(bsize);
            let space = (blocks.saturating_mul(unit), bavail.saturating_mul(unit));
            self.sights.borrow_mut()[server].space = Some(space);
        }
    }

    /// Closes a server to new files, or opens it, which ends its drain.
    pub(super) fn set_place(self: &Rc<Self>, server: u16, closed: bool) -> Outcome<Reply> {
        if closed {
            return self.close_place(server, true);
        }
        let meta = self.clone();
        Outcome::later(async move {
            meta.stop_drain(server).await?;
            meta.store_is_here().await;
            super::finish(meta.close_place(server, false)).await
        })
    }

    /// Closes a server to new files, or opens it. The store must be here.
    pub(super) fn close_place(self: &Rc<Self>, server: u16, closed: bool) -> Outcome<Reply> {
        let places = self.store_mut().places();
        let Some(&known) = places.get(usize::from(server)) else {
            let count = places.len();
            let text = format!("no I/O server has index {server}: there are {count}");
            return Outcome::Now(Err(Errno::because(Errno::EINVAL, text)));
        };
        let others = || places.iter().enumerate().filter(|&(at, _)| at != usize::from(server));
        if closed && others().all(|(_, place)| place & place::CLOSED != 0) {
            let text = "no other I/O server is open to new files";
            return Outcome::Now(Err(Errno::because(Errno::EBUSY, text)));
        }
        let meta = self.clone();
        let bit = if closed { place::CLOSED } else { 0 };
        if known & place::REMOVED != 0 {
            return Outcome::Now(Err(Errno::because(Errno::EINVAL, "it was removed")));
        }
        let kept = known & !(place::CLOSED | place::LEAVING);
        self.apply_own(Op::Place { server, state: kept | bit });
        Outcome::later(async move {
            meta.journal.sync().await?;
            Ok(Reply::Done {})
        })
    }

    /// What is known of all servers' places.
    pub(super) fn place_states(&self) -> Outcome<Reply> {
        let mut reply = self.ask_own(Op::Places {});
        if let Reply::Places { places } = &mut reply {
            for (server, place) in places.0.iter_mut().enumerate() {
                let (bytes_total, bytes_available) =
                    self.sights.borrow()[server].space.unwrap_or_default();
                let is_serving = self.is_serving(server);
                *place = Place { is_serving, bytes_total, bytes_available, ..place.clone() };
            }
        }
        Outcome::Now(Ok(reply))
    }

    /// A server's connection has come, or has gone.
    pub(super) fn saw(&self, server: u16, is_connected: bool) {
        self.sights.borrow_mut()[usize::from(server)].is_connected = is_connected;
    }
}

/// Whether a disk is nearly full; one that was stays so for a little longer.
fn is_full(space: Option<(u64, u64)>, was_full: bool) -> bool {
    let Some((total, available)) = space else { return was_full };
    let percent = if was_full { FULL_UNTIL } else { FULL_BELOW };
    u128::from(available) * 100 < u128::from(total) * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::is_full;

    #[test]
    fn a_disk_is_nearly_full_below_five_percent_and_has_space_again_from_seven() {
        let of = |available, was_full| is_full(Some((1000, available)), was_full);
        assert_eq!(
            [49, 50, 69, 70].map(|available| of(available, false)),
            [true, false, false, false]
        );
        assert_eq!(
            [49, 50, 69, 70].map(|available| of(available, true)),
            [true, true, true, false]
        );
        assert_eq!((is_full(None, true), is_full(None, false)), (true, false));
        assert!(!is_full(Some((0, 0)), true), "a file system that does not say is not full");
    }
}
