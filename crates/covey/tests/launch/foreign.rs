//! A node of another architecture, whose programs an emulator runs.

use crate::run::{cluster, started};
use crate::support::{Cluster, has_program, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Says its byte order, by which the architectures differ.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words) {
    int one = 1;
    printf("%s endian, rank %s of %s, %d words\n", *(char *)&one ? "little" : "big",
           getenv("COVEY_RANK"), getenv("COVEY_SIZE"), count);
    return *(char *)&one ? 3 : 5;
}
"#;

fn compile(compiler: &str, source: &Path, to: &Path) {
    let made = Command::new(compiler).args(["-static", "-o"]).arg(to).arg(source).status().unwrap();
    assert!(made.success(), "{compiler}");
}

/// A cluster whose io1 says that it is an s390x.
fn mixed() -> Cluster {
    let mut cluster = cluster(1);
    let file = cluster.config();
    let text = fs::read_to_string(&file).unwrap();
    let named = "name = \"io1\"\n";
    assert!(text.contains(named), "{text}");
    let more = "arch = \"s390x\"\nemulator = \"/usr/bin/qemu-s390x-static\"\n";
    let view = "\n[[view]]\nname = \"s390x\"\nnodes = \"io1\"\n";
    cluster.down();
    fs::write(&file, text.replace(named, &format!("{named}{more}")) + view).unwrap();
    cluster.restart();
    cluster
}

#[test]
fn a_big_endian_node_gets_its_own_program_and_runs_a_job() {
    if !has_program("s390x-linux-gnu-gcc") || !has_program("qemu-s390x-static") {
        return skip("needs gcc for s390x, and qemu's emulator of its programs");
    }
    let cluster = mixed();
    let source = cluster.scratch("hello.c");
    fs::write(&source, PROGRAM).unwrap();
    compile("cc", &source, &cluster.scratch(&format!("hello.{}", std::env::consts::ARCH)));
    compile("s390x-linux-gnu-gcc", &source, &cluster.scratch("hello.s390x"));
    let program = cluster.scratch("hello.{arch}").display().to_string();
    let done = started(&cluster, &["--all", "--label", &program, "word"]);
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    let expected =
        ["io1: big endian, rank 1 of 2, 2 words", "meta: little endian, rank 0 of 2, 2 words"];
    assert_eq!((done.code, &lines[..]), (Some(5), &expected[..]), "{done}");
    // What is on the machine runs there as well.
    let done = started(&cluster, &["-w", "io1", "--local", "cat", "/proc/sys/kernel/ostype"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "Linux\n"), "{done}");
    let nodes = cluster.covey(&["nodes"]);
    assert!(nodes.lines().any(|line| line.contains("io1") && line.contains("s390x")), "{nodes}");
    // It says so: nobody takes it for a machine of that kind.
    let socket = format!("unix!{}", cluster.socket("meta").display());
    let about = cluster.covey(&["9p", "cat", &socket, "/view/s390x/io1/xcpu/ctl"]);
    assert!(about.contains("programs of s390x are emulated by /usr/bin/qemu"), "{about}");
    let arch = cluster.covey(&["9p", "cat", &socket, "/view/s390x/io1/xcpu/arch"]);
    assert_eq!(arch, "/Linux/s390x\n");
}
