//! Who makes sessions on simulated machines and spreads one of them.

use super::machines::{dial, open};
use covey_ninep::client::{Conn, Fid};
use covey_ninep::message::Message;
use covey_ninep::tree::{Errno, Result};
use covey_wire::Bytes;

/// Who makes the sessions and holds them. Its connections end with it.
#[derive(Default)]
pub struct Client {
    /// Each with the session's `clone`; the first is spread.
    held: Vec<(Conn, Fid, u64)>,
}

impl Client {
    /// Makes a session; answers `NODE/SESSION`.
    pub async fn begin(&mut self, node: &str) -> Result<String> {
        let conn = dial(node).await?;
        let fid = open(&conn, "xcpu/clone", 0).await?;
        let text = read(&conn, &fid).await?;
        let number: u64 = text.trim().parse().unwrap();
        self.held.push((conn, fid, number));
        Ok(format!("{node}/{number}"))
    }

    fn first(&self, file: &str) -> (&Conn, String) {
        let (conn, _, number) = &self.held[0];
        (conn, format!("xcpu/{number}/{file}"))
    }

    pub async fn write_program(&self, program: &[u8]) -> Result<()> {
        let (conn, path) = self.first("exec");
        let fid = open(conn, &path, 0o1001).await?;
        for (at, part) in program.chunks(500_000).enumerate() {
            let data = Bytes::copy_from_slice(part).into();
            let offset = (at * 500_000) as u64;
            conn.call(Message::Twrite { fid: fid.number(), offset, data }).await?;
        }
        Ok(fid.clunk().await?)
    }

    pub async fn command(&self, command: &str) -> Result<()> {
        let (conn, path) = self.first("ctl");
        let fid = open(conn, &path, 1).await?;
        let data = Bytes::copy_from_slice(command.as_bytes()).into();
        Ok(conn.call(Message::Twrite { fid: fid.number(), offset: 0, data }).await.map(drop)?)
    }

    pub async fn control_text(&self) -> String {
        let (conn, path) = self.first("ctl");
        let fid = open(conn, &path, 0).await.unwrap();
        read(conn, &fid).await.unwrap()
    }
}

async fn read(conn: &Conn, fid: &Fid) -> Result<String> {
    match conn.call(Message::Tread { fid: fid.number(), offset: 0, count: 100_000 }).await? {
        Message::Rread { data } => Ok(String::from_utf8_lossy(&data.into_bytes()).into_owned()),
        _ => Err(Errno::EPROTO.into()),
    }
}
