//! `covey lab set`: cables changed while the lab runs.

use super::{Which, host};
use crate::cmd::Context;
use crate::error::{Error, Result};
use covey_lab::control::{Ask, ask, status};
use covey_lab::fabric::Setting;
use covey_lab::plan::Plan;
use covey_lab::profile::Profile;
use covey_lab::state::Lab;
use covey_lab::units;
use std::io::Write;

/// Change a cable, or a node, while the lab runs
///
/// A cable: both directions, unless --from names the sending end. `all` is every cable. Either all
/// changes are made, or none.
///
/// KEYS OF A CABLE
///
///     rate 100mbit        bits per second on the wire; `none` is no limit
///     delay 20us          the cable's own delay, in each direction
///     latency 100us       delays that make the one-way time of a small message between two nodes
///                         this long; refused below this machine's own time
///     jitter 5us          up to this much more, at random
///     queue 64KiB         how many bytes may wait for the wire; more are lost
///     mtu 1500            longer packets are lost silently (the cards do not know)
///     overhead 24         bytes on the wire beside a frame's own
///     loss 0.1%           frames lost at random
///     loss-from 1000      `loss` spares packets that are shorter
///     crowd-loss 2%       frames lost while several nodes send over this cable
///     crowd-from 3        how many nodes make a crowd, at least
///     corrupt 0.1%        frames with a wrong bit
///     duplicate 1%        frames delivered twice
///     reorder 1%          frames held back until others have overtaken them
///     police 50mbit       packets above this rate are lost instead of queued; `none`
///     police-burst 32KiB  bytes that may come at once before the policer drops
///     duplex half         only one end sends at a time; `full`
///     state down          the cable is unplugged; `up`
///
/// KEYS OF A NODE
///
///     buffers 4KiB        the largest buffers of TCP there
///     offloads off        its card leaves checksums and segments to the CPU; `on`
///     address 10.24.1.2   one more address of its card, such as another node's
///
/// EXAMPLES
///
///     covey lab set n2-sw1 rate 10mbit
///     covey lab set n2-sw1 loss 3% loss-from 1000 --from n2
///     covey lab set all delay 1ms
///     covey lab set n3 buffers 16KiB
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// A cable by name, as `covey lab status` shows it, or `all`; or a node
    link: String,
    /// What to change
    #[arg(required = true, num_args = 2.., value_names = ["KEY", "VALUE"])]
    pairs: Vec<String>,
    /// Only the frames that this end sends
    #[arg(long, value_name = "NODE")]
    from: Option<String>,
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> Result<()> {
    let lab = args.which.lab()?;
    lab.living_keeper()?;
    let plan = lab.plan()?;
    if plan.node(&args.link).is_some() && args.from.is_none() {
        return set_node(&lab, &args, context);
    }
    let cables = cables(&plan, &args.link)?;
    let from = args.from.as_deref().map(|from| end(&plan, &cables, from)).transpose()?;
    let pairs = pairs(&args.pairs)?;
    let latency = |key: &str| key == "latency";
    if let Some((_, value)) = pairs.iter().find(|(key, _)| latency(key)) {
        let floor_ns = status(&lab)?.floor.map_or(0, |floor| floor.latency_ns);
        for cable in &cables {
            let delay = delay_for(&plan, *cable, value, floor_ns)?;
            let pairs = vec![("delay".to_string(), format!("{delay}ns"))];
            ask(&lab, &Ask::Set { cables: vec![*cable], from, pairs })?;
        }
    }
    let rest: Vec<_> = pairs.iter().filter(|(key, _)| !latency(key)).cloned().collect();
    if !rest.is_empty() {
        ask(&lab, &Ask::Set { cables: cables.clone(), from, pairs: rest })?;
    }
    let names: Vec<&str> = cables.iter().map(|cable| plan.cables[*cable].name.as_str()).collect();
    let value =
        serde_json::json!({ "lab": lab.name, "links": names, "from": args.from, "set": pairs });
    context.output.result(&value, |out| {
        let said: Vec<String> = pairs.iter().map(|(key, value)| format!("{key} {value}")).collect();
        let from = args.from.map(|from| format!(" from {from}")).unwrap_or_default();
        writeln!(out, "{}{from}: {}", names.join(" "), said.join(", "))
    })
}

