//! `covey metrics`: the figures of a live cluster, by hand and by Debian's Prometheus.

use crate::site::{Running, http, http_of, serve};
use crate::support::command::as_stranger;
use crate::support::{Cluster, has_program, run, skip, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

fn value(text: &str, sample: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
    line.parse().ok()
}

#[test]
fn the_page_has_what_stats_has_and_says_who_is_down() {
    let cluster = Cluster::up(2);
    std::fs::write(cluster.scratch("file"), vec![7; 3 << 20]).unwrap();
    let file = cluster.scratch("file").display().to_string();
    cluster.covey(&["cp", &file, ":/file"]);
    let (_server, address, _) = serve(&cluster, &["metrics", "--listen", "127.0.0.1:0"]);
    let page = http(&address, "GET /metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("content-type: application/openmetrics-text; version=1.0.0"), "{page}");
    assert!(page.ends_with("# EOF\n"), "{page}");
    let stats: Value = serde_json::from_str(&cluster.covey(&["--json", "stats"])).unwrap();
    // All but `servers_missing`.
    for (node, lines) in stats.as_object().unwrap().iter().filter(|(_, lines)| lines.is_object()) {
        for (line, values) in lines.as_object().unwrap() {
            let Some((part, name)) = line.strip_prefix("op ").and_then(|name| name.split_once('.'))
            else {
                continue;
            };
            let labels = format!(r#"{{node="{node}",part="{part}",operation="{name}"}}"#);
            let count = value(&page, &format!("covey_operation_duration_seconds_count{labels}"));
            let bytes = value(&page, &format!("covey_operation_bytes_total{labels}"));
            // Reading them is itself a request to the metadata server's tree, and no operation.
            assert_eq!(count, values["count"].as_f64(), "{labels}");
            assert_eq!(bytes, values["bytes"].as_f64(), "{labels}");
        }
    }
    let written = |node| {
        let labels = format!(r#"{{node="{node}",part="data",operation="write"}}"#);
        value(&page, &format!("covey_operation_bytes_total{labels}")).unwrap_or(0.0)
    };
    let inline = f64::from(64 << 10);
    assert!(written("io1") + written("io2") >= f64::from(3 << 20) - inline, "{page}");

    cluster.kill("io2");
    until("io2 is down on the page", || {
        let page = http(&address, "GET /metrics");
        let up = |node: &str| {
            let begin = format!("covey_up{{node=\"{node}\"");
            let line = page.lines().find(|line| line.starts_with(&begin)).expect("each node");
            line.ends_with(" 1")
        };
        up("io1") && !up("io2")
    });
    assert!(http(&address, "POST /metrics").starts_with("HTTP/1.1 405 "));
    assert!(http(&address, "GET /etc/passwd").starts_with("HTTP/1.1 404 "));
    let once = cluster.covey(&["metrics"]);
    assert!(once.contains("# TYPE covey_up gauge\n") && once.ends_with("# EOF\n"), "{once}");
}

#[test]
fn a_volume_is_told_while_it_is_open_and_gone_when_it_is_removed() {
    let cluster = Cluster::up(1);
    cluster.covey(&["volume", "create", "disk", "--size", "64M"]);
    let node = cluster.covey(&["--json", "volume", "ls"]);
    let node = serde_json::from_str::<Value>(&node).unwrap();
    let node = node[0]["node"].as_str().unwrap_or_else(|| panic!("{node:#}")).to_owned();
    let labels = format!(r#"{{node="{node}",volume="disk"}}"#);
    let mut text = String::new();
    until("the volume is open", || {
        text = cluster.covey(&["metrics"]);
        value(&text, &format!("covey_volume_open{labels}")) == Some(1.0)
    });
    let size = value(&text, &format!("covey_volume_size_bytes{labels}"));
    assert_eq!(size, Some(f64::from(64 << 20)), "{text}");
    assert_eq!(value(&text, &format!("covey_volume_sessions{labels}")), Some(0.0), "{text}");
    cluster.covey(&["volume", "rm", "disk"]);
    let text = cluster.covey(&["metrics"]);
    assert_eq!(value(&text, &format!("covey_volume_open{labels}")), None, "{text}");
}

#[test]
fn readers_that_say_nothing_keep_nobody_out() {
    let cluster = Cluster::up(1);
    let (_server, address, _) = serve(&cluster, &["metrics", "--listen", "127.0.0.1:0"]);
    // Far more than are heard at a time, each with the beginning of a request.
    let silent: Vec<_> = (0..400)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost").unwrap();
            stream
        })
        .collect();
    let mut wild = TcpStream::connect(&address).unwrap();
    wild.write_all(&[0xff; 100_000]).ok();
    assert!(http(&address, "GET /metrics").ends_with("# EOF\n"));
    drop(silent);
}

#[test]
fn a_page_from_elsewhere_that_calls_our_address_its_own_reads_nothing() {
    let cluster = Cluster::up(1);
    let (_server, address, _) = serve(&cluster, &["metrics", "--listen", "127.0.0.1:0"]);
    for name in ["evil.example", "evil.example:9564", "localhost.evil.example"] {
        let answer = http_of(name, &address, "GET /metrics");
        assert!(answer.starts_with("HTTP/1.1 421 "), "{name}: {answer}");
        assert!(!answer.contains("covey_"), "{name}: {answer}");
    }
    for name in [address.as_str(), "localhost:9564", "[::1]:9564"] {
        let answer = http_of(name, &address, "GET /metrics");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{name}: {answer}");
    }
}

#[test]
fn who_may_not_read_the_figures_is_told_so_and_no_server_is_called_down() {
    let cluster = Cluster::up(1);
    let listen: &[&str] = &["--listen", "127.0.0.1:0"];
    for options in [&[], listen] {
        let Some(mut command) = as_stranger(&cluster) else { return };
        command.arg("--config").arg(cluster.config()).arg("metrics").args(options);
        let done = run(command);
        assert_eq!(done.code, Some(1), "{done}");
        done.says(&["cannot read /times of ", "only root and the servers' owner may"]);
        assert!(!done.stdout.contains("covey_up"), "{done}");
    }
}

#[test]
fn an_address_that_is_taken_is_named() {
    let cluster = Cluster::up(1);
    let (_server, address, _) = serve(&cluster, &["metrics", "--listen", "127.0.0.1:0"]);
    let refused = cluster.refused(&["metrics", "--listen", &address]);
    refused.says(&["cannot listen on", &address, "name another port"]);
}

#[test]
fn prometheus_scrapes_it_and_fires_for_a_killed_server() {
    if !has_program("prometheus") || !has_program("promtool") {
        return skip("Debian's prometheus is not installed");
    }
    let cluster = Cluster::up(1);
    let (_server, address, _) = serve(&cluster, &["metrics", "--listen", "127.0.0.1:0"]);
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/prometheus/covey.rules.yml");
    let mut check = Command::new("promtool");
    check.args(["check", "rules", rules]);
    let checked = run(check);
    assert!(checked.ok, "{checked}");
    let config = cluster.scratch("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
         rule_files: [{rules}]\n\
         scrape_configs: [{{ job_name: covey, static_configs: [{{ targets: [\"{address}\"] }}] }}]\n"
    );
    std::fs::write(&config, text).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let web = format!("127.0.0.1:{port}");
    let _prometheus = Running(
        Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", cluster.scratch("tsdb").display()))
            .arg(format!("--web.listen-address={web}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let ask = |query: &str| -> Value {
        let Ok(mut stream) = TcpStream::connect(&web) else { return Value::Null };
        let mut answer = String::new();
        let sent = write!(stream, "GET /api/v1/{query} HTTP/1.0\r\n\r\n");
        let _ = sent.and_then(|()| stream.read_to_string(&mut answer));
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).unwrap_or(Value::Null)
    };
    let is_up = |wanted: &str| {
        let found = ask("query?query=covey_up%7Bnode%3D%22io1%22%7D");
        found["data"]["result"][0]["value"][1] == wanted
    };
    until("prometheus has seen io1", || is_up("1"));
    cluster.kill("io1");
    until("prometheus has seen io1 die", || is_up("0"));
    until("the alert is pending or firing", || {
        let alerts = ask("alerts");
        let all = alerts["data"]["alerts"].as_array().cloned().unwrap_or_default();
        all.iter().any(|alert| {
            alert["labels"]["alertname"] == "CoveyNodeDown" && alert["labels"]["node"] == "io1"
        })
    });
}

/// The names of metrics in a text, without what Prometheus appends to those of histograms.
fn names(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = text.split(|c| !is_word(c)).filter(|word| word.starts_with("covey_"));
    let ends = ["_bucket", "_count", "_sum"];
    let histogram = |word: &str| {
        ends.iter().find_map(|end| word.strip_suffix(end)).map_or(word.to_owned(), str::to_owned)
    };
    words.map(histogram).collect()
}

#[test]
fn the_manual_the_dashboard_and_the_alerts_name_only_metrics_that_exist() {
    let page = include_str!("../../../../docs/manual/watching.md");
    let rows = page.lines().filter(|line| line.starts_with("| `covey_"));
    let table = names(&rows.map(|row| row.split('|').nth(1).unwrap()).collect::<String>());
    let cluster = Cluster::up(1);
    let text = cluster.covey(&["metrics"]);
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let served: BTreeSet<String> = described
        .map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            let end = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            format!("{name}{end}")
        })
        .collect();
    assert_eq!(table, served, "the manual's table and the page");
    let dashboard: Value =
        serde_json::from_str(include_str!("../../../../dist/grafana/covey.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<&str> = queries.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() >= 9);
    let variables = dashboard["templating"]["list"][1]["query"].as_str().unwrap();
    let alerts = include_str!("../../../../dist/prometheus/covey.rules.yml");
    for text in queries.into_iter().chain([variables, alerts]) {
        for name in names(text) {
            assert!(served.contains(&name), "{name} of {text} is not served");
        }
    }
}
