//! `covey lab up`: a lab, made.

use super::{Which, status};
use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use covey_io::os::namespaces;
use covey_io::os::process::Process;
use covey_io::os::tap;
use covey_lab::control::{Ask, ask};
use covey_lab::down::take_down;
use covey_lab::enter;
use covey_lab::fabric::Deal;
use covey_lab::floor::{self, Floor};
use covey_lab::plan::{Plan, Topology, Wish};
use covey_lab::profile::{self, Profile};
use covey_lab::state::Lab;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the keeper may take to make its nodes.
const START_WAIT: Duration = Duration::from_secs(30);

/// Make a lab of N nodes, n1 to nN
///
/// PROFILES
///
///     fast-ethernet   100 Mbit/s, 57 us, mtu 1500
///     gigabit         1 Gbit/s, 40 us, mtu 1500
///     myrinet2000     2 Gbit/s, 25 us, mtu 9000
///     infiniband-sdr  8 Gbit/s, 20 us, mtu 65520
///     10gbe           10 Gbit/s, 20 us, mtu 9000
///     loopback        no rate, no delay, mtu 65520
///
/// The latency is that of one byte over TCP between two programs on one cable. A part of it is the
/// time that this machine needs, which is measured now; the cables add the rest. If the machine
/// needs more than the profile's latency, that is reported, and its own time is the latency.
///
/// EXAMPLES
///
///     covey lab up 4
///     covey lab up 2 --link fast-ethernet --topology direct
///     covey lab up 5 --link fast-ethernet --storage-link gigabit
///     covey lab up 2 --topology bonded --deal turn
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Number of nodes, 1 to 250
    #[arg(value_name = "N")]
    nodes: u16,
    /// Profile of the network
    #[arg(long, value_name = "PROFILE", default_value = "gigabit", value_parser = Profile::named)]
    link: Profile,
    /// Give every node a second card, on a separate network for storage
    #[arg(long, value_name = "PROFILE", value_parser = Profile::named)]
    storage_link: Option<Profile>,
    /// How the nodes are connected
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Topology::Switch)]
    topology: Topology,
    /// How a bonded pair of cables shares its frames: by flow, or in turn
    #[arg(long, value_name = "HOW", value_parser = parse_deal, default_value = "flow")]
    deal: Deal,
    /// Decides which frames are lost where loss is set
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

fn parse_deal(text: &str) -> std::result::Result<Deal, String> {
    match text {
        "flow" => Ok(Deal::Flow),
        "turn" => Ok(Deal::Turn),
        _ => Err("it is `flow` or `turn`".to_string()),
    }
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let lab = args.which.lab()?;
    if Lab::around().is_some() {
        return Err(Error::user("cannot make a lab inside a lab").hint("leave this one first"));
    }
    let wish = Wish {
        nodes: args.nodes,
        topology: args.topology,
        deal: args.deal,
        link: args.link,
        storage_link: args.storage_link,
        seed: args.seed,
    };
    let plan =
        Plan::new(&wish).map_err(|why| Error::user(format!("cannot make this lab: {why}")))?;
    if lab.keeper().is_some() {
        return Err(Error::user(format!("cannot make lab {}: it is up already", lab.name))
            .hint(format!("`{}` takes it away; --name NAME makes another", lab.command("down"))));
    }
    may_we()?;
    // What a dead keeper has left.
    take_down(&lab).await?;
    lab.make_dir()?;
    let made = make(&lab, &plan).await;
    if made.is_err() {
        let _ = take_down(&lab).await;
    }
    let floor = made?;
    tell(&lab, &plan, floor, context)
}

/// Whether this can work at all, told before anything is made.
fn may_we() -> Result<()> {
    tap::open_device().cannot(|| format!("make network cards: open {}", tap::DEVICE)).map_err(
        |error| {
            error
                .hint("most systems permit it to all users: `chmod 666 /dev/net/tun` as root")
                .hint("where it is missing, the kernel needs the module `tun`")
        },
    )?;
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    namespaces::user_namespace_permitted().cannot(|| "make a user namespace").map_err(|error| {
        error
            .hint("run as root, or let root permit it:")
            .hint("`sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1`")
            .hint("or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`")
    })
}

/// Starts the keeper, waits for it, and measures. Answers the floor.
async fn make(lab: &Lab, plan: &Plan) -> Result<Option<Floor>> {
    let write = |name: &str, text: String| {
        let file = lab.file(name);
        std::fs::write(&file, text).cannot(|| format!("write {}", file.display()))
    };
    write("plan.json", serde_json::to_string_pretty(plan)?)?;
    write("hosts", plan.hosts())?;
    start_keeper(lab)?;
    wait_for_keeper(lab).await?;
    measure_floor(lab, plan)
}

