//! Stores that are full, and servers that are gone.

use crate::support::{Cluster, covey, run};
use std::fs;

/// `covey up` with so few bytes for the metadata, which its servers take over.
fn up_limited(cluster: &Cluster, bytes: u64, options: &[&str]) {
    let mut command = covey();
    command.env("COVEY_METADATA_BYTES_MAX", bytes.to_string());
    command.arg("up").arg("--dir").arg(&cluster.dir).args(options);
    let up = run(command);
    assert!(up.ok, "covey up: {up}");
}

/// How full the metadata store is, in percent.
fn fullness(cluster: &Cluster) -> u64 {
    let df: serde_json::Value = serde_json::from_str(&cluster.covey(&["--json", "df"])).unwrap();
    let number = |name: &str| df[name].as_u64().unwrap_or_else(|| panic!("{name} in {df}"));
    number("metadata_bytes_used") * 100 / number("metadata_bytes_max")
}

#[test]
fn a_full_metadata_store_refuses_names_starts_and_lets_everything_be_removed() {
    const LIMIT: u64 = 4 << 20;
    let cluster = Cluster::planned();
    up_limited(&cluster, LIMIT, &["-n", "1"]);
    let local = cluster.scratch("many");
    for dir in 0..8 {
        let dir = local.join(format!("d{dir}"));
        fs::create_dir_all(&dir).unwrap();
        (0..400).for_each(|n| fs::write(dir.join(format!("f{n}")), [7; 1500]).unwrap());
    }
    cluster.covey(&["mkdir", "/first"]);
    let refused = cluster.refused(&["cp", "-r", local.to_str().unwrap(), ":/many"]);
    assert!(refused.stderr.contains("metadata store is full"), "{refused}");
    let full = fullness(&cluster);
    assert!((85..=100).contains(&full), "refused at {full}%");
    assert!(cluster.covey(&["status"]).contains("metadata of meta: "));
    let again = cluster.refused(&["mkdir", "/more"]);
    assert!(again.stderr.contains("metadata store is full"), "{again}");
    for _ in 0..2 {
        cluster.kill("meta");
        up_limited(&cluster, LIMIT, &[]);
        assert!(cluster.covey(&["ls", "/"]).contains("first"));
    }
    cluster.covey(&["rm", "-r", "/many"]);
    cluster.covey(&["mkdir", "/more"]);
    let left = fullness(&cluster);
    assert!(left < 50, "{left}% are left");
}

#[test]
fn df_names_the_servers_that_it_does_not_count() {
    let cluster = Cluster::up(2);
    let whole = cluster.covey(&["df"]);
    assert!(!whole.contains("not counted"), "{whole}");
    cluster.kill("io2");
    // As `covey stats` ends where a server is missing.
    let part = cluster.refused(&["df"]);
    assert_eq!(part.code, Some(1), "{part}");
    assert!(part.stdout.contains("io2 does not answer and is not counted"), "{part}");
    part.says(&["cannot ask io2 for the space: it does not answer", "covey status"]);
    let json: serde_json::Value =
        serde_json::from_str(&cluster.refused(&["--json", "df"]).stdout).unwrap();
    assert_eq!(json["servers_missing"], serde_json::json!(["io2"]));
}
