//! The page of what was measured, judged by a browser.

use crate::support::command::covey;
use crate::support::{has_program, run, skip};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A link of Hockney's model as `covey tune net` would tell it.
fn link(protocol: &str, to: &str, latency_s: f64, bits_per_s: f64) -> Value {
    let time = |bytes: u64| latency_s + bytes as f64 * 8.0 / bits_per_s;
    let points: Vec<Value> = covey_tune::sizes(4 << 20, 3)
        .into_iter()
        .map(|bytes| {
            let time = time(bytes);
            json!({
                "bytes": bytes, "samples": 9, "min_s": time * 0.98, "p10_s": time * 0.99,
                "median_s": time, "median_95_s": [time * 0.97, time * 1.04], "max_s": time * 2.0,
                "trial_s": time, "retransmits": 0,
            })
        })
        .collect();
    let found = covey_tune::Quantities::of(&covey_tune::Curve::new(
        covey_tune::sizes(4 << 20, 3)
            .into_iter()
            .map(|bytes| covey_tune::Point::new(bytes, vec![time(bytes); 9])),
    ));
    json!({
        "from": "n1", "to": to, "protocol": protocol, "wait": "blocking", "points": points,
        "typical": found, "best": found, "streams": [94e6, 93e6], "both_at_once": [90e6, 91e6],
        "verdict": "no-fault", "environment": { "seconds": 6.0, "cpu_pressure": 0.01 },
        "failure": null,
        "wire": { "bits_per_s": 1e8, "mtu": 1500, "overhead_bytes": 38, "least_bytes": 84 },
        "provenance": {
            "command": "covey tune net n1 n2", "began_s": 1_795_000_000u64, "host": "<b>quail</b>",
            "kernel": "6.1", "processor": "Pentium II", "cpus": 1, "version": "0.1.0",
        },
    })
}

fn three() -> Value {
    json!([
        link("TCP", "n2", 57e-6, 94.1e6),
        link("Open MPI", "n2", 108e-6, 86.7e6),
        link("PVM", "n2", 123e-6, 79.3e6),
    ])
}

/// Writes results and makes a page of them.
fn page(dir: &Path, results: &Value) -> PathBuf {
    let (from, to) = (dir.join("r.json"), dir.join("r.html"));
    std::fs::write(&from, results.to_string()).unwrap();
    let mut command = covey();
    command.args(["tune", "report"]).arg(&from).arg("-o").arg(&to);
    let done = run(command);
    assert!(done.ok, "{done}");
    to
}

#[test]
fn a_page_needs_nothing_else_and_holds_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(page(dir.path(), &three())).unwrap();
    // The namespace of SVG is a name, and is not fetched.
    let text = text.replace("http://www.w3.org/2000/svg", "");
    for foreign in ["http:", "https:", "<script", "@import", "url(", " src="] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    for word in
        ["Throughput graph", "Network signature graph", "Saturation graph", "n95", "figure 7"]
    {
        assert!(text.contains(word), "{word}");
    }
    assert!(text.contains("&lt;b&gt;quail") && !text.contains("<b>quail"));
}

/// A warning that stands in a table stands above the numbers, too; who is suspected is told among the diagnoses; and no
/// link is left out, however many there are.
#[test]
fn warnings_suspects_and_all_links_are_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let mut pairs: Vec<Value> =
        (2..=9).map(|node| link("TCP", &format!("n{node}"), 57e-6, 94.1e6)).collect();
    pairs[6]["verdict"] = json!({ "not-trustworthy": "the machine was busy" });
    let evidence = "all pairs over it are bad";
    let suspicion = json!({
        "cause": "loss", "suspects": ["n7"], "bad_pairs": 3, "sound_pairs": 9, "evidence": evidence,
    });
    let all = json!({ "pairs": pairs, "rounds": [], "crowds": [], "suspicions": [suspicion] });
    let text = std::fs::read_to_string(page(dir.path(), &all)).unwrap();
    let (head, _) = text.split_once("class=\"key\"").unwrap();
    assert!(head.contains("1 of 8 links cannot be trusted: the machine was busy."), "{head}");
    let (_, diagnosis) = text.split_once("id=\"verdict\"").unwrap();
    let (diagnosis, after) = diagnosis.split_once("id=\"graphs\"").unwrap();
    assert!(
        diagnosis.contains("Suspect</b> – n7: ") && diagnosis.contains(evidence),
        "{diagnosis}"
    );
    assert!(!after.contains(evidence), "it is told twice");
    let (_, numbers) = text.split_once("id=\"numbers\"").unwrap();
    for node in 2..=9 {
        let pair = format!("TCP from n1 to n{node}");
        assert!(diagnosis.contains(&pair) && numbers.contains(&pair), "no {pair}");
    }
}

