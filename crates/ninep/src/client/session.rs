//! How a session begins: version, proof of the key, attach.

use super::{CallError, Conn, Fid};
use crate::auth::{self, KEYS_MAX, Key, NONCE_BYTES, PROOF_BYTES};
use crate::message::{Dialect, MSIZE_MIN, Message, NOFID, NONUNAME, Number, Qid};
use crate::tree::Errno;
use covey_wire::{Bytes, Name};

/// What a call answers.
pub type Result<T> = std::result::Result<T, CallError>;

impl Conn {
    /// Settles dialect and message size: Covey's if the server speaks it, else .L. To be done once,
    /// before anything else.
    pub async fn version(&self) -> Result<Dialect> {
        self.version_of(&[Dialect::Covey, Dialect::Linux]).await
    }

    /// Settles on the first of these dialects that the server speaks, each offered in turn. A server may
    /// answer an offer with a lesser one of them.
    pub async fn version_of(&self, dialects: &[Dialect]) -> Result<Dialect> {
        let mut refusal = String::new();
        for (at, offer) in dialects.iter().enumerate() {
            let msize = self.msize();
            let version = offer.version().into();
            let (settled, version) = match self.call(Message::Tversion { msize, version }).await {
                Ok(Message::Rversion { msize, version }) => (msize, version),
                Ok(_) => unreachable!("{OWN_REPLY}"),
                // Some say so of what they do not know.
                Err(CallError::Errno(errno)) => {
                    refusal = format!(": {errno}");
                    continue;
                }
                Err(lost) => return Err(lost),
            };
            let spoken = Dialect::parse(version.as_bytes());
            let Some(dialect) = spoken.filter(|dialect| dialects[at..].contains(dialect)) else {
                continue;
            };
            if !(MSIZE_MIN..=msize).contains(&settled) {
                let what = format!("Rversion has msize {settled}, {msize} was offered");
                return Err(self.violation(&what));
            }
            self.shared().with(|state| {
                (state.dialect, state.msize) = (Some(dialect), settled);
            });
            return Ok(dialect);
        }
        let asked: Vec<_> = dialects.iter().map(|dialect| dialect.version()).collect();
        Err(self.violation(&format!("server speaks no {}{refusal}", asked.join(" or "))))
    }

    /// Makes `fid` the root of the tree `aname`, for the user called `uname`, by number `n_uname`
    /// if there is one. With a key, both sides prove first that they know it; `nonce` is 32 random
    /// bytes.
    pub async fn auth_and_attach(
        &self,
        fid: u32,
        uname: impl Into<Name>,
        n_uname: Option<u32>,
        aname: impl Into<Name>,
        key: Option<Key>,
        nonce: [u8; NONCE_BYTES],
    ) -> Result<Qid> {
        let (uname, aname) = (uname.into(), aname.into());
        let n_uname = Number(n_uname.unwrap_or(NONUNAME));
        let afid = match key {
            Some(key) => Some(self.prove(uname.clone(), aname.clone(), n_uname, key, nonce).await?),
            None => None,
        };
        let afid = afid.as_ref().map_or(NOFID, Fid::number);
        match self.call(Message::Tattach { fid, afid, uname, aname, n_uname }).await? {
            Message::Rattach { qid } => Ok(qid),
            _ => unreachable!("{OWN_REPLY}"),
        }
    }

    async fn prove(
        &self,
        uname: Name,
        aname: Name,
        n_uname: Number,
        key: Key,
        nonce: [u8; NONCE_BYTES],
    ) -> Result<Fid> {
        let afid = Fid::new(self);
        let fid = afid.number();
        let auth = self.call(Message::Tauth { afid: fid, uname, aname, n_uname });
        let write = self.auth_write(fid, 0, Bytes::copy_from_slice(&nonce));
        let count = (NONCE_BYTES + KEYS_MAX * PROOF_BYTES) as u32;
        let read = self.call(Message::Tread { fid, offset: 0, count });
        auth.await.map_err(|error| match error {
            CallError::Errno(errno) => {
                let what = format!("server does not ask for the cluster key: {errno}");
                CallError::Errno(Errno::because(Errno::EACCES, what))
            }
            lost => lost,
        })?;
        write.await?;
        let answer = match read.await? {
            Message::Rread { data } => data.into_bytes(),
            _ => unreachable!("{OWN_REPLY}"),
        };
        let proof = auth::prove(&key, &nonce, &answer)?;
        self.auth_write(fid, NONCE_BYTES as u64, proof).await?;
        Ok(afid)
    }

    fn auth_write(&self, fid: u32, offset: u64, data: Bytes) -> super::Call {
        self.call(Message::Twrite { fid, offset, data: data.into() })
    }

    fn violation(&self, what: &str) -> CallError {
        self.close(what);
        CallError::Lost(what.into())
    }
}

/// What the machine has seen to.
const OWN_REPLY: &str = "a call is answered with its own reply or an error";
