//! This command's input, for the ranks that are to have it.

use super::tree::Session;
use covey_ninep::tree::Errno;
use covey_wire::Bytes;
use std::io::Read;
use std::rc::Rc;
use std::str::FromStr;
use tokio::sync::mpsc;

/// Who gets the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Every rank gets all of it.
    All,
    /// Nobody: theirs is empty.
    None,
    /// This rank; that of the others is empty.
    Rank(u32),
}

impl Whom {
    /// Whether a rank gets it.
    pub fn includes(self, rank: u32) -> bool {
        match self {
            Whom::All => true,
            Whom::None => false,
            Whom::Rank(one) => one == rank,
        }
    }
}

impl FromStr for Whom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Whom::All),
            "none" => Ok(Whom::None),
            rank => {
                rank.parse().map(Whom::Rank).map_err(|_| "a rank, all or none is wanted".to_owned())
            }
        }
    }
}

/// Hands this process's input to sessions until it ends. A session that takes no more is left out; the input goes
/// as fast as the slowest takes it.
pub async fn feed(sessions: Vec<Rc<Session>>) {
    let mut open = Vec::new();
    for session in sessions {
        if let Ok(fid) = session.open("stdin", O_WRONLY).await {
            open.push((session, fid, 0));
        }
    }
    let mut input = read_all();
    while let Some(data) = input.recv().await {
        let writes = open.into_iter().map(|(session, fid, at)| {
            let data = data.clone();
            async move {
                let next = at + data.len() as u64;
                session.put(&fid, at, data).await.ok().map(|()| (session, fid, next))
            }
        });
        open = futures_util::future::join_all(writes).await.into_iter().flatten().collect();
        if open.is_empty() {
            return;
        }
    }
    for (session, _, _) in &open {
        close(session).await;
    }
}

/// Ends a session's input.
pub async fn close(session: &Session) {
    match session.command(&["close"]).await {
        // It may have ended already.
        Ok(()) | Err(Errno { .. }) => {}
    }
}

/// The input in pieces, read by a thread: it may be a terminal at which nobody types. What has been read and
/// not taken is bounded.
fn read_all() -> mpsc::Receiver<Bytes> {
    let (pieces, incoming) = mpsc::channel(4);
    let reader = move || {
        loop {
            let mut data = vec![0; 64 << 10];
            match std::io::stdin().lock().read(&mut data) {
                Ok(count) if count > 0 => data.truncate(count),
                _ => return,
            }
            if pieces.blocking_send(data.into()).is_err() {
                return;
            }
        }
    };
    // Without a thread there is no input.
    let _ = std::thread::Builder::new().name("stdin".into()).spawn(reader);
    incoming
}

const O_WRONLY: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_the_input_is_one_all_or_nobody() {
        assert_eq!("all".parse(), Ok(Whom::All));
        assert_eq!("3".parse(), Ok(Whom::Rank(3)));
        assert!("some".parse::<Whom>().is_err() && "-1".parse::<Whom>().is_err());
        let who = |whom: Whom| [0, 1].map(|rank| whom.includes(rank));
        assert_eq!(
            [who(Whom::All), who(Whom::None), who(Whom::Rank(1))],
            [[true, true], [false, false], [false, true]]
        );
    }
}
