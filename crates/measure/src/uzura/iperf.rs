//! iperf3's single stream on loopback: what a plain program gets through a socket.

use super::figures::{Figures, Samples};
use super::meter::Plan;
use super::what::{Over, What};
use crate::error::{Cannot, Error, Result};
use crate::programs::find;
use serde_json::Value;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes that it writes at once.
pub const BLOCK_BYTES: u64 = 1 << 20;
/// It tells its rate so often.
const INTERVAL_S: f64 = 0.1;
/// It runs for whole seconds only.
const SECONDS: &str = "1";
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether it is there.
pub fn is_installed() -> bool {
    find("iperf3").is_some()
}

/// One round.
pub fn measure(plan: &Plan, figures: &mut Figures) -> Result<()> {
    let port = free_port()?.to_string();
    let mut server = Command::new("iperf3");
    server.args(["-s", "-1", "-B", "127.0.0.1", "-p", &port, "-A", &plan.cpus.second.to_string()]);
    let _server = Ended(quiet(&mut server).spawn().cannot(|| "run iperf3")?);
    wait_for_listener(&port)?;
    let mut client = Command::new("iperf3");
    client.args([
        "-c",
        "127.0.0.1",
        "-p",
        &port,
        "-t",
        SECONDS,
        "-i",
        &INTERVAL_S.to_string(),
        "-J",
    ]);
    client.args(["-l", &BLOCK_BYTES.to_string(), "-A", &plan.cpus.first.to_string()]);
    let done = client.stdin(Stdio::null()).output().cannot(|| "run iperf3")?;
    let (samples, version) = serde_json::from_slice(&done.stdout)
        .ok()
        .and_then(|said: Value| Some((samples(&said)?, version(&said))))
        .ok_or_else(|| Error::work("cannot measure with iperf3: it told no rate"))?;
    figures.add(Over::Tcp, What::Stream(BLOCK_BYTES), &version, samples);
    Ok(())
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).cannot(|| "find a free port")?;
    Ok(listener.local_addr().cannot(|| "find a free port")?.port())
}

/// Its one connection is for the client, so the kernel is asked instead.
fn wait_for_listener(port: &str) -> Result<()> {
    let port: u16 = port.parse().unwrap_or(0);
    let wanted = format!(":{port:04X} 00000000:0000 0A");
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        if sockets.contains(&wanted) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(Error::work("cannot measure with iperf3: its server does not listen"))
}

/// A program that does not outlive its use.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn version(said: &Value) -> String {
    let text = said["start"]["version"].as_str().unwrap_or("iperf3");
    text.replace("iperf ", "iperf3 ")
}

/// The time that a block takes, in each interval but the first, in which the window still opens.
fn samples(said: &Value) -> Option<Samples> {
    let rates = said["intervals"].as_array()?.iter();
    let rates: Vec<f64> = rates.filter_map(|one| one["sum"]["bits_per_second"].as_f64()).collect();
    let block_bits = 8.0 * BLOCK_BYTES as f64;
    let times: Vec<f64> = rates
        .get(1..)?
        .iter()
        .filter(|rate| **rate > 0.0)
        .map(|rate| block_bits / rate * 1e9)
        .collect();
    let end = &said["end"];
    let seconds = end["sum_received"]["seconds"].as_f64()?;
    let bytes = end["sum_received"]["bytes"].as_f64()?;
    let usage = &end["cpu_utilization_percent"];
    let percent = usage["host_total"].as_f64()? + usage["remote_total"].as_f64()?;
    let operations = bytes / BLOCK_BYTES as f64;
    Some(Samples {
        times_ns: times,
        line_ns: Vec::new(),
        operations: operations as u64,
        cpu_ns: percent / 100.0 * seconds * 1e9,
    })
    .filter(|samples| !samples.times_ns.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn its_intervals_are_times_of_a_block() {
        let at = |rate: f64| json!({ "sum": { "bits_per_second": rate } });
        let said = json!({
            "start": { "version": "iperf 3.12" },
            "intervals": [at(1e9), at(8.388608e9), at(83.88608e9)],
            "end": {
                "sum_received": { "seconds": 1.0, "bytes": 10_485_760 },
                "cpu_utilization_percent": { "host_total": 60.0, "remote_total": 40.0 },
            },
        });
        let found = samples(&said).unwrap();
        let rounded: Vec<f64> = found.times_ns.iter().map(|ns| ns.round()).collect();
        assert_eq!((rounded, found.operations, found.cpu_ns), (vec![1e6, 1e5], 10, 1e9));
        assert_eq!(version(&said), "iperf3 3.12");
        assert_eq!(samples(&json!({ "error": "unable to connect" })), None);
    }
}
