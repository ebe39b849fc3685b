//! Several nodes and one volume: one of them serves it, the others know where that is and take its place when it dies.
//!
//! What they must know of each other lies with the volume's file, in attributes: what the volume is (its record, with who may
//! use it), which node serves it, and for each node the addresses at which it would. A node that stands by sends
//! initiators to the one that serves; when it gets the file's lock it serves the volume itself.

use super::record::{self, Backing, Record};
use super::store::Counted;
use super::striped::{self, StripedStore};
use super::{Kept, Opened, Volume, Volumes, own};
use covey_cluster::config::Address;
use covey_iscsi::target::Elsewhere;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::ops::Id;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the file of a volume says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Published {
    /// The file's number.
    pub number: Id,
    /// The record's lines, addresses left out.
    pub record: String,
    /// The node that serves it, or did last.
    pub node: String,
    /// Where each node that may serve it does so.
    pub portals: BTreeMap<String, Vec<String>>,
    /// Changes as long as that node lives.
    pub beat: String,
}

/// How long the node that serves a volume may be silent before another takes it: a node that is stopped keeps its lock.
const SILENCE: Duration = Duration::from_secs(12);
/// Between two looks that are farther apart than this the node that looks was away itself. It looks every 2 s.
const UNHEARD_MAX: Duration = Duration::from_secs(4);
/// The one that is found at once, one that may have begun before the lock was given back, and one after that.
const BEATS_DUE: u8 = 3;

/// What was last heard of the node that serves a volume.
#[derive(Debug, Default)]
pub(super) struct Heard {
    beat: Option<String>,
    /// How long it has been the same one, while this node listened.
    silence: Duration,
    /// When it was last read.
    read_at: Option<Instant>,
    /// Beats to be heard before this node tries to have the volume: it was taken from it by force, and the lock that it
    /// gives back is the other's once that one has asked for it again.
    due: u8,
}

impl Heard {
    /// Its beat is this now. Silence is what was read again and again: a node that was stopped itself, or could not reach the
    /// metadata server, has heard nothing and knows nothing of the other one, and so begins anew.
    fn note(&mut self, beat: &str, now: Instant) {
        let since = self.read_at.replace(now).map(|at| now.saturating_duration_since(at));
        if self.beat.as_deref() != Some(beat) {
            self.beat = Some(beat.to_owned());
            self.silence = Duration::ZERO;
            self.due = self.due.saturating_sub(1);
        } else if let Some(since) = since.filter(|since| *since <= UNHEARD_MAX) {
            self.silence += since;
        } else {
            self.silence = Duration::ZERO;
        }
    }

    /// Whether it had been silent for too long when it was last read.
    fn is_silent(&self) -> bool {
        self.silence > SILENCE
    }

    /// Whether it will have been, if it is read now and says nothing new.
    fn seems_silent(&self, now: Instant) -> bool {
        let unread = self.read_at.map(|at| now.saturating_duration_since(at));
        unread.is_some_and(|unread| self.silence + unread > SILENCE)
    }

    /// Whether this node may try to have the volume without being sure of that.
    pub(super) fn may_try(&self) -> bool {
        self.due == 0
    }

    /// Another node has taken the volume from this one.
    fn lose(&mut self) {
        *self = Heard { due: BEATS_DUE, ..Heard::default() };
    }

    /// This node serves it by now.
    pub(super) fn forget(&mut self) {
        *self = Heard::default();
    }
}

impl Published {
    /// What it says that the volume is, if it does.
    pub(super) fn record_of(&self, name: &str) -> Result<Option<Record>> {
        let unreadable = |error: Errno| {
            let why = format!(
                "what its file says of volume {name} cannot be read: {error}; hint: a newer covey may have written it"
            );
            Errno::because(Errno::EINVAL, why)
        };
        Ok(record::parse(&self.record).map_err(unreadable)?.remove(name))
    }

    /// Where initiators find the node that serves it.
    fn elsewhere(&self, own: &str) -> Option<Elsewhere> {
        let addresses = self.portals.get(&self.node).filter(|_| self.node != own)?;
        let address = addresses.first()?.clone();
        Some(Elsewhere { address, for_good: false })
    }
}

/// The store of a volume that this node serves.
pub(super) type Served = Arc<Counted<StripedStore>>;