/// A result of each kind that has a section of its own, and one that has none.
fn of_all_kinds() -> Value {
    use covey_measure::app::report::{AppReport, Chosen, Measured};
    use covey_measure::disk::{Caches, DiskReport, Rate, Test};
    use covey_tune::Estimate;
    use covey_tune::application::{Case, Numbers, Repetition, Routine};
    let rate = Estimate { value: 80e6, low: 79e6, high: 81e6 };
    let rates = [Test::Write, Test::GetLetters, Test::RandomRead, Test::Stat].map(|test| Rate {
        test,
        record_bytes: 65_536,
        direct: false,
        caches: Caches::Dropped,
        unit: "bytes/s".to_string(),
        rate,
        each: vec![80e6; 3],
        amount: 1 << 20,
        cpu_s_per_gib: Some(0.4),
        cpu_us_per_operation: None,
    });
    let disk = DiskReport {
        kind: "disk".to_string(),
        rates: rates.to_vec(),
        notes: vec!["writes include <fsync>".to_string()],
        failure: Some("the disk is full".to_string()),
        ..DiskReport::default()
    };
    let measured = |mpi: Option<&str>, block, rows| {
        let case = Case {
            routine: Routine::Gemm,
            numbers: Numbers::D,
            order: 1000,
            block,
            rows,
            columns: 2,
        };
        let once = Repetition { case, wall_s: 0.1, cpu_s: 0.1, residual: 0.1 };
        let rate = covey_tune::application::Rate::of(&[once]).unwrap();
        Measured { mpi: mpi.map(String::from), blas: "OpenBLAS".to_string(), rate }
    };
    let tried: Vec<Measured> =
        [8, 16, 32, 64, 128, 256].map(|block| measured(Some("MPICH 4.0.2"), block, 2)).to_vec();
    let app = AppReport {
        kind: "app".to_string(),
        ranks: 4,
        cpus: 2,
        order: Some(1000),
        peaks: vec![measured(None, 1000, 1)],
        chosen: vec![Chosen {
            confirmed: tried[2].clone(),
            contest_gflops: 20.0,
            share_of_peak: Some(0.45),
            best: None,
            share_of_best: Some(0.97),
        }],
        rates: tried,
        ..AppReport::default()
    };
    let times = json!([[rate, rate], [rate, rate]]);
    let again = json!({
        "kind": "reproduce", "paper": "KISTI 2007", "is_quick": true,
        "parts": [{
            "part": "fig4", "title": "HPL", "measured": ["HPL over myrinet2000: 3 Gflop/s"],
            "beside": [{
                "place": "figure 4", "of": "InfiniBand by Myrinet", "what": "HPL's rate", "unit": "share",
                "ours": { "value": 1.01, "low": 0.99, "high": 1.03 }, "theirs": 1.04, "ratio": 0.971,
            }],
            "divided": [{
                "what": "allreduce, 4 processes, 131072 B", "wires": ["myrinet2000", "infiniband-sdr"],
                "libraries": ["MPICH 4.0.2", "Open MPI 4.1.4"], "times_s": times,
                "whole": rate, "wire": rate, "library": rate, "source": "wire-more",
            }],
            "claims": [{
                "place": "figure 4", "text": "HPL on 4 nodes is 4 % faster", "outcome": "not-shown",
                "because": "the intervals overlap",
            }],
            "differs": ["nodes share CPUs"], "left_out": [{ "what": "hpcc", "why": "it is <absent>" }],
        }],
    });
    json!([disk, app, again, { "kind": "quail", "eggs": 3 }, { "kind": "disk", "damaged": true }])
}

#[test]
fn each_kind_of_result_has_a_section_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(page(dir.path(), &of_all_kinds())).unwrap();
    for words in [
        "Directories and devices",
        "random read",
        "It broke off: the disk is full",
        "writes include &lt;fsync&gt;",
        "Matrices",
        "pdgemm over MPICH 4.0.2",
        "4 processes share 2 CPUs",
        "97 %",
        "Papers measured again",
        "101.0 %",
        "both, the wire more",
        "not shown here",
        "it is &lt;absent&gt;",
        "Other results",
        "quail",
        "damaged",
    ] {
        assert!(text.contains(words), "{words}");
    }
}

