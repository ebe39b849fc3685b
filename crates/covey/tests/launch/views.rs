//! One program in several views: all nodes, some of them, and those of another cluster behind a gateway.

use crate::run::cluster;
use crate::support::{Cluster, run, skip, until};
use std::fs;
use std::process::{Command, Stdio};

/// Runs a program on every node of the directory that it is given, by nothing but files.
const PROGRAM: &str = r#"
for node in "$1"/*; do
    exec 3< "$node/xcpu/clone"
    read -r number <&3
    session=$node/xcpu/$number
    echo "sh -c 'read line; echo \$line in \$XCPUPATH'" > "$session/argv"
    echo "exec /bin/sh" > "$session/ctl"
    echo "${node##*/}" > "$session/stdin"
    cat "$session/stdout"
    exec 3<&-
done
"#;

/// Adds to a cluster's file, of which its nodes learn when they start.
fn add(cluster: &mut Cluster, more: &str) {
    let file = cluster.config();
    let text = fs::read_to_string(&file).unwrap();
    cluster.down();
    fs::write(&file, text + more).unwrap();
    cluster.restart();
}

/// The scratch directory of a node, which names its process.
fn place(cluster: &Cluster, node: &str) -> String {
    format!("-{node}-{}-", cluster.pid(node).as_raw_nonzero())
}

#[test]
fn one_program_runs_in_a_view_of_all_of_some_and_of_another_cluster() {
    let (mut here, there) = (cluster(2), cluster(1));
    let other = there.config();
    let views = format!(
        "\n[[view]]\nname = \"all\"\n\n[[view]]\nname = \"some\"\nnodes = \"io2\"\n\n\
         [[view]]\nname = \"there\"\ncluster = {:?}\nnodes = \"io1,meta\"\n\n\
         [[view]]\nname = \"nowhere\"\ncluster = \"/no/such.toml\"\n",
        other.display().to_string()
    );
    add(&mut here, &views);
    let socket = here.config().with_file_name("run").join("io1.sock");
    let mounted = here.scratch("node");
    fs::create_dir(&mounted).unwrap();
    let mut mount = crate::support::covey();
    mount.args(["9p", "mount"]).arg(format!("unix!{}", socket.display())).arg(&mounted);
    let mut mount = mount.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_mounted = || mounted.join("view").exists();
    until("the mount is there or has failed", || {
        is_mounted() || mount.try_wait().unwrap().is_some()
    });
    if !is_mounted() {
        return skip("needs a FUSE mount, which is not permitted here");
    }
    let shown = |dir: &str| {
        let mut names: Vec<String> = fs::read_dir(mounted.join(dir))
            .unwrap()
            .map(|found| found.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(shown("view"), ["all", "some", "there"]);
    assert!(!shown("view/all/io1").contains(&"view".to_owned()), "views have an end");
    for (view, expected) in [
        ("all", vec![("io1", &here), ("io2", &here), ("meta", &here)]),
        ("some", vec![("io2", &here)]),
        ("there", vec![("io1", &there), ("meta", &there)]),
        // Any node of the cluster leads through the gateway.
        ("../n/io2/view/there", vec![("io1", &there), ("meta", &there)]),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", PROGRAM, "program"]).arg(mounted.join("view").join(view));
        let done = run(command);
        let lines: Vec<&str> = done.stdout.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{view}: {done}");
        for (line, (node, cluster)) in lines.iter().zip(expected) {
            let place = place(cluster, node);
            assert!(line.starts_with(&format!("{node} in ")) && line.contains(&place), "{line}");
        }
    }
    // A node that comes back is there for those who know it from before.
    let version = mounted.join("n/io2/version");
    assert!(fs::read_to_string(&version).is_ok());
    here.kill("io2");
    here.restart();
    until("a node that has restarted is read", || fs::read_to_string(&version).is_ok());
    let _ = rustix::mount::unmount(&mounted, rustix::mount::UnmountFlags::DETACH);
    let _ = mount.wait();
    let text = fs::read_to_string(here.config()).unwrap();
    fs::write(here.scratch("bad.toml"), text.replace("\"io2\"\n\n[[view]]", "\"io9\"\n\n[[view]]"))
        .unwrap();
    let mut check = crate::support::covey();
    check.args(["config", "check"]).arg(here.scratch("bad.toml"));
    let refused = run(check);
    assert!(refused.stdout.contains("view some: no node is called io9"), "{refused}");
}