impl Volumes {
    /// Whether a volume that is open is another node's by now.
    pub(super) async fn is_lost(&self, name: &str, volume: &Volume, store: &Served) -> bool {
        let (served, beat) = (store.clone(), next_beat(volume));
        // A change of this node's own looks like another's: as long as one is under way, it only says that it lives.
        let Ok(_changing) = volume.changing.try_lock() else {
            let told = async move {
                served.store.beat(beat).await;
                Ok(())
            };
            let _ = self.within(told).await;
            return false;
        };
        let checked = self.within(async move { Ok(served.store.is_lost(beat).await) }).await;
        let is_lost = checked.unwrap_or(false);
        // A node that did not know yet that it has lost the volume may have said otherwise meanwhile.
        if !is_lost && let Err(error) = self.publish_record(name, volume, store).await {
            tracing::debug!("volume {name}: its file cannot be told who serves it: {error}");
        }
        is_lost
    }

    /// Serves a volume no more that is another node's: initiators find it there. A change of it ends first, since another node's
    /// file cannot be changed; nothing is done to what has been opened meanwhile.
    pub(super) async fn lose(&self, name: &str, volume: &Volume, store: &Served) {
        let _changing = volume.changing.lock().await;
        if !volume.striped().is_some_and(|now| Arc::ptr_eq(&now, store)) {
            return;
        }
        tracing::warn!("volume {name}: another node has taken it over");
        *volume.opened.borrow_mut() = Err("another node has taken it over".to_owned());
        volume.heard.borrow_mut().lose();
        self.stand_by(name, volume).await;
        // What has no answer yet gets none from here.
        volume.target.disconnect("another node serves the volume");
        volume.target.device.remove(0);
    }

    /// Learns from the volume's file what it is and who serves it.
    pub(super) async fn stand_by(&self, name: &str, volume: &Volume) {
        volume.stands_by.set(true);
        let path = volume.record.borrow().path.clone();
        let published = match self.published(path).await {
            Ok(published) => published,
            Err(error) => {
                tracing::debug!("volume {name}: {error}");
                volume.target.set_away(true);
                return;
            }
        };
        if let Err(error) = self.take_record(name, volume, &published) {
            tracing::debug!("volume {name}: {error}");
        }
        take_portals(volume, &published);
        volume.heard.borrow_mut().note(&published.beat, Instant::now());
        let elsewhere = published.elsewhere(&self.node);
        volume.target.set_away(elsewhere.is_none());
        volume.target.set_elsewhere(elsewhere);
    }

    /// Whether the node that serves a volume has been silent for too long, and still is: its file is looked at now.
    pub(super) async fn is_silent(&self, volume: &Volume) -> bool {
        if !volume.heard.borrow().seems_silent(Instant::now()) {
            return false;
        }
        let path = volume.record.borrow().path.clone();
        let Ok(published) = self.published(path).await else { return false };
        let mut heard = volume.heard.borrow_mut();
        heard.note(&published.beat, Instant::now());
        heard.is_silent()
    }

    /// Whether this node served a volume last, and has not done so since it began: then the lock is that of its own earlier
    /// process, of which there is none any more.
    pub(super) async fn was_ours(&self, volume: &Volume) -> bool {
        let (path, backing) = {
            let record = volume.record.borrow();
            (record.path.clone(), record.backing)
        };
        if backing != Backing::Striped || volume.has_no_past.get() {
            return false;
        }
        let Ok(published) = self.published(path).await else { return false };
        // Another node's it stays until this one has it by its turn: that is not asked again at each try.
        volume.has_no_past.set(published.node != self.node);
        published.node == self.node && !self.has_open(published.number)
    }

    /// Whether a volume of this process has a file of the cluster's, by the file's number.
    fn has_open(&self, number: Id) -> bool {
        let volumes = self.volumes.borrow();
        let mut open = volumes.values().filter_map(|volume| volume.striped());
        open.any(|store| store.store.number() == number)
    }

    pub(super) async fn published(&self, path: String) -> Result<Published> {
        let (fs, who) = (self.fs().await?, own());
        self.within(async move { striped::published(&fs, &who, &path).await }).await
    }