#[test]
fn graphs_are_written_as_svg_and_png() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("r.json");
    std::fs::write(&from, three().to_string()).unwrap();
    let mut command = covey();
    command.args(["tune", "report"]).arg(&from);
    command.arg("--svg").arg(dir.path()).arg("--png").arg(dir.path());
    let done = run(command);
    assert!(done.ok, "{done}");
    for graph in ["throughput", "signature", "saturation"] {
        let svg = std::fs::read_to_string(dir.path().join(graph).with_extension("svg")).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
        let png = std::fs::read(dir.path().join(graph).with_extension("png")).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 10_000, "{}", png.len());
    }
}

#[test]
fn wrong_files_and_absent_words_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quail.json");
    std::fs::write(&file, "{\"quail\":1}").unwrap();
    let report = |words: &[&str]| {
        let mut command = covey();
        command.args(["tune", "report"]).arg(&file).args(words);
        run(command)
    };
    report(&["-o", "/dev/null"]).says(&["cannot use", "quail.json", "no measurement"]);
    assert_eq!(report(&[]).code, Some(2));
}

#[test]
fn numbers_of_a_busy_machine_are_used_only_when_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let choose = |name: &str, links: Value, words: &[&str]| {
        let file = dir.path().join(name);
        std::fs::write(&file, links.to_string()).unwrap();
        let mut command = covey();
        command.args(["tune", "choose"]).arg(&file).args(words);
        run(command)
    };
    let quiet = link("TCP", "n2", 500e-6, 94e6);
    let mut busy = link("TCP", "n3", 900e-6, 94e6);
    busy["environment"] = json!({ "seconds": 6.0, "cpu_pressure": 0.5, "outside_cpus": 1.5 });
    let mut broken = quiet.clone();
    broken["failure"] = json!("the other end has gone");
    for (name, link) in [("busy", &busy), ("broken", &broken)] {
        let refused = choose(name, json!([link]), &[]);
        refused.says(&["none of 1 links is without fault and trustworthy", "--anyway"]);
        let used = choose(name, json!([link]), &["--anyway"]);
        assert!(used.ok && used.stdout.contains("n95"), "{used}");
    }
    let both = choose("both", json!([quiet, busy]), &["--json"]);
    assert!(both.ok && both.stdout.contains("1 of 2 links"), "{both}");
    let mut faulty = quiet;
    faulty["verdict"] = json!({ "faults": [] });
    choose("faulty", json!([faulty]), &["--anyway"]).says(&["none of 1 links"]);
}

#[test]
fn a_chosen_strip_is_in_effect_and_status_names_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let (home, results) = (dir.path().join("c"), dir.path().join("r.json"));
    std::fs::create_dir(&home).unwrap();
    // n95 of 100 us at 100 Mbit/s is 22 kB, of 500 us 112 kB.
    let far = [link("TCP", "n2", 500e-6, 94e6)];
    // As `tune net --all` tells it.
    let all = json!({ "pairs": far, "rounds": [], "crowds": [], "suspicions": [] });
    std::fs::write(&results, all.to_string()).unwrap();
    let tune = home.join("tune.toml");
    let mut command = covey();
    command.args(["tune", "choose"]).arg(&results).arg("-o").arg(&tune);
    let done = run(command);
    assert!(done.ok && done.stdout.contains("n95"), "{done}");
    let mut command = covey();
    let done = run({
        command.args(["up", "-n", "2", "--dir"]).arg(&home);
        command
    });
    assert!(done.ok, "{done}");
    let on = |words: &[&str]| {
        let mut command = covey();
        command.arg("--config").arg(home.join("covey.toml")).args(words);
        run(command)
    };
    let shown = on(&["layout", "show", ":/"]);
    let status = on(&["--json", "status"]);
    let text = std::fs::read_to_string(&tune).unwrap();
    std::fs::write(&tune, text.replace("value = 131072", "value = 131073")).unwrap();
    let stale = on(&["status"]);
    // A server that starts beside it goes on with the defaults, and says why.
    let log = home.join("log/io1.log");
    on(&["down"]);
    let again = run({
        let mut command = covey();
        command.args(["up", "--dir"]).arg(&home);
        command
    });
    let warned = std::fs::read_to_string(log).unwrap();
    let named = on(&["serve", "--node", "io1", "--tune", "/nonexistent/tune.toml"]);
    // A shorter msize is in effect at once.
    let short = text.replace("value = 1048576", "value = 262144");
    std::fs::write(&tune, &short).unwrap();
    on(&["down"]);
    on(&["up"]);
    let shorter = on(&["--json", "status"]);
    std::fs::write(&results, vec![b'x'; 3 << 20]).unwrap();
    let copied = on(&["cp", results.to_str().unwrap(), ":/copied"]);
    let same = on(&["cat", ":/copied"]);
    let down = on(&["down"]);
    assert!(again.ok && warned.contains("tune.toml: choose.strip"), "{again}\n{warned}");
    named.says(&["cannot use", "/nonexistent/tune.toml", "no such file"]);
    assert!(short != text, "{text}");
    assert!(copied.ok && same.ok && same.stdout.len() == 3 << 20, "{copied}");
    let shorter: Value = serde_json::from_str(&shorter.stdout).unwrap();
    for node in shorter["nodes"].as_array().unwrap() {
        assert_eq!(node["msize"], 262_144 + 4096, "{shorter:#}");
    }
    assert!(down.ok, "{down}");
    assert!(text.contains("value = 131072"), "{text}");
    assert!(shown.stdout.contains("then 128 KiB over 2 servers"), "{shown}");
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let parameter = |name: &str| {
        let all = status["parameters"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{status:#}"))
    };
    assert_eq!(parameter("strip")["value"], 131_072);
    for name in ["strip", "msize", "pacing"] {
        let from = parameter(name)["from"]["tuned"].as_str().unwrap();
        assert!(from.ends_with("tune.toml"), "{status:#}");
    }
    assert!(stale.stdout.contains("tune.toml: choose.strip"), "{stale}");
}

/// Appended to the page only here: measures it and leaves the result in its text.
const MEASURE: &str = r#"<script>
addEventListener('load', () => {
  const shown = [...document.querySelectorAll('svg.chart')].filter(svg => svg.getClientRects().length);
  const overlaps = [];
  for (const svg of shown) {
    const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
      const x = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (x > 1 && y > 4) overlaps.push(svg.querySelector('title').textContent + ': ' + a + ' | ' + b);
    }));
  }
  const least = Math.min(...shown.map(s => parseFloat(getComputedStyle(s.querySelector('text')).fontSize)
    * s.getBoundingClientRect().width / s.viewBox.baseVal.width));
  const out = document.createElement('output');
  out.id = 'measured';
  out.textContent = JSON.stringify({
    width: document.documentElement.scrollWidth, window: innerWidth, charts: shown.length, overlaps, least,
    ground: getComputedStyle(document.body).backgroundColor,
  });
  document.body.append(out);
});
</script>"#;

