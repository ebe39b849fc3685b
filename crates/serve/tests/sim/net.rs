//! The simulated network as the striping client sees it.

use covey_io::sim::net;
use covey_io::{run, task};
use covey_ninep::client::{self, Conn};
use covey_ninep::tree::{Errno, Result};
use covey_stripe::client::{BoxFuture, Net};
use std::time::{Duration, Instant};

/// How long a server may take to accept a connection, as the real dialler has it.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// Dials from whatever machine the asking task runs on.
pub struct SimNet;

impl Net for SimNet {
    fn dial(&self, server: &str, aname: &str) -> BoxFuture<Result<Conn>> {
        let (server, aname) = (server.to_owned(), aname.to_owned());
        Box::pin(async move {
            let refused = |why: String| Errno::because(Errno::EIO, format!("{server}: {why}"));
            let stream = task::timeout(CONNECT_PATIENCE, net::connect(&server)).await;
            let stream = stream.ok_or_else(|| refused("no answer".into()))?;
            let stream = stream.map_err(|error| refused(error.to_string()))?;
            let conn = drive(stream);
            conn.version().await?;
            conn.auth_and_attach(0, "root", Some(0), aname, None, [0; 32]).await?;
            Ok(conn)
        })
    }

    fn now(&self) -> Instant {
        task::now()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<()> {
        task::sleep(time)
    }

    fn spawn(&self, work: BoxFuture<()>) {
        drop(task::spawn(work));
    }
}

fn drive(stream: net::SimStream) -> Conn {
    let config = client::Config { heartbeat_idle: true, ..client::Config::default() };
    let (conn, machine) = client::pair(config, task::now());
    drop(task::spawn(async move {
        // A connection that ends says so to whoever asks on it.
        let _ = run(machine, stream).await;
    }));
    conn
}
