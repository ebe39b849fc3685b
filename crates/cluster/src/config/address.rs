//! Where a server listens: `unix!/run/covey/io1.sock` or `tcp!node1!5640`.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Longest path of a unix socket in bytes: sun_path without its final NUL.
pub const UNIX_PATH_MAX: usize = 107;

/// An address to listen at or to dial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// TCP.
    Tcp {
        /// Name or number of the host.
        host: String,
        /// Port.
        port: u16,
    },
}

impl Address {
    /// A TCP address.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Address::Tcp { host: host.into(), port }
    }

    /// Whether only this machine can reach it: a unix socket, or loopback by number or as
    /// `localhost`.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }

    /// The socket's path, of a unix socket.
    pub fn unix_path(&self) -> Option<&Path> {
        match self {
            Address::Unix(path) => Some(path),
            Address::Tcp { .. } => None,
        }
    }

    /// The host, of a TCP address.
    pub fn host(&self) -> Option<&str> {
        match self {
            Address::Unix(_) => None,
            Address::Tcp { host, .. } => Some(host),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix!{}", path.display()),
            Address::Tcp { host, port } => write!(f, "tcp!{host}!{port}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split('!').collect::<Vec<_>>()[..] {
            ["unix", path] => unix(path),
            ["tcp", host, port] => tcp(text, host, port),
            _ => Err(format!(
                "`{text}` is not an address such as tcp!node1!5640 or unix!/run/covey/a.sock"
            )),
        }
    }
}

fn unix(path: &str) -> Result<Address, String> {
    if !path.starts_with('/') {
        return Err(format!("socket path `{path}` is not absolute"));
    }
    if path.len() > UNIX_PATH_MAX {
        return Err(format!(
            "socket path `{path}` is {} bytes, limit is {UNIX_PATH_MAX}",
            path.len()
        ));
    }
    Ok(Address::Unix(path.into()))
}

fn tcp(text: &str, host: &str, port: &str) -> Result<Address, String> {
    if host.is_empty() || host == "*" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
    {
        return Err(format!("`{text}` names no host by which others could reach it"));
    }
    match port.parse::<u16>() {
        Ok(port) if port != 0 => Ok(Address::tcp(host, port)),
        _ => Err(format!("`{text}` needs a port from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["unix!/run/a.sock", "tcp!node1!5640", "tcp!10.0.0.1!1", "tcp!::1!65535"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn wrong_addresses_are_refused() {
        let long = format!("unix!/{}", "x".repeat(UNIX_PATH_MAX));
        for text in [
            "",
            "node1",
            "tcp!node1",
            "tcp!node1!0",
            "tcp!!5",
            "tcp!*!5",
            "tcp!0.0.0.0!5",
            "tcp!::!5",
            "unix!a",
            "udp!a!1",
            &long,
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        assert!(format!("unix!/{}", "x".repeat(UNIX_PATH_MAX - 1)).parse::<Address>().is_ok());
    }

    #[test]
    fn only_loopback_and_unix_are_local() {
        let local = |text: &str| text.parse::<Address>().unwrap().is_local();
        assert!(
            local("unix!/a")
                && local("tcp!localhost!1")
                && local("tcp!127.0.1.1!1")
                && local("tcp!::1!1")
        );
        assert!(!local("tcp!node1!1") && !local("tcp!10.0.0.1!1"));
    }
}
