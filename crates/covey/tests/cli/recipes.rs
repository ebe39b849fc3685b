//! What the manual and the README say to type, typed, and compared with what they show. Comments in a page, which its
//! readers do not see, say how ([`page`]); one that says nothing of a block fails here.
//!
//! A page's blocks are typed one after the other in one shell, as root of a machine that nobody else sees
//! (`recipes/machine.sh`): root's own cluster, configuration and mounts stay as they are. Other machines of a page are this
//! one at other addresses, and `ssh`, `scp`, `pdsh`, `srun` and `systemctl` (`recipes/bin`) know that.

mod compare;
mod page;

use crate::home::Home;
use crate::layers::{read, workspace};
use crate::support::libraries::built;
use crate::support::{Finished, has_program, is_root, no_fuse, run_within, skip};
use page::{Block, Mark, blocks};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a page may take.
const LIMIT: Duration = Duration::from_secs(200);

macro_rules! recipes {
    ($($name:ident $page:literal)*) => {
        /// The pages that have something to type.
        const PAGES: &[&str] = &[$($page),*];
        $(#[test]
        fn $name() {
            recipe($page);
        })*
    };
}

recipes! {
    the_session_of_the_readme_works_as_pasted "README.md"
    a_client_of_9p_works_as_pasted "docs/manual/9p.md"
    images_are_served_as_pasted "docs/manual/boot.md"
    workers_run_as_pasted "docs/manual/cell.md"
    checking_works_as_pasted "docs/manual/checking.md"
    files_without_a_mount_work_as_pasted "docs/manual/files-without-a-mount.md"
    installing_works_as_pasted "docs/manual/install.md"
    a_file_system_for_a_job_works_as_pasted "docs/manual/job-file-systems.md"
    jobs_run_as_pasted "docs/manual/jobs.md"
    a_lab_works_as_pasted "docs/manual/lab.md"
    layouts_work_as_pasted "docs/manual/layouts.md"
    the_provider_works_as_pasted "docs/manual/libfabric.md"
    one_machine_works_as_pasted "docs/manual/one-machine.md"
    the_preloaded_library_works_as_pasted "docs/manual/preload.md"
    quotas_work_as_pasted "docs/manual/quotas.md"
    salvaging_works_as_pasted "docs/manual/salvaging.md"
    a_key_is_replaced_as_pasted "docs/manual/security.md"
    several_machines_work_as_pasted "docs/manual/several-machines.md"
    upgrading_works_as_pasted "docs/manual/upgrading.md"
    the_model_of_the_card_works_as_pasted "docs/manual/uzura-model.md"
    volumes_work_as_pasted "docs/manual/volumes.md"
    watching_works_as_pasted "docs/manual/watching.md"
}

#[test]
fn every_block_of_a_page_is_typed_or_says_why_not() {
    let manual = workspace().join("docs/manual");
    let pages = fs::read_dir(manual).unwrap().map(|page| page.unwrap().path());
    let more =
        ["README.md", "docs/README.md", "docs/semantics.md"].map(|page| workspace().join(page));
    let (mut unmarked, mut unquoted) = (Vec::new(), Vec::new());
    for path in pages.chain(more) {
        let name = path.strip_prefix(workspace()).unwrap().display().to_string();
        let text = read(&path);
        let blocks = blocks(&text);
        let of_page = blocks.iter().filter(|block| block.mark.is_none());
        unmarked.extend(of_page.map(|block| format!("{name}:{}: {}", block.line, block.lines[0])));
        let commands = to_type(&text, &blocks).into_iter();
        unquoted.extend(
            commands.filter(|line| has_bare_bang(line)).map(|line| format!("{name}: {line}")),
        );
        let is_typed = blocks.iter().any(|block| matches!(block.mark, Some(Mark::Run { .. })));
        assert_eq!(is_typed, PAGES.contains(&name.as_str()), "{name} in the list of recipes.rs");
    }
    unmarked.sort();
    assert!(
        unmarked.is_empty(),
        "blocks that nobody types, without a reason:\n{}",
        unmarked.join("\n")
    );
    assert!(
        unquoted.is_empty(),
        "a shell takes the ! for a command before:\n{}",
        unquoted.join("\n")
    );
}

/// The lines and the words in a text that a reader would paste.
fn to_type<'a>(text: &'a str, blocks: &[Block<'a>]) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2).filter(|span| span.starts_with("covey "));
    let run = blocks.iter().filter(|block| matches!(block.mark, Some(Mark::Run { .. })));
    let steps = run.flat_map(steps_of).map(|step| step.command);
    let lines = steps.flat_map(|command| command.lines().map(str::to_owned).collect::<Vec<_>>());
    spans.map(str::to_owned).chain(lines.filter(|line| !line.starts_with("printf "))).collect()
}

