//! Other people's 9P programs: diod served to `covey 9p`, and diod's clients on `covey export`.
//!
//! Needs the Debian package `diod`; says so and passes where it is not there. Linux's v9fs is in
//! `e2e_v9fs.rs`.

use crate::support::bytes::noise;
use crate::support::packages::find;
use crate::support::{Finished, covey, has_program, run, skip, until};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

/// A process that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(name: &str) -> Option<Command> {
    has_program(name).then(|| Command::new(find(name).expect("it is there")))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn client(arguments: &[&str]) -> Finished {
    let mut command = covey();
    command.arg("9p").args(arguments);
    run(command)
}

#[test]
fn the_plain_client_settles_for_what_diod_speaks() {
    let Some(mut diod) = program("diod") else { return skip("needs the package diod") };
    let served = tempfile::tempdir().unwrap();
    let dir = served.path().to_str().unwrap();
    let (port, bytes) = (free_port(), noise(1, 3_000_017));
    fs::write(served.path().join("big"), &bytes).unwrap();
    fs::create_dir(served.path().join("many")).unwrap();
    (0..500).for_each(|n| fs::write(served.path().join(format!("many/{n}")), "").unwrap());
    diod.args(["-f", "-n", "-L", "/dev/null", "-e", dir, "-l", &format!("127.0.0.1:{port}")]);
    if !rustix::process::geteuid().is_root() {
        diod.args(["-u", &rustix::process::geteuid().as_raw().to_string()]);
    }
    let _server = Server(diod.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let address = format!("tcp!127.0.0.1!{port}");
    let at =
        |verb: &[&str], path: &str| client(&[&["--aname", dir], verb, &[&address, path]].concat());
    until("diod", || at(&["ls"], "/").ok);
    assert!(at(&["stat"], "/big").stdout.contains("Server: 9P2000.L,"));
    let mut cat = covey();
    cat.args(["9p", "--aname", dir, "cat", &address, "/big"]);
    assert!(cat.output().unwrap().stdout == bytes, "what was read is what is there");
    assert_eq!(at(&["ls"], "/many").stdout.lines().count(), 500);
    let mut write = covey();
    write.args(["9p", "--aname", dir, "write", "--create", &address, "/new"]);
    let mut child = write.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read(served.path().join("new")).unwrap(), b"hello");
    assert!(at(&["rm"], "/new").ok && !served.path().join("new").exists());
    assert!(at(&["--dialect", "9P2000.L", "ls"], "/").ok);
    for other in ["9P2000.u", "9P2000", "9P2000.L.covey2"] {
        let refused = at(&["--dialect", other, "ls"], "/");
        assert!(!refused.ok && refused.stderr.contains("server speaks no"), "{refused}");
    }
}

#[test]
fn diods_clients_list_and_read_an_export() {
    let (Some(mut list), Some(mut cat)) = (program("diodls"), program("diodcat")) else {
        return skip("needs the package diod");
    };
    let served = tempfile::tempdir().unwrap();
    let (port, bytes) = (free_port(), noise(2, 1_000_003));
    fs::write(served.path().join("big"), &bytes).unwrap();
    let address = format!("tcp!127.0.0.1!{port}");
    let mut export = covey();
    export.arg("export").arg(served.path()).args(["--listen", &address]);
    let _server = Server(export.stdout(Stdio::null()).spawn().unwrap());
    until("the export", || client(&["ls", &address, "/"]).ok);
    let (host, dir) = (format!("127.0.0.1:{port}"), served.path().to_str().unwrap());
    let listed = list.args(["-s", &host, "-a", dir]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), "big", "{listed:?}");
    let read = cat.args(["-s", &host, "-a", dir, "big"]).output().unwrap();
    assert!(read.status.success() && read.stdout == bytes, "what was read is what is there");
}

#[test]
fn an_export_is_used_in_every_dialect() {
    let served = tempfile::tempdir().unwrap();
    let address = format!("unix!{}", served.path().join("socket").display());
    let dir = served.path().join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("f"), "hello\n").unwrap();
    (0..300).for_each(|n| fs::write(dir.join(format!("many{n}")), "").unwrap());
    let mut export = covey();
    export.arg("export").arg(&dir).args(["--listen", &address]);
    let _server = Server(export.stdout(Stdio::null()).spawn().unwrap());
    until("the export", || client(&["ls", &address, "/"]).ok);
    for dialect in ["9P2000", "9P2000.u", "9P2000.L", "9P2000.L.covey2"] {
        let at = |verb: &[&str], path: &str| {
            client(&[&["--dialect", dialect], verb, &[&address, path]].concat())
        };
        assert_eq!(at(&["ls"], "/").stdout.lines().count(), 301, "{dialect}");
        assert_eq!(at(&["cat"], "/f").stdout, "hello\n", "{dialect}");
        let stat = at(&["stat"], "/f").stdout;
        assert!(stat.contains(&format!("Server: {dialect},")), "{stat}");
        let missing = at(&["cat"], "/missing");
        assert!(missing.stderr.contains("no such file or directory"), "{missing}");
        fs::write(dir.join("gone"), "").unwrap();
        assert!(at(&["rm"], "/gone").ok && !dir.join("gone").exists(), "{dialect}");
        let mut write = covey();
        write.args(["9p", "--dialect", dialect, "write", "--create", &address, "/gone"]);
        let mut child = write.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(dialect.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(fs::read_to_string(dir.join("gone")).unwrap(), dialect);
        fs::remove_file(dir.join("gone")).unwrap();
    }
    let unknown = client(&["--dialect", "9P2001", "ls", &address, "/"]);
    assert!(!unknown.ok && unknown.stderr.contains("9P2000.u"), "{unknown}");
}
