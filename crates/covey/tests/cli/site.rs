//! Commands that show pages over HTTP, as their readers find them.

use crate::support::{Cluster, command};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A child process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a command of a cluster that says on stderr or stdout where its page is; with the page's address and path.
pub fn serve(cluster: &Cluster, arguments: &[&str]) -> (Running, String, String) {
    serve_by(command::covey(), cluster, arguments)
}

/// The same with a program of one's own.
pub fn serve_by(
    mut command: Command,
    cluster: &Cluster,
    arguments: &[&str],
) -> (Running, String, String) {
    command.arg("--config").arg(cluster.config()).args(arguments);
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer.try_clone().unwrap()).stderr(writer).stdin(Stdio::null());
    let child = Running(command.spawn().unwrap());
    drop(command);
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    let place = line.split("http://").nth(1).and_then(|rest| rest.trim_end().split_once('/'));
    let (address, path) = place.unwrap_or_else(|| panic!("no address in {line:?}"));
    (child, address.to_owned(), format!("/{path}"))
}

/// What a request is answered with: the head and the body.
pub fn http(address: &str, request: &str) -> String {
    http_of("localhost", address, request)
}

/// The same from a server that is called so.
pub fn http_of(name: &str, address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