    /// Who may use the volume is what its file says; addresses are the node's own.
    pub(super) fn take_record(
        &self,
        name: &str,
        volume: &Volume,
        published: &Published,
    ) -> Result<()> {
        let Some(found) = published.record_of(name)? else { return Ok(()) };
        let before = volume.record.borrow().clone();
        let now = merged(&before, found);
        if now == before {
            return Ok(());
        }
        volume.target.set_access(super::portals::access_of(&now.access));
        volume.target.evict("its initiator is let in no more");
        *volume.record.borrow_mut() = now;
        if let Err(error) = self.save() {
            tracing::warn!("the list of volumes: {error}");
        }
        Ok(())
    }

    /// Says with the volume's file what it is, who serves it and where.
    pub(super) async fn publish(&self, name: &str, volume: &Volume, kept: &Kept) {
        let Kept::Striped(store) = kept else { return };
        if let Err(error) = self.publish_record(name, volume, store).await {
            tracing::warn!("volume {name}: its file cannot be told who serves it: {error}");
        }
        self.publish_portals(volume).await;
    }

    async fn publish_record(&self, name: &str, volume: &Volume, store: &Served) -> Result<()> {
        // In turn: what is said last is what is true then.
        let _telling = volume.telling.lock().await;
        let (store, node) = (store.clone(), self.node.clone());
        let record = Record { exports: Vec::new(), ..volume.record.borrow().clone() };
        let record = record.lines(name, None, true);
        self.within(async move { store.store.publish(&node, record).await }).await
    }

    /// Says with the volume's file where this node serves it or would.
    pub(super) async fn publish_portals(&self, volume: &Volume) {
        let _telling = volume.telling.lock().await;
        let record = volume.record.borrow().clone();
        if record.backing != Backing::Striped {
            return;
        }
        let portals = record.exports.iter().map(|address| self.reachable(address)).collect();
        let told = async {
            let (fs, who, node) = (self.fs().await?, own(), self.node.clone());
            let path = record.path.clone();
            self.within(async move {
                striped::publish_portals(&fs, &who, &path, &node, portals).await?;
                striped::published(&fs, &who, &path).await
            })
            .await
        };
        match told.await {
            Ok(published) => take_portals(volume, &published),
            Err(error) => tracing::warn!("where a volume is served cannot be told: {error}"),
        }
    }

    /// Learns where other nodes would serve a volume.
    pub(super) async fn learn_portals(&self, volume: &Volume) {
        let record = volume.record.borrow().clone();
        if record.backing == Backing::Striped
            && let Ok(published) = self.published(record.path).await
        {
            take_portals(volume, &published);
        }
    }

    /// An address as others use it: of one that means all of the machine the node's own host.
    fn reachable(&self, address: &str) -> String {
        let Some((host, port)) = address.rsplit_once(':') else { return address.to_owned() };
        if !["0.0.0.0", "[::]", "*"].contains(&host) {
            return address.to_owned();
        }
        let own = self.config.nodes.iter().find(|node| node.name == self.node);
        let hosts =
            own.into_iter().flat_map(|node| &node.listen).filter_map(|listen| match listen {
                Address::Tcp { host, .. } if !["0.0.0.0", "::", "*"].contains(&host.as_str()) => {
                    Some(host)
                }
                _ => None,
            });
        match hosts.into_iter().next() {
            Some(host) if host.contains(':') => format!("[{host}]:{port}"),
            Some(host) => format!("{host}:{port}"),
            None => address.to_owned(),
        }
    }

    /// After a change of what is published. A metadata server that does not answer holds up no command: it is told again as
    /// long as this node serves the volume.
    pub(super) async fn tell(&self, name: &str, volume: &Volume) {
        let kept = volume.opened.borrow().as_ref().ok().map(|Opened { kept, .. }| kept.clone());
        let telling = async {
            match kept {
                Some(kept) => self.publish(name, volume, &kept).await,
                None => self.publish_portals(volume).await,
            }
        };
        let patience = self.patience.get();
        if tokio::time::timeout(patience, telling).await.is_err() {
            let seconds = patience.as_secs();
            tracing::warn!(
                "volume {name}: its file could not be told of a change within {seconds} s"
            );
        }
    }
}

/// A volume of this node by what its file says: where it is kept and served is for this node to say.
pub(super) fn merged(own: &Record, found: Record) -> Record {
    let Record { exports, path, backing, .. } = own.clone();
    Record { exports, path, backing, ..found }
}

