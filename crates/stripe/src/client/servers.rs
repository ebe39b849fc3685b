//! The I/O servers by the index that stripings give them. More may be added while a client runs: the
//! metadata server, which has to be started anew for it, then names more than it did.

use super::session::Session;
use super::{Error, Link, Net, Options, Result, data_link, unexpected};
use crate::ops::{Caller, Op, Reply, Striping};
use covey_ninep::tree::Errno;
use std::sync::{Arc, RwLock};

/// Links to the I/O servers; one is dialled when it is needed.
pub struct Servers {
    net: Arc<dyn Net>,
    options: Options,
    links: RwLock<Vec<Arc<Link>>>,
}

impl Servers {
    /// Those that the metadata server names.
    pub async fn ask(net: Arc<dyn Net>, options: Options, session: &Session) -> Result<Servers> {
        let servers = Servers { net, options, links: RwLock::default() };
        servers.ask_again(session).await?;
        Ok(servers)
    }

    /// Adds those that the metadata server names by now. What is known stays: their order is part of
    /// the data.
    pub async fn ask_again(&self, session: &Session) -> Result<()> {
        let reply = session.ask(&Caller::default(), Op::Cluster {}).await?;
        let Reply::Cluster { servers, .. } = reply else { return Err(unexpected(&reply)) };
        let mut links = self.links.write().expect("no holder panics");
        for server in servers.0.iter().skip(links.len()) {
            let (net, options) = (self.net.clone(), self.options.clone());
            links.push(data_link(net, &server.lossy(), options, session.unique()));
        }
        Ok(())
    }

    /// Asks again when a striping names one that is not known.
    pub async fn meet(&self, striping: &Striping, session: &Session) -> Result<()> {
        let known = self.links.read().expect("no holder panics").len();
        if striping.servers.0.iter().all(|&index| usize::from(index) < known) {
            Ok(())
        } else {
            self.ask_again(session).await
        }
    }

    /// The server of this index.
    pub fn get(&self, index: u16) -> Result<Arc<Link>> {
        let links = self.links.read().expect("no holder panics");
        links.get(usize::from(index)).cloned().ok_or_else(|| {
            let what = format!("no I/O server has index {index}: there are {}", links.len());
            Error::because(Errno::EIO, what)
        })
    }

    /// All servers of a striping, in its order.
    pub fn all_of(&self, striping: &Striping) -> Result<Vec<Arc<Link>>> {
        striping.servers.0.iter().map(|&index| self.get(index)).collect()
    }

    /// All that are known, by index.
    pub fn all(&self) -> Vec<Arc<Link>> {
        self.links.read().expect("no holder panics").clone()
    }
}
