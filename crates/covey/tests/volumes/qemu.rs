//! QEMU's own iSCSI driver, by its tools.

use crate::initiator::{export, free_address};
use crate::support::bytes::noise;
use crate::support::{Cluster, Finished, has_file, has_program, run_within, skip};
use std::process::Command;
use std::time::Duration;

fn qemu(program: &str, arguments: &[&str]) -> Finished {
    let mut command = Command::new(program);
    command.args(arguments);
    let done = run_within(command, Duration::from_secs(60));
    assert!(done.ok, "{program} {}: {done}", arguments.join(" "));
    done
}

#[test]
fn qemu_copies_a_disk_in_and_out_and_its_patterns_are_found() {
    let driver = "/usr/lib/@/qemu/block-iscsi.so";
    if !has_program("qemu-img") || !has_program("qemu-io") || !has_file(driver) {
        return skip("needs qemu-utils and qemu-block-extra");
    }
    let cluster = Cluster::up(2);
    cluster.covey(&["volume", "create", "disk", "--size", "32M"]);
    let url = export(&cluster, "disk", &free_address());
    let image = cluster.scratch("image.raw");
    let mut bytes = noise(3, 32 << 20);
    bytes[8 << 20..16 << 20].fill(0);
    std::fs::write(&image, &bytes).unwrap();
    let image = image.to_str().unwrap();
    qemu("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &url]);
    let info = qemu("qemu-img", &["info", &url]);
    assert!(info.stdout.contains("32 MiB"), "{info}");
    let compared = qemu("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &url]);
    assert!(compared.stdout.contains("identical"), "{compared}");
    let steps = [
        "write -P 0xab 1M 1M",
        "aio_write -P 0xcd 5M 64k",
        "aio_flush",
        "flush",
        "discard 8M 8M",
        "write -z 20M 1M",
    ];
    let looks =
        ["read -P 0xab 1M 1M", "read -P 0xcd 5M 64k", "read -P 0 8M 8M", "read -P 0 20M 1M"];
    let mut words = vec!["-f", "raw"];
    words.extend(steps.iter().chain(&looks).flat_map(|step| ["-c", step]));
    words.push(&url);
    let done = qemu("qemu-io", &words);
    assert!(!done.stdout.contains("failed"), "{done}");
    let back = cluster.scratch("back.raw");
    qemu("qemu-img", &["convert", "-f", "raw", "-O", "raw", &url, back.to_str().unwrap()]);
    bytes[1 << 20..2 << 20].fill(0xab);
    bytes[5 << 20..(5 << 20) + (64 << 10)].fill(0xcd);
    bytes[20 << 20..21 << 20].fill(0);
    assert!(std::fs::read(back).unwrap() == bytes);
}

/// Debian's libiscsi tools as they are.
#[test]
fn libiscsi_s_reader_reads() {
    if !has_program("iscsi-perf") {
        return skip("needs libiscsi-bin");
    }
    let cluster = Cluster::up(1);
    cluster.covey(&["volume", "create", "disk", "--size", "8M"]);
    let url = export(&cluster, "disk", &free_address());
    let mut command = Command::new("iscsi-perf");
    command.args(["-m", "8", "-t", "1", "-r", "-n", &url]);
    let done = run_within(command, Duration::from_secs(30));
    assert!(done.ok && done.stdout.contains("iops"), "{done}");
}
