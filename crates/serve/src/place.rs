//! The CPU that a server runs on: that of its client, while there is only one and it waits for each
//! answer. See [`covey_io::os::place`].

use covey_io::os::net::{PeerInfo, Stream};
use covey_io::os::place::{Follower, Front, SMALL_BYTES, Whereabouts};
use covey_io::os::run::Observer;
use std::cell::RefCell;

/// Who the clients of a server are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// Mounts and other parts of Covey, which choose their own CPU.
    #[default]
    Mounts,
    /// Anybody.
    Programs,
}

/// One connection of a server.
pub struct Conversation {
    clients: Clients,
    /// Its number, from 1.
    number: u64,
    /// The client's process, where it is on this machine.
    pid: Option<u32>,
    /// The client is on this machine.
    is_here: bool,
}

/// What the connections of a thread share.
struct Shared {
    connections: u64,
    follower: Option<Follower>,
    front: Option<Front>,
}

thread_local! {
    static SHARED: RefCell<Shared> = RefCell::new(Shared {
        connections: 0,
        follower: Follower::new(),
        front: Front::new(),
    });
}

impl Conversation {
    /// A connection that has just been accepted.
    pub fn new(peer: &PeerInfo, clients: Clients) -> Conversation {
        let number = SHARED.with_borrow_mut(|shared| {
            shared.connections += 1;
            shared.connections
        });
        Conversation { clients, number, pid: peer.pid, is_here: peer.loopback }
    }
}

impl Observer<Stream> for Conversation {
    fn heard(&mut self, stream: &Stream, bytes: usize, owed: bool) {
        let (is_alone, is_large) = (self.is_here && !owed, bytes > SMALL_BYTES);
        SHARED.with_borrow_mut(|shared| match (self.clients, shared) {
            (Clients::Mounts, Shared { follower: Some(follower), .. }) => match self.pid {
                Some(pid) if is_alone && !is_large => follower.alone(pid),
                _ => follower.crowd(),
            },
            (Clients::Programs, Shared { front: Some(front), .. }) => {
                if is_alone {
                    front.alone(self.number, true, || match self.pid {
                        Some(pid) => Whereabouts::OfThread(pid),
                        None => {
                            stream.incoming_cpu().map_or(Whereabouts::Unknown, Whereabouts::Cpu)
                        }
                    })
                } else {
                    front.crowd()
                }
                if is_large {
                    front.large()
                }
            }
            _ => {}
        });
    }
}