/// Whether a line has an exclamation mark that an interactive bash would take for one of its own.
fn has_bare_bang(line: &str) -> bool {
    let command = line.split(" #").next().unwrap_or(line);
    command.split('\'').step_by(2).any(|part| {
        part.match_indices('!').any(|(at, _)| {
            let next = part[at + 1..].chars().next();
            next.is_some_and(|next| !next.is_whitespace() && next != '=' && next != '(')
        })
    })
}

/// A command of a session, and what it is shown to print.
#[derive(Debug, PartialEq)]
struct Step {
    line: usize,
    command: String,
    shown: Option<Vec<String>>,
}

/// Types a page's blocks.
fn recipe(page: &str) {
    if !is_root() || !has_program("unshare") || !has_program("ip") {
        return skip("needs root, unshare and ip, for a machine of its own");
    }
    let text = read(&workspace().join(page));
    let (mut steps, mut left_out) = (Vec::new(), Vec::new());
    let mut needs: Vec<&str> = Vec::new();
    for block in blocks(&text) {
        match missing(&block) {
            Some(what) => left_out.push(format!("{page}:{} needs {what}", block.line)),
            None => {
                if let Some(Mark::Run { needs: more, .. }) = &block.mark {
                    needs.extend(more);
                }
                steps.extend(steps_of(&block));
            }
        }
    }
    let script = script(&steps);
    // The machine's own disks are there.
    assert!(
        !["/dev/vd", "/dev/sd", "/dev/nvme"].iter().any(|disk| script.contains(disk)),
        "{script}"
    );
    let done = in_a_shell(&script, &needs);
    let printed = printed(&done.stdout);
    let last = printed.keys().next_back().copied().unwrap_or_default();
    assert!(done.ok, "{page}:{last} failed with {:?}:\n{}", done.code, done.stdout);
    for step in &steps {
        let Some(shown) = &step.shown else { continue };
        if let Some(how) = compare::differs(shown, &printed[&step.line]) {
            panic!("{page}:{}: `{}` prints something else.\n{how}", step.line, step.command);
        }
    }
    if !left_out.is_empty() {
        skip(format!("some blocks: {}", left_out.join(", ")));
    }
}

/// What a block needs and this machine does not have.
fn missing(block: &Block) -> Option<String> {
    let Some(Mark::Run { needs, .. }) = &block.mark else { return None };
    needs.iter().find_map(|need| match *need {
        "unlike" | "preload" | "fi" | "spc" | "bootget" => None,
        "fuse" => no_fuse(),
        "v9fs" => (!read(Path::new("/proc/filesystems")).contains("9p\n"))
            .then(|| "a kernel with 9p".to_owned()),
        "lab" => device("/dev/net/tun"),
        "loop" => device("/dev/loop-control"),
        program => (!has_program(program)).then(|| program.to_owned()),
    })
}

fn device(path: &str) -> Option<String> {
    (!Path::new(path).exists()).then(|| path.to_owned())
}

/// The commands of a block, in the order in which they are typed.
fn steps_of(block: &Block) -> Vec<Step> {
    let plain = |line, command| Step { line, command, shown: None };
    match &block.mark {
        None | Some(Mark::NotRun(_)) => Vec::new(),
        Some(Mark::Type(lines)) => vec![plain(block.line, lines.join("\n"))],
        Some(Mark::File(name)) => {
            let text = block.lines.join("\n");
            vec![plain(block.line, format!("cat >{name} <<'END OF FILE'\n{text}\nEND OF FILE"))]
        }
        Some(Mark::Run { needs, before }) => {
            // Lines before a block have its number, less one: that is the end of the comment, or its fence.
            let mut all = Vec::new();
            if !before.is_empty() {
                all.push(plain(block.line - 1, before.join("\n")));
            }
            if block.lines.iter().any(|line| line.starts_with("$ ")) {
                all.extend(session(block, !needs.contains(&"unlike")));
            } else {
                let lines = block.lines.iter().map(|line| typed(line));
                all.push(plain(block.line, lines.collect::<Vec<_>>().join("\n")));
            }
            all
        }
    }
}

/// A line as it is; of what goes on until Ctrl-C its first seconds, or, of a server, until the others have been typed.
fn typed(line: &str) -> String {
    let is_watched =
        ["--watch", "covey dash", "metrics --listen"].iter().any(|word| line.contains(word));
    if is_watched {
        let command = line.split(" #").next().unwrap_or(line).trim_end();
        return format!("timeout -s INT 5 {command} || [ $? = 124 ]");
    }
    if line.starts_with("covey export ") { format!("going_on {line}") } else { line.to_owned() }
}