fn set_node(lab: &Lab, args: &Args, context: &Context) -> Result<()> {
    let pairs = in_pairs(&args.pairs)?;
    host::set(lab, &args.link, &pairs)?;
    let value = serde_json::json!({ "lab": lab.name, "node": args.link, "set": pairs });
    context.output.result(&value, |out| {
        let said: Vec<String> = pairs.iter().map(|(key, value)| format!("{key} {value}")).collect();
        writeln!(out, "{}: {}", args.link, said.join(", "))
    })
}

fn cables(plan: &Plan, link: &str) -> Result<Vec<usize>> {
    if link == "all" {
        return Ok((0..plan.cables.len()).collect());
    }
    let found = plan.cables.iter().position(|cable| cable.name == link);
    found.map(|cable| vec![cable]).ok_or_else(|| {
        let known: Vec<&str> = plan.cables.iter().map(|cable| cable.name.as_str()).collect();
        Error::user(format!("cannot find the link {link}"))
            .hint(format!("the links are {}, and `all`", known.join(", ")))
            .hint(format!("a node can be set as well: {}", plan.nodes.join(", ")))
    })
}

/// Which end of all these cables is called so.
fn end(plan: &Plan, cables: &[usize], from: &str) -> Result<usize> {
    let ends = |cable: &usize| plan.cables[*cable].ends.map(|end| plan.end_name(end).to_string());
    let mut found = cables.iter().map(|cable| ends(cable).iter().position(|end| end == from));
    match (cables, found.next().flatten()) {
        ([_], Some(end)) => Ok(end),
        ([cable], None) => Err(Error::user(format!(
            "cannot set what {from} sends: {} joins {}",
            plan.cables[*cable].name,
            ends(cable).join(" and ")
        ))
        .hint("--from takes one of these")),
        _ => Err(Error::user("cannot set one way of several links at once")
            .hint("name the links one after another")),
    }
}

fn pairs(words: &[String]) -> Result<Vec<(String, String)>> {
    let pairs = in_pairs(words)?;
    pairs.iter().try_for_each(|(key, value)| check(key, value))?;
    Ok(pairs)
}

fn in_pairs(words: &[String]) -> Result<Vec<(String, String)>> {
    let pair = |pair: &[String]| match pair {
        [key, value] => Ok((key.clone(), value.clone())),
        _ => Err(Error::user(format!("cannot set {}: its value is missing", pair[0]))
            .hint("write keys and values in turn, such as `rate 10mbit loss 1%`")),
    };
    words.chunks(2).map(pair).collect()
}

/// Wrong words are found before anything is changed.
fn check(key: &str, value: &str) -> Result<()> {
    let wrong = |why: String| Error::user(format!("cannot set {key}: {why}"));
    if key == "latency" {
        return units::parse_time_ns(value).map(|_| ()).map_err(wrong);
    }
    let Some(setting) = Setting::named(key) else {
        let known: Vec<&str> = Setting::ALL.iter().map(|setting| setting.key).collect();
        return Err(Error::user(format!("cannot set {key}: there is no such key"))
            .hint(format!("the keys are latency, {}", known.join(", "))));
    };
    let mut scratch = Profile::named("loopback").map_err(wrong)?.settings(0);
    setting.apply(value, &mut scratch).map_err(|why| {
        Error::user(format!("cannot set {key}: {why}"))
            .hint(format!("{key} is {}: {}", setting.what, setting.form))
    })
}

/// The delay of one cable for so much latency from node to node.
fn delay_for(plan: &Plan, cable: usize, value: &str, floor_ns: u64) -> Result<u64> {
    let cable = &plan.cables[cable];
    let latency_ns = units::parse_time_ns(value).map_err(Error::user)?;
    let wish = Profile { latency_ns, ..plan.networks[cable.network].profile.clone() };
    match wish.end_delay_ns(floor_ns) {
        (end_ns, true) => Ok(cable.cards() * end_ns),
        (_, false) => Err(Error::user(format!(
            "cannot give {} a latency of {}: this machine alone takes {}",
            cable.name,
            units::time_text(latency_ns),
            units::time_text(floor_ns)
        ))
        .hint("`delay 0` is the least there is")),
    }
}