fn start_keeper(lab: &Lab) -> Result<()> {
    let what = || "start the keeper";
    let log = File::create(lab.file("keeper.log")).cannot(what)?;
    let mut command = Command::new(enter::ourselves());
    command.args(["lab", "keep"]).arg(&lab.dir).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    namespaces::isolate(&mut command, !rustix::process::geteuid().is_root());
    let mut child = command
        .spawn()
        .cannot(|| "make namespaces")
        .map_err(|error| error.hint("run as root, or where user namespaces are permitted"))?;
    // One line only: the keeper itself has the same output open for ever.
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        use std::io::BufRead;
        std::io::BufReader::new(out).read_line(&mut line).cannot(what)?;
    }
    let _ = child.wait();
    let process = line.trim().parse().ok().and_then(Process::now);
    match process {
        Some(process) => {
            let file = lab.file("keeper.pid");
            process.write(&file).cannot(|| format!("write {}", file.display()))
        }
        None => Err(did_not_start(lab)),
    }
}

fn did_not_start(lab: &Lab) -> Error {
    let log = std::fs::read_to_string(lab.file("keeper.log")).unwrap_or_default();
    let mut lines = log.lines().map(|line| line.trim_start_matches("covey: "));
    let why = lines.next().unwrap_or("its keeper ended without a word");
    let mut error = Error::work(format!("cannot make lab {}: {why}", lab.name));
    for line in lines {
        error = error.hint(line.trim_start_matches("hint: "));
    }
    error
}

async fn wait_for_keeper(lab: &Lab) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < START_WAIT {
        // It listens early, but answers only when the nodes are there.
        if UnixStream::connect(lab.file("control.sock")).is_ok() && ask(lab, &Ask::Status).is_ok() {
            return Ok(());
        }
        if lab.keeper().is_none() {
            return Err(did_not_start(lab));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(Error::work(format!(
        "cannot make lab {}: its keeper does not answer after {} s",
        lab.name,
        START_WAIT.as_secs()
    )))
}

/// What two nodes reach while their cables have neither rate nor delay; then the cables get both.
fn measure_floor(lab: &Lab, plan: &Plan) -> Result<Option<Floor>> {
    if plan.nodes.len() < 2 {
        return Ok(None);
    }
    let all: Vec<usize> = (0..plan.cables.len()).collect();
    let rate = |value: &str| Ask::Set {
        cables: all.clone(),
        from: None,
        pairs: vec![("rate".to_string(), value.to_string())],
    };
    ask(lab, &rate("none"))?;
    let mut server = floor_on(lab, &plan.nodes[1], None).spawn().cannot(|| "measure latency")?;
    let peer = std::net::SocketAddr::from((plan.cards[1].address, floor::PORT));
    let asked = floor_on(lab, &plan.nodes[0], Some(peer)).stdout(Stdio::piped()).output();
    enter::end(&mut server);
    let output = asked.cannot(|| "measure latency")?;
    let floor: Floor = serde_json::from_slice(&output.stdout).map_err(|_| {
        let why = String::from_utf8_lossy(&output.stderr);
        Error::work(format!("cannot measure what this machine does alone: {}", why.trim()))
    })?;
    for (index, cable) in plan.cables.iter().enumerate() {
        let rate = match plan.networks[cable.network].profile.bits_per_s {
            Some(bits) => bits.to_string(),
            None => "none".to_string(),
        };
        let pairs = vec![("rate".to_string(), rate)];
        ask(lab, &Ask::Set { cables: vec![index], from: None, pairs })?;
    }
    ask(lab, &Ask::Floor(floor))?;
    Ok(Some(floor))
}

/// Answers, or measures against a peer that does.
fn floor_on(lab: &Lab, node: &str, peer: Option<std::net::SocketAddr>) -> Command {
    let mut command = enter::ourselves_on(lab, node);
    command.args(["lab", "floor"]).args(peer.map(|peer| peer.to_string()));
    command.stderr(Stdio::piped());
    command
}

fn tell(lab: &Lab, plan: &Plan, floor: Option<Floor>, context: &Context) -> Result<()> {
    let value = serde_json::json!({
        "lab": lab.name, "dir": lab.dir, "plan": plan, "floor": floor,
        "profiles": profile::names(),
    });
    context.output.result(&value, |out| {
        status::nodes(out, lab, plan, &super::host::Set::new())?;
        writeln!(out)?;
        for network in &plan.networks {
            let profile = &network.profile;
            let tcp = profile
                .tcp_bits_per_s()
                .map(|bits| format!("; a long TCP transfer can reach {:.1} Mbit/s", bits / 1e6));
            writeln!(
                out,
                "{}: {}, {}{}",
                network.name,
                profile.name,
                profile.summary(),
                tcp.unwrap_or_default()
            )?;
            status::machine_lines(out, profile, floor)?;
        }
        let name = if lab.name == covey_lab::state::NAME_DEFAULT {
            String::new()
        } else {
            format!("--name {} ", lab.name)
        };
        writeln!(out, "\ntry:\n  covey lab exec {name}n1 -- ping -c 3 n{}", plan.nodes.len())?;
        writeln!(out, "  covey lab exec {name}n1 -- covey up")?;
        writeln!(out, "  covey lab down {}", name.trim_end())
    })
}
