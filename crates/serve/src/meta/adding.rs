//! I/O servers that are added while this server runs, and the links to all of them.

use super::Meta;
use super::chains::Told;
use super::places::Sight;
use super::stores::Standing;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::client::{Link, objects_link};
use covey_stripe::ops::{Op, Reply};
use covey_wire::Name;
use std::rc::Rc;
use std::sync::Arc;

impl Meta {
    /// Takes in an I/O server that the configuration lists behind the known ones, and those between.
    pub(super) fn add_server(self: &Rc<Self>, name: &Name) -> Outcome<Reply> {
        let (meta, name) = (self.clone(), name.clone());
        Outcome::later(async move {
            while let Some(next) = meta.next_to_add(&name).await? {
                let added = meta.apply_claimed(Op::AddServer { name: next.clone() }).await;
                if added.is_err() && meta.knows(&next).await {
                    // Somebody else has added it meanwhile.
                    continue;
                }
                added?;
                // One step with the change of the store: whoever goes through its servers finds all of them here.
                meta.add_link();
                let server = meta.servers_known() - 1;
                tracing::info!("{} was added: new files lie there too", next.lossy());
                meta.attend(server as u16);
            }
            meta.journal.sync().await?;
            Ok(Reply::Done {})
        })
    }

    async fn knows(&self, name: &Name) -> bool {
        self.store_is_here().await;
        self.store_mut().servers().contains(name)
    }

    /// The next server to take in until this one is known.
    async fn next_to_add(&self, name: &Name) -> Result<Option<Name>> {
        self.store_is_here().await;
        let store = self.store_mut();
        let refuse = |what: String| Err(Errno::because(Errno::EINVAL, what));
        if let Some(at) = store.servers().iter().position(|known| known == name) {
            if store.is_removed(at as u16) {
                return refuse(
                    "it was removed; a server that is added needs a name of its own".into(),
                );
            }
            return Ok(None);
        }
        let listed = (self.configured)();
        if !listed.iter().any(|listed| listed.as_bytes() == name.as_bytes()) {
            return refuse(
                "covey.toml at the metadata server does not list it as an I/O server".into(),
            );
        }
        let added = store.servers_added(&listed)?;
        Ok(added.first().map(|next| Name::from(next.as_str())))
    }

    /// A link to the next server of the store that has none.
    pub(super) fn add_link(&self) {
        let name = {
            let store = self.store_mut();
            store.servers()[self.servers_known()].lossy().into_owned()
        };
        self.stores.borrow_mut().push(Standing::default());
        self.sights.borrow_mut().push(Sight::default());
        self.told.borrow_mut().push(Rc::new(Told::default()));
        let link = objects_link(self.net.clone(), &name, self.options.clone());
        self.links.borrow_mut().push(link);
    }

    /// Meets a server and looks after its objects, for as long as it belongs to the cluster.
    pub(super) fn attend(self: &Rc<Self>, server: u16) {
        task::spawn(self.clone().meet_each(server));
        task::spawn(self.clone().reconcile_each(usize::from(server)));
    }

    /// The link to a server.
    pub(super) fn link(&self, server: u16) -> Result<Arc<Link>> {
        let link = self.links.borrow().get(usize::from(server)).cloned();
        link.ok_or_else(|| {
            Errno::because(Errno::EIO, format!("no I/O server has the index {server}"))
        })
    }

    /// How many servers there are, with those that were removed.
    pub(super) fn servers_known(&self) -> usize {
        self.links.borrow().len()
    }
}
