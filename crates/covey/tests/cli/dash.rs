//! `covey dash`: its page, read as text and by a browser.

use crate::site::{Running, http, http_of, serve, serve_by};
use crate::support::command::as_stranger;
use crate::support::{Cluster, command, has_program, run_within, skip, until};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A file that is called so.
const HOSTILE_FILE: &str = "<img src=z onerror=alert(2)>";
/// A job that is called so.
const HOSTILE: &str = "<img/src=x/onerror=alert(1)>\"\\</td>";

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

#[test]
fn only_who_has_the_whole_address_sees_the_page() {
    let cluster = Cluster::up(1);
    let (_dash, address, path) = serve(&cluster, &["dash"]);
    assert_eq!(path.len(), 34, "{path}");
    let other = format!("/{}/", "0".repeat(32));
    for wrong in
        ["/", "/state", "/page.js", other.as_str(), &format!("{other}state"), "/../", &path[..20]]
    {
        let answer = http(&address, &format!("GET {wrong}"));
        assert!(answer.starts_with("HTTP/1.1 404 "), "{wrong}: {answer}");
    }
    let answer = http_of("evil.example", &address, &format!("GET {path}state"));
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    let answer = http(&address, &format!("POST {path}state"));
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    let page = http(&address, &format!("GET {path}"));
    assert!(page.contains("content-security-policy: default-src 'none';"), "{page}");
    let state = http(&address, &format!("GET {path}state"));
    let state: Value = serde_json::from_str(body(&state)).unwrap();
    let names: Vec<_> =
        state["nodes"].as_array().unwrap().iter().map(|node| &node["node"]).collect();
    assert!(names.contains(&&Value::from("io1")), "{state}");
    assert!(
        state["nodes"].as_array().unwrap().iter().all(|node| node["stats"].is_object()),
        "{state}"
    );
}

#[test]
fn who_may_not_see_what_others_do_is_shown_the_servers_alone() {
    let cluster = Cluster::up(1);
    let Some(command) = as_stranger(&cluster) else { return };
    let (_dash, address, path) = serve_by(command, &cluster, &["dash"]);
    let answer = http(&address, &format!("GET {path}state"));
    let state: Value = serde_json::from_str(body(&answer)).unwrap();
    for node in state["nodes"].as_array().unwrap() {
        assert_eq!(node["state"], "up", "{state}");
        assert_eq!(node["kept_from_us"], true, "{state}");
        assert!(node["stats"].is_null(), "{state}");
    }
    assert!(state["slow"].is_null() && state["places"].is_null(), "{state}");
    assert_eq!(state["paths"], serde_json::json!({}), "{state}");
}

