//! `covey dash`: its page, read as text and by a browser.

use crate::site::{Running, http, http_of, serve, serve_by};
use crate::support::command::as_stranger;
use crate::support::{Cluster, command, has_program, run_within, skip, until};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

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
        assert!(node["stats"].is_null() && node["slow"].is_null(), "{state}");
    }
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
    // It is connected for as long as its input is open.
    let mut copy = command::covey();
    copy.arg("--config").arg(cluster.config()).args(["cp", "-", ":/file"]);
    copy.env("COVEY_JOB", HOSTILE).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut copy = Running(copy.spawn().unwrap());
    copy.0.stdin.as_mut().unwrap().write_all(&[7; 3 << 20]).unwrap();
    until("the client is there", || cluster.covey(&["stats", "meta"]).contains("<img"));
    cluster.kill("io2");
    let (_dash, address, path) = serve(&cluster, &["dash"]);
    let profile = cluster.scratch("profile");
    let mut command = Command::new("chromium");
    command
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .args(["--virtual-time-budget=8000", "--dump-dom", "--window-size=1280,900"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("http://{address}{path}"));
    let done = run_within(command, Duration::from_secs(60));
    assert!(!done.stderr.contains("CONSOLE"), "{}", done.stderr);
    let shown = " job &lt;img/src=x/onerror=alert(1)&gt;\"\\&lt;/td&gt; pid ";
    assert!(!done.stdout.contains("<img"), "{}", done.stdout);
    for text in ["1 of 3 servers not up: io2", ">io1</td>", "dead: ", shown] {
        assert!(done.stdout.contains(text), "no {text} in {}", done.stdout);
    }
}
