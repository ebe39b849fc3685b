use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn addresses_print_as_they_were_written() {
    for text in ["tcp!127.0.0.1!564", "tcp!::1!5640", "tcp!*!0", "unix!/run/a b!c.sock"] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
    }
}

#[test]
fn what_is_no_address_says_why() {
    let text = |text: &str| text.parse::<Address>().unwrap_err().to_string();
    assert_eq!(text("localhost:564"), r#"address "localhost:564" names no network"#);
    assert_eq!(text("tcp!localhost"), r#"address "tcp!localhost" has no port"#);
    assert_eq!(text("tcp!!5"), r#"address "tcp!!5" has no host"#);
    assert!(text("tcp!a!70000").contains("not a number up to 65535"));
    assert!(text("udp!a!7").contains(r#"unknown network "udp""#));
    assert!(text("unix!").contains("has no path"));
}

#[test]
fn only_loopback_and_unix_are_local() {
    let local = |text: &str| text.parse::<Address>().unwrap().is_local();
    assert!(local("unix!/x") && local("tcp!127.9.0.1!1") && local("tcp!::1!1"));
    assert!(local("tcp!localhost!1") && local("tcp!::ffff:127.0.0.1!1"));
    assert!(!local("tcp!*!1") && !local("tcp!0.0.0.0!1") && !local("tcp!node1!1"));
}

#[test]
fn a_unix_peer_is_known_by_its_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("s"));
    block_on(async {
        let listener = Listener::bind(&address, 0o600).await.unwrap();
        let mut client = connect(&address, Duration::from_secs(5)).await.unwrap();
        let (mut server, info) = listener.accept().await.unwrap();
        assert_eq!(info.uid, Some(rustix::process::getuid().as_raw()));
        assert_eq!(info.pid, Some(std::process::id()));
        client.write_all(b"hello").await.unwrap();
        let mut got = [0; 5];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"hello");
    });
    assert!(!dir.path().join("s").exists(), "the socket file goes with its listener");
}

#[test]
fn a_loopback_peer_is_known_by_its_socket() {
    block_on(async {
        let listener = Listener::bind(&"tcp!127.0.0.1!0".parse().unwrap(), 0).await.unwrap();
        let _client = connect(listener.address(), Duration::from_secs(5)).await.unwrap();
        let (_server, info) = listener.accept().await.unwrap();
        assert_eq!(info.uid, Some(rustix::process::getuid().as_raw()));
        assert!(info.loopback);
    });
}

/// Whoever waits for much is woken for it, for less when less is wanted, and for the end.
#[test]
fn a_stream_that_waited_for_more_is_read_when_less_is_wanted() {
    use crate::os::run::Stream as _;
    block_on(async {
        let listener = Listener::bind(&"tcp!127.0.0.1!0".parse().unwrap(), 0).await.unwrap();
        let mut client = connect(listener.address(), Duration::from_secs(5)).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut got = [0; 64];
        let limit = Duration::from_secs(10);
        server.set_low_water(8);
        client.write_all(b"12345678").await.unwrap();
        let read = tokio::time::timeout(limit, server.read(&mut got)).await;
        assert_eq!(read.expect("it was there").unwrap(), 8);
        client.write_all(b"9").await.unwrap();
        server.set_low_water(1);
        let read = tokio::time::timeout(limit, server.read(&mut got)).await;
        assert_eq!(read.expect("no more is wanted").unwrap(), 1);
        server.set_low_water(8);
        drop(client);
        let read = tokio::time::timeout(limit, server.read(&mut got)).await;
        assert_eq!(read.expect("nothing more can come").unwrap(), 0);
    });
}

#[test]
fn a_client_learns_who_the_server_is_once_it_has_spoken() {
    let dir = tempfile::tempdir().unwrap();
    let me = Some(rustix::process::geteuid().as_raw());
    block_on(async {
        let unix = Address::Unix(dir.path().join("s"));
        for address in [unix, "tcp!127.0.0.1!0".parse().unwrap(), "tcp!::1!0".parse().unwrap()] {
            let Ok(listener) = Listener::bind(&address, 0o600).await else {
                assert!(address.to_string().contains("::1"), "a machine without IPv6");
                continue;
            };
            let mut client = connect(listener.address(), Duration::from_secs(5)).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            server.write_all(b"!").await.unwrap();
            client.read_exact(&mut [0]).await.unwrap();
            assert_eq!(client.far_end().unwrap().user(), me, "{address}");
        }
    });
}

#[test]
fn a_live_servers_socket_is_refused_and_a_dead_ones_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let address = Address::Unix(path.clone());
    block_on(async {
        let live = Listener::bind(&address, 0o666).await.unwrap();
        let error = Listener::bind(&address, 0o666).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("another server listens there"), "{error}");
        drop(live);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a dead server leaves its socket");
        Listener::bind(&address, 0o666).await.unwrap();
    });
}

#[test]
fn a_socket_makes_its_directory_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        Listener::bind(&Address::Unix(dir.path().join("run/s")), 0o666).await.unwrap();
        let far = Address::Unix(dir.path().join("a/b/s"));
        let error = Listener::bind(&far, 0o666).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    });
    let mode = fs::metadata(dir.path().join("run")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7022, 0, "{mode:o}");
    assert!(!dir.path().join("a").exists());
}

#[test]
fn a_plain_file_in_the_way_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    fs::write(&path, "data").unwrap();
    block_on(async {
        let error = Listener::bind(&Address::Unix(path.clone()), 0o666).await.unwrap_err();
        assert!(error.to_string().contains("not a socket"), "{error}");
    });
    assert_eq!(fs::read(&path).unwrap(), b"data");
}

#[test]
fn a_port_in_use_and_a_refusal_name_the_address() {
    block_on(async {
        let listener = Listener::bind(&"tcp!127.0.0.1!0".parse().unwrap(), 0).await.unwrap();
        let address = listener.address().clone();
        let error = Listener::bind(&address, 0).await.unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("is in use"), "{error}");
        drop(listener);
        let error = connect(&address, Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let expected = format!("cannot connect to {address}: connection refused");
        assert_eq!(error.to_string(), expected);
    });
}