#[test]
fn the_page_has_where_files_go_who_does_what_how_far_a_move_is_and_what_was_found() {
    let cluster = Cluster::up(2);
    std::fs::write(cluster.scratch("file"), vec![7; 3 << 20]).unwrap();
    let file = cluster.scratch("file").display().to_string();
    cluster.covey(&["stats", "--set", "slow 0"]);
    let (_dash, address, path) = serve(&cluster, &["dash"]);
    let state = || -> Value {
        serde_json::from_str(body(&http(&address, &format!("GET {path}state")))).unwrap()
    };
    let meta = |state: &Value| {
        let nodes = state["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["node"] == "meta").unwrap()["stats"].clone()
    };
    assert!(meta(&state()).get("checked").is_none());
    cluster.covey(&["cp", &file, ":/file"]);
    cluster.covey(&["server", "close", "io2"]);
    cluster.covey(&["fsck"]);
    // As a drain reports it.
    cluster.covey(&["stats", "--set", "moving 'drain io2' 3 12 4", "meta"]);
    until("the page is fresh", || meta(&state()).get("moving drain io2").is_some());
    let state = state();
    let listed: Value = serde_json::from_str(&cluster.covey(&["--json", "server", "ls"])).unwrap();
    for key in ["server", "serving", "new_files", "reasons", "bytes_total"] {
        assert_eq!(state["places"][1][key], listed[1][key], "{key}: {state:#}");
    }
    assert_eq!(state["places"][1]["reasons"], serde_json::json!(["closed"]));
    let stats = meta(&state);
    assert_eq!((&stats["checked"]["found"], &stats["checked"]["left"]), (&0.into(), &0.into()));
    assert_eq!(stats["moving drain io2"]["bytes_total"], 12);
    // Who has written what, where.
    let io1 = &state["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "io1");
    let lines = io1.unwrap()["stats"].as_object().unwrap().iter();
    let mut files = lines.filter(|(line, _)| line.starts_with("file data "));
    let (_, written) = files.next().unwrap_or_else(|| panic!("no file in {state:#}"));
    assert_eq!(state["paths"][written["file"].as_str().unwrap()], "/file", "{state:#}");
    assert!(written["bytes_written"].as_u64() > Some(1 << 20), "{written}");
    assert!(written["client"].as_str().unwrap().contains('@'), "{written}");
    // The slow requests of all nodes, the last one first.
    let slow = state["slow"].as_array().unwrap();
    let times: Vec<_> = slow.iter().map(|one| one["at"].as_str().unwrap()).collect();
    assert!(times.len() > 1 && times.is_sorted_by(|a, b| a >= b), "{times:?}");
    let clients = stats.as_object().unwrap().iter().filter(|(line, _)| line.starts_with("client "));
    let user = |values: &Value| values["client"].as_str().unwrap().contains('@');
    assert!(clients.clone().any(|(_, values)| user(values)), "{stats:#}");
}

#[test]
fn a_drain_reports_how_far_it_is() {
    let cluster = Cluster::up(2);
    std::fs::write(cluster.scratch("file"), vec![7; 24 << 20]).unwrap();
    let file = cluster.scratch("file").display().to_string();
    cluster.covey(&["cp", &file, ":/file"]);
    let on_it: Value =
        serde_json::from_str(&cluster.covey(&["--json", "files", "--on", "io1"])).unwrap();
    assert!(on_it["bytes"].as_u64() > Some(8 << 20), "{on_it}");
    let mut drain = command::covey();
    drain.arg("--config").arg(cluster.config()).args(["server", "drain", "io1", "--rate", "1M"]);
    let _drain = Running(drain.stdout(Stdio::null()).spawn().unwrap());
    until("the drain has reported", || {
        let stats: Value =
            serde_json::from_str(&cluster.covey(&["--json", "stats", "meta"])).unwrap();
        let work = &stats["meta"]["moving drain io1"];
        work["bytes_total"] == on_it["bytes"] && work["seconds"].as_u64() > Some(0)
    });
}

#[test]
fn a_page_beyond_this_machine_is_refused() {
    let cluster = Cluster::up(1);
    cluster.refused(&["dash", "--listen", "0.0.0.0:0"]).says(&["not encrypted", "ssh -L"]);
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_makes_no_markup_of_names() {
    let html = include_str!("../../src/cmd/dash/page.html");
    let script = include_str!("../../src/cmd/dash/page.js");
    let style = include_str!("../../src/cmd/dash/page.css");
    let own = script.replace("http://www.w3.org/2000/svg", "");
    for text in [html, &own, style] {
        for word in ["http:", "https:", "//cdn", "@import", "url("] {
            assert!(!text.contains(word), "the page has {word}");
        }
    }
    for word in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function("]
    {
        assert!(!script.contains(word), "the script has {word}");
    }
}

#[test]
fn a_browser_shows_the_servers_and_who_is_down_and_a_hostile_name_as_text() {
    if !has_program("chromium") {
        return skip("needs chromium to look at the page");
    }
    let cluster = Cluster::up(2);
    // On every server.
    std::fs::write(cluster.scratch("file"), vec![7; 9 << 20]).unwrap();
    let file = cluster.scratch("file").display().to_string();
    cluster.covey(&["cp", &file, &format!(":/{HOSTILE_FILE}")]);
    // It is connected for as long as its input is open.
    let mut copy = command::covey();
    copy.arg("--config").arg(cluster.config()).args(["cp", "-", ":/file"]);
    copy.env("COVEY_JOB", HOSTILE).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut copy = Running(copy.spawn().unwrap());
    copy.0.stdin.as_mut().unwrap().write_all(&[7; 3 << 20]).unwrap();
    until("the client is there", || cluster.covey(&["stats", "meta"]).contains("<img"));
    cluster.covey(&["stats", "--set", "slow 0", "io1", "meta"]);
    cluster.covey(&["fsck"]);
    cluster.covey(&["ls", ":/"]);
    cluster.kill("io2");
    let (_dash, address, path) = serve(&cluster, &["dash"]);
    let url = format!("http://{address}{path}");
    // As a drain reports it whose server has a hostile name.
    let hostile = "moving 'drain <img/src=y>' 1048576 4194304 30";
    cluster.covey(&["stats", "--set", hostile, "meta"]);
    let done = run_within(browser(&cluster, &["--dump-dom"], &url), Duration::from_secs(60));
    assert!(!done.stderr.contains("CONSOLE"), "{}", done.stderr);
    assert!(!done.stdout.contains("<img"), "{}", done.stdout);
    for text in [
        "1 of 3 servers not up: io2",
        ">io1</td>",
        "dead: ",
        // A job's name, up to its longest.
        "&lt;img/src=x/onerror=alert(1)&gt;\"\\&lt;/td&gt;</td>",
        "covey server drain &lt;img/src=y&gt;: 1.0 MiB of 4.0 MiB copied in 30 s, about 2 min left",
        "covey fsck at 20",
        ">serving</td>",
        "meta.Readdir of ",
        // Who writes what.
        ">/&lt;img src=z onerror=alert(2)&gt;</td>",
    ] {
        assert!(done.stdout.contains(text), "no {text} in {}", done.stdout);
    }
    // What one client does to it at several servers is one row.
    let rows = done.stdout.matches(">/&lt;img src=z onerror=alert(2)&gt;</td>").count();
    assert_eq!(rows, 1, "{}", done.stdout);
    assert!(done.stdout.contains(">meta, io1</td>"), "{}", done.stdout);
    // Wide and narrow, light and dark: to be looked at with COVEY_PICTURES.
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (480, "light"), (480, "dark")] {
        cluster.covey(&["stats", "--set", hostile, "meta"]);
        let picture = cluster.scratch(&format!("{width}-{scheme}.png"));
        let (shot, size) =
            (format!("--screenshot={}", picture.display()), format!("--window-size={width},1600"));
        let flags: &[&str] = match scheme {
            "dark" => &[&shot, &size, "--blink-settings=preferredColorScheme=0"],
            _ => &[&shot, &size, "--blink-settings=preferredColorScheme=1"],
        };
        let done = run_within(browser(&cluster, flags, &url), Duration::from_secs(60));
        assert!(!done.stderr.contains("CONSOLE"), "{}", done.stderr);
        let bytes = std::fs::read(&picture).unwrap();
        // An empty page of this size has a few thousand bytes.
        assert!(bytes[1..4] == *b"PNG" && bytes.len() > 20_000, "{} bytes", bytes.len());
        if let Some(kept) = std::env::var_os("COVEY_PICTURES") {
            std::fs::copy(&picture, Path::new(&kept).join(picture.file_name().unwrap())).unwrap();
        }
    }
}

/// A browser without a window.
fn browser(cluster: &Cluster, flags: &[&str], url: &str) -> Command {
    let profile = cluster.scratch("profile");
    let mut command = Command::new("chromium");
    command
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .args(["--hide-scrollbars", "--virtual-time-budget=8000"])
        .arg(format!("--user-data-dir={}", profile.display()));
    if !flags.iter().any(|flag| flag.starts_with("--window-size")) {
        command.arg("--window-size=1280,900");
    }
    command.args(flags).arg(url);
    command
}