/// The commands of a session, which are shown with their output. One that is shown to fail must fail.
fn session(block: &Block, is_compared: bool) -> Vec<Step> {
    let mut all = Vec::new();
    let mut lines = block.lines.iter().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let Some(first) = line.strip_prefix("$ ") else { continue };
        let mut command = known(first);
        while command.ends_with('\\') {
            let (_, more) = lines.next().expect("a line that is continued has a next one");
            command = format!("{command}\n{more}");
        }
        let output = std::iter::from_fn(|| lines.next_if(|(_, line)| !line.starts_with("$ ")));
        let shown: Vec<String> = output.map(|(_, line)| (*line).to_owned()).collect();
        if shown.iter().any(|line| line.ends_with(" error")) {
            command = format!("if {command}; then exit 9; fi");
        }
        // A command that is shown with nothing may print something: not all is shown.
        let is_compared = is_compared && shown.iter().any(|line| !line.is_empty());
        let shown = is_compared.then_some(shown);
        all.push(Step { line: block.line + at, command, shown });
    }
    all
}

/// A command whose number is not known before.
fn known(command: &str) -> String {
    match command.split_once(" # io3 dies") {
        Some(_) => {
            "kill -9 $(covey --json status | tr -d ' \\n' | grep -o '\"node\":\"io3\"[^}]*' | \
            grep -o '\"pid\":[0-9]*' | cut -d : -f 2)"
                .to_owned()
        }
        None => command.to_owned(),
    }
}

/// All steps for bash, which says before each what line it is of.
fn script(steps: &[Step]) -> String {
    let mut text =
        "set -eu\n. /media/words\ntrap 'covey down >/dev/null 2>&1 || true' EXIT\n".to_owned();
    for Step { line, command, .. } in steps {
        text.push_str(&format!("printf '\\n{SIGN}%d\\n' {line}\n{command}\n"));
    }
    text
}

const SIGN: &str = "@@ line ";

/// The lines that were printed at each line of the page.
fn printed(stdout: &str) -> BTreeMap<usize, Vec<String>> {
    let mut all = BTreeMap::new();
    let mut at = 0;
    for line in stdout.lines() {
        match line.strip_prefix(SIGN).and_then(|number| number.parse().ok()) {
            Some(number) => {
                at = number;
                all.insert(at, Vec::new());
            }
            None => all.entry(at).or_default().push(line.to_owned()),
        }
    }
    all
}

/// Runs a script on a machine of its own.
fn in_a_shell(script: &str, needs: &[&str]) -> Finished {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/recipes");
    let home = Home::new();
    let files: String = installed(needs)
        .into_iter()
        .map(|(file, place)| format!("{} {place}\n", file.display()))
        .collect();
    let files = home.write("files", &files);
    let script = home.write("script", script);
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    shell.args([
        "--propagation",
        "private",
        "bash",
        "-c",
        "exec bash \"$0\" \"$1\" \"$2\" <\"$3\"",
    ]);
    shell.args([&here.join("machine.sh"), &files, &here.join("bin"), &script]);
    run_within(shell, LIMIT)
}

/// What a recipe finds on its machine, and where.
fn installed(needs: &[&str]) -> Vec<(PathBuf, &'static str)> {
    let root = workspace();
    let mut all = vec![
        (PathBuf::from(env!("CARGO_BIN_EXE_covey")), "/usr/local/bin/covey"),
        (root.join("crates/covey/tests/cli/recipes/words.sh"), "/media/words"),
        (root.join("crates/spc/include/covey_cell.h"), "/usr/local/include/covey_cell.h"),
        (root.join("crates/preload/mpi"), "/usr/local/share/covey"),
    ];
    let libraries = [
        ("preload", "covey-preload", "libcovey_preload.so", "/usr/local/lib/libcovey-preload.so"),
        ("fi", "covey-fi", "libcovey_fi.so", "/usr/local/lib/libfabric/libcovey-fi.so"),
        ("spc", "covey-spc", "libcovey_cell_lib.so", "/usr/local/lib/libcovey-cell.so.0"),
        ("bootget", "covey-bootget", "covey-bootget", "/usr/local/bin/covey-bootget"),
    ];
    for (need, package, file, place) in libraries {
        if needs.contains(&need) {
            all.push((built(package, file), place));
        }
    }
    all
}

#[test]
fn a_session_is_typed_and_its_output_is_kept() {
    let page = "<!-- run: unlike\nx\n-->\n```console\n$ one \\\n  more\noutput\n$ two\ncat: an error\n```\n";
    let blocks = blocks(page);
    let steps = steps_of(&blocks[0]);
    let commands: Vec<&str> = steps.iter().map(|step| step.command.as_str()).collect();
    assert_eq!(commands, ["x", "one \\\n  more", "if two; then exit 9; fi"]);
    assert_eq!(steps.iter().map(|step| step.line).collect::<Vec<_>>(), [4, 5, 8]);
    assert!(steps.iter().all(|step| step.shown.is_none()), "{steps:?}");
    let compared = session(&blocks[0], true);
    assert_eq!(compared[0].shown, Some(vec!["output".to_owned()]));
    let said = printed(&format!("\n{SIGN}5\noutput\n\n{SIGN}8\n"));
    assert_eq!(said[&5], ["output", ""]);
    assert_eq!(said[&8], Vec::<String>::new());
}
