//! `covey boot` and `covey-bootget`: real servers, real clients, some of which die or lie.

use crate::support::bytes::noise;
use crate::support::libraries::built;
use crate::support::{Cluster, Finished, covey, run, until};
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const IMAGE_BYTES: usize = 24 << 20;

fn bootget() -> PathBuf {
    built("covey-bootget", "covey-bootget")
}

/// A directory of images, served until the end of the test to those who have the token.
struct Boot {
    dir: TempDir,
    address: String,
    child: Child,
}

impl Boot {
    fn serving(content: &[u8]) -> Boot {
        let dir = TempDir::with_prefix("covey-e2e-boot").unwrap();
        fs::write(dir.path().join("image"), content).unwrap();
        let (images, token) = (dir.path().join("images"), dir.path().join("token"));
        let made = run(with(covey(), &["keygen", &text(&token)]));
        assert!(made.ok, "{made}");
        let boot = Boot::start(dir, &images, &token);
        boot.add("disk", "image");
        boot
    }

    fn start(dir: TempDir, images: &Path, token: &Path) -> Boot {
        let port = free_port();
        let child = serve(images, token, port);
        Boot { dir, address: format!("tcp!127.0.0.1!{port}"), child }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn add(&self, image: &str, file: &str) {
        let file = self.path(file);
        let images = self.path("images");
        let add = ["boot", "add", image, &text(&file), "--arch", "any", "--dir", &text(&images)];
        let added = run(with(covey(), &add));
        assert!(added.ok && added.stdout.contains("SHA-256"), "{added}");
    }

    /// A client that puts the image into `output`, with more options.
    fn client(&self, output: &str, options: &[&str]) -> Command {
        let mut command = Command::new(bootget());
        command.arg("disk").arg("-o").arg(self.path(output)).args(["--from", &self.address]);
        command.arg("--token").arg(self.path("token")).args(options);
        command.env_remove("COVEY_BOOT");
        command
    }

    fn start_client(&self, output: &str, options: &[&str]) -> Child {
        self.client(output, options).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn is_whole(&self, output: &str, content: &[u8]) -> bool {
        fs::read(self.path(output)).is_ok_and(|found| found == content)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }
}

impl Drop for Boot {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `covey boot serve`, once it listens.
pub fn serve(images: &Path, token: &Path, port: u16) -> Child {
    let mut command = covey();
    command.args(["boot", "serve"]).arg(images).arg("--token").arg(token);
    command.args(["--listen", &format!("tcp!127.0.0.1!{port}")]).stdout(Stdio::null());
    let log = File::options().create(true).append(true).open(images.with_file_name("log"));
    command.stderr(log.unwrap());
    let child = command.spawn().unwrap();
    until("the server", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    child
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn ended(child: Child) -> Finished {
    let output = child.wait_with_output().unwrap();
    Finished {
        ok: output.status.success(),
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into(),
        stderr: String::from_utf8_lossy(&output.stderr).into(),
    }
}

#[test]
fn eight_clients_have_the_image_though_one_is_killed_and_one_lies() {
    let content = noise(11, IMAGE_BYTES);
    let boot = Boot::serving(&content);
    // Two that have all of it and serve it: one will lie, one will be killed.
    let mut liar = boot.start_client("liar", &["--serve", "120"]);
    until("the first client has the image", || boot.is_whole("liar", &content));
    let mut victim = boot.start_client("victim", &["--serve", "120"]);
    until("the second client has the image", || boot.is_whole("victim", &content));
    let lies = File::options().write(true).open(boot.path("liar")).unwrap();
    let wrong: Vec<u8> = content.iter().map(|byte| !byte).collect();
    lies.write_all_at(&wrong, 0).unwrap();
    let names: Vec<String> = (0..6).map(|number| format!("out{number}")).collect();
    let clients: Vec<Child> =
        names.iter().map(|name| boot.start_client(name, &["--serve", "0"])).collect();
    victim.kill().unwrap();
    victim.wait().unwrap();
    for (name, client) in names.iter().zip(clients) {
        let end = ended(client);
        assert!(end.ok && end.stderr.contains("bytes in"), "{end}");
        assert!(boot.is_whole(name, &content), "{name} has other bytes: {end}");
    }
    let log = boot.log();
    // Which one it was asked for first is luck.
    assert!(log.contains("is bad: chunk ") && log.contains("another hash"), "{log}");
    liar.kill().unwrap();
    liar.wait().unwrap();
}

#[test]
fn nobody_gets_an_image_with_a_wrong_token_or_none() {
    let boot = Boot::serving(b"secret");
    for token in ["00".repeat(32), "ab".repeat(32)] {
        let mut command = Command::new(bootget());
        command.args(["disk", "-o", &text(&boot.path("out")), "--from", &boot.address]);
        command.args(["--token", &token, "--patience", "3"]);
        run(command).says(&["refuses", "cluster key", "covey boot token"]);
        assert!(!boot.path("out").exists());
    }
    let mut command = Command::new(bootget());
    command.args(["disk", "-o", &text(&boot.path("out")), "--from", &boot.address]);
    let none = run(command);
    assert!(!none.ok && !boot.path("out").exists(), "{none}");
}

#[test]
fn what_cannot_be_had_or_put_is_said_at_once() {
    let boot = Boot::serving(&noise(1, 5 << 20));
    let mut command = boot.client("out", &[]);
    command.args(["--sha256", &"0".repeat(64)]);
    let other = run(command);
    assert!(!other.ok && other.stderr.contains("the image is another one"), "{other}");
    let mut command = Command::new(bootget());
    command.args(["nothing", "-o", "/dev/null", "--from", &boot.address, "--token"]);
    run(with(command, &[&text(&boot.path("token"))])).says(&["no image nothing", "covey boot ls"]);
    let mut command = Command::new(bootget());
    command.args(["disk", "-o", "/dev/full", "--from", &boot.address, "--token"]);
    run(with(command, &[&text(&boot.path("token"))])).says(&["no space left", "must fit"]);
}

#[test]
fn a_server_that_starts_again_in_the_middle_and_an_image_that_is_replaced() {
    let content = noise(3, IMAGE_BYTES);
    let mut boot = Boot::serving(&content);
    let port: u16 = boot.address.rsplit('!').next().unwrap().parse().unwrap();
    let clients: Vec<Child> =
        (0..3).map(|n| boot.start_client(&format!("out{n}"), &["--serve", "0"])).collect();
    boot.child.kill().unwrap();
    boot.child.wait().unwrap();
    let (images, token) = (boot.path("images"), boot.path("token"));
    boot.child = serve(&images, &token, port);
    for (n, client) in clients.into_iter().enumerate() {
        let end = ended(client);
        assert!(end.ok && boot.is_whole(&format!("out{n}"), &content), "{end}");
    }
    let next = noise(4, 3 << 20);
    let reader = boot.start_client("either", &["--serve", "0"]);
    fs::write(boot.path("image2"), &next).unwrap();
    boot.add("disk", "image2");
    let end = ended(reader);
    assert!(end.ok, "{end}");
    assert!(boot.is_whole("either", &content) || boot.is_whole("either", &next));
    let end = ended(boot.start_client("new", &["--serve", "0"]));
    assert!(end.ok && boot.is_whole("new", &next), "{end}");
}

#[test]
fn a_node_with_the_role_serves_images_to_its_users() {
    let mut cluster = Cluster::up(1);
    let file = cluster.dir.join("image");
    let content = noise(5, 1 << 20);
    fs::write(&file, &content).unwrap();
    let none = cluster.try_covey(&["boot", "add", "disk", &text(&file)]);
    none.says(&["no node has the role boot", "covey.toml"]);
    cluster.down();
    let config = cluster.config();
    let toml = fs::read_to_string(&config).unwrap();
    let roles = toml.lines().find(|line| line.starts_with("roles = ")).unwrap();
    fs::write(&config, toml.replacen(roles, &roles.replace(']', ", \"boot\"]"), 1)).unwrap();
    cluster.restart();
    let added = cluster.try_covey(&["boot", "add", "disk", &text(&file)]);
    assert!(added.ok, "{added}");
    let listed = cluster.try_covey(&["boot", "ls"]);
    assert!(listed.ok && listed.stdout.contains(&content.len().to_string()), "{listed}");
    let toml = fs::read_to_string(&config).unwrap();
    let listen = toml.lines().find(|line| line.starts_with("listen = ")).unwrap();
    let address = listen.split('"').nth(1).unwrap();
    let out = cluster.dir.join("out");
    let mut command = Command::new(bootget());
    command.args(["disk", "-o", &text(&out), "--from", address, "--serve", "0"]);
    let got = run(command);
    assert!(got.ok && fs::read(&out).unwrap() == content, "{got}");
    let removed = cluster.try_covey(&["boot", "rm", "disk"]);
    assert!(removed.ok, "{removed}");
    cluster.try_covey(&["boot", "rm", "disk"]).says(&["there is none"]);
}