fn chromium() -> Option<&'static str> {
    if !has_program("chromium") {
        skip("needs chromium to look at the page");
        return None;
    }
    Some("chromium")
}

/// Opens the page in a frame of that width and says what was measured there.
fn look(browser: &str, dir: &Path, page: &Path, width: u32, is_dark: bool) -> Value {
    let text = std::fs::read_to_string(page).unwrap();
    let probe = dir.join("probe.html");
    std::fs::write(&probe, text.replace("</body>", &format!("{MEASURE}</body>"))).unwrap();
    let scheme = if is_dark { 0 } else { 1 };
    let mut command = Command::new(browser);
    command
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("--window-size={width},900"))
        .arg(format!("file://{}", probe.display()));
    let done = run(command);
    assert!(!done.stderr.contains("CONSOLE"), "{}", done.stderr);
    let told = done.stdout.split("<output id=\"measured\">").nth(1).expect("the page was measured");
    let told = told.split("</output>").next().unwrap();
    serde_json::from_str(&told.replace("&gt;", ">").replace("&amp;", "&")).unwrap()
}

#[test]
fn a_browser_shows_every_table_within_the_page_also_on_a_telephone() {
    let Some(browser) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut all = of_all_kinds();
    all.as_array_mut().unwrap().push(link("TCP", "n2", 57e-6, 94.1e6));
    let page = page(dir.path(), &all);
    for width in [1280, 800, 500] {
        let told = look(browser, dir.path(), &page, width, false);
        assert!(told["width"].as_u64() <= told["window"].as_u64(), "it overflows: {told:#}");
    }
}

#[test]
fn a_browser_shows_three_graphs_readable_in_light_and_dark_and_on_a_telephone() {
    let Some(browser) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = page(dir.path(), &three());
    let mut grounds = Vec::new();
    for (width, is_dark) in [(1280, false), (1280, true), (800, false), (500, false)] {
        let told = look(browser, dir.path(), &page, width, is_dark);
        assert_eq!(told["charts"], 3, "{told:#}");
        assert!(told["width"].as_u64() <= told["window"].as_u64(), "it overflows: {told:#}");
        assert!(told["overlaps"].as_array().unwrap().is_empty(), "{told:#}");
        assert!(told["least"].as_f64().unwrap() >= 10.0, "letters are too small: {told:#}");
        grounds.push(told["ground"].as_str().unwrap().to_string());
    }
    assert_ne!(grounds[0], grounds[1], "dark looks like light");
}