fn next_beat(volume: &Volume) -> u64 {
    let beat = volume.beat.get() + 1;
    volume.beat.set(beat);
    beat
}

/// What discovery reports: with one node only, the address that the initiator has come to.
fn take_portals(volume: &Volume, published: &Published) {
    let nodes = published.portals.values().filter(|addresses| !addresses.is_empty());
    let all: Vec<String> = match nodes.clone().count() {
        0 | 1 => Vec::new(),
        _ => nodes.flatten().cloned().collect(),
    };
    volume.target.set_addresses(all);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hears a beat every two seconds.
    fn listen(
        heard: &mut Heard,
        begun: Instant,
        beat: &str,
        seconds: std::ops::RangeInclusive<u64>,
    ) {
        let each = seconds.step_by(2);
        each.for_each(|second| heard.note(beat, begun + Duration::from_secs(second)));
    }

    #[test]
    fn a_node_is_silent_when_its_beat_has_not_changed_for_long() {
        let (mut heard, begun) = (Heard::default(), Instant::now());
        assert!(!heard.is_silent(), "nobody has listened yet");
        assert!(!heard.seems_silent(begun));
        listen(&mut heard, begun, "1", 0..=12);
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert!(!heard.is_silent() && !heard.seems_silent(at(12)) && heard.seems_silent(at(13)));
        listen(&mut heard, begun, "1", 14..=14);
        assert!(heard.is_silent());
        listen(&mut heard, begun, "2", 16..=28);
        assert!(!heard.is_silent());
        listen(&mut heard, begun, "2", 30..=30);
        assert!(heard.is_silent());
        heard.forget();
        assert!(!heard.is_silent());
    }

    /// Stopped for a while, or without the metadata server, it has not listened: the other one may have said whatever.
    #[test]
    fn a_node_that_was_away_itself_takes_no_other_for_silent() {
        let (mut heard, begun) = (Heard::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        listen(&mut heard, begun, "1", 0..=10);
        heard.note("1", at(100_000));
        assert!(!heard.is_silent(), "the other one's beat may not have come through yet");
        // From both sides: what is as far apart as it may be counts, what is farther does not.
        for (apart, is_silent) in [(4000, true), (4001, false)] {
            let mut heard = Heard::default();
            (0..=4).for_each(|turn| heard.note("1", at(turn * apart)));
            assert_eq!(heard.is_silent(), is_silent, "{apart} ms");
        }
    }

    #[test]
    fn a_node_that_has_lost_a_volume_lets_the_other_one_have_the_lock_first() {
        let (mut heard, begun) = (Heard::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert!(heard.may_try(), "nobody has taken it");
        heard.lose();
        for (second, beat) in [(0, "1"), (1, "1"), (2, "2")] {
            heard.note(beat, at(second));
            assert!(!heard.may_try() && !heard.is_silent());
        }
        listen(&mut heard, begun, "2", 4..=16);
        assert!(!heard.may_try() && heard.is_silent(), "the other one is silent");
        heard.note("3", at(17));
        assert!(heard.may_try() && !heard.is_silent());
    }

    #[test]
    fn a_file_does_not_say_where_its_volume_is_kept() {
        let (_, own, _) = Record::of_words(&["u", "striped", "/u"]).unwrap();
        let text = "create u file /etc/shadow block 4096 serial 7 adopted\nacl u allow iqn.a\n";
        let found = record::parse(text).unwrap().remove("u").unwrap();
        let now = merged(&own, found);
        assert_eq!((now.backing, now.path.as_str()), (Backing::Striped, "/u"));
        assert_eq!((now.block_bytes, now.serial.as_str()), (4096, "7"));
    }

    #[test]
    fn initiators_are_led_to_the_first_address_of_the_node_that_serves() {
        let mut published = Published { node: "io1".into(), ..Published::default() };
        assert_eq!(published.elsewhere("io2"), None);
        let addresses = vec!["10.0.0.1:3260".to_owned(), "10.0.1.1:3260".to_owned()];
        published.portals.insert("io1".into(), addresses);
        assert_eq!(published.elsewhere("io2").unwrap().address, "10.0.0.1:3260");
        assert_eq!(published.elsewhere("io1"), None, "it is not this node's yet");
    }
}
