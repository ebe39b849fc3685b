//! The commands of `/net/ctl`.

use super::Net;
use covey_cluster::pace::WINDOW_BYTES_MIN;
use covey_ninep::client::WINDOW_BYTES;
use covey_ninep::control::{Commands, refuse};
use covey_ninep::tree::{Outcome, Result, User};
use std::rc::Rc;

/// What can be told to a node about its network.
pub struct NetCommands(pub Rc<Net>);

impl Commands for NetCommands {
    fn text(&self) -> String {
        let set = self.0.set.borrow();
        let rates: String =
            set.rates.iter().map(|(name, rate)| format!("rate {name} {rate}\n")).collect();
        let ports: Vec<String> = self.0.bulk_ports().iter().map(u16::to_string).collect();
        format!(
            "{}\nmargin {}\nleast {}\n{rates}bulk {}\nwindow {}\ndscp {}\n{HELP}",
            if set.on { "on" } else { "off" },
            percent(set.law.margin),
            percent(set.law.least),
            ports.join(" "),
            set.window.map_or_else(|| "auto".to_owned(), |bytes| bytes.to_string()),
            set.dscp
        )
    }

    fn run(&self, _: &User, words: &[&str]) -> Outcome<()> {
        self.0.command(words).into()
    }

    fn allows(&self, user: &User) -> bool {
        crate::tree::is_owner(user)
    }
}

impl Net {
    fn command(&self, words: &[&str]) -> Result<()> {
        let mut set = self.set.borrow_mut();
        match words {
            ["on"] if !self.config.pacing.is_on => refuse(NOT_CONFIGURED),
            ["on"] => {
                set.on = true;
                Ok(())
            }
            ["off"] => {
                set.on = false;
                Ok(())
            }
            ["margin", text] => part("margin", text, 1, 50).map(|part| {
                (set.law.margin, set.has_margin) = (part, true);
            }),
            ["least", text] => part("least", text, 1, 90).map(|part| set.law.least = part),
            ["rate", name, "auto"] => {
                set.rates.remove(*name);
                Ok(())
            }
            ["rate", name, text] => match text.parse() {
                Ok(rate @ 1_000_000..=1_000_000_000_000) => {
                    set.rates.insert((*name).to_owned(), rate);
                    Ok(())
                }
                _ => refuse(format!("rate {text:?}: bits a second, 1000000 to 1000000000000")),
            },
            ["bulk", text] => match text.parse() {
                Ok(port @ 1..) => {
                    set.ports.insert(port);
                    Ok(())
                }
                _ => refuse(format!("bulk {text:?}: a TCP port is 1 to 65535")),
            },
            ["window", "auto"] => {
                set.window = None;
                self.spread(&set);
                Ok(())
            }
            ["window", text] => match text.parse() {
                Ok(bytes @ WINDOW_BYTES_MIN..=WINDOW_BYTES) => {
                    set.window = Some(bytes);
                    self.spread(&set);
                    Ok(())
                }
                _ => refuse(format!(
                    "window {text:?}: bytes, {WINDOW_BYTES_MIN} to {WINDOW_BYTES}, or auto"
                )),
            },
            ["dscp", text] => match text.parse() {
                Ok(mark @ 0..64) => {
                    set.dscp = mark;
                    self.spread(&set);
                    Ok(())
                }
                _ => refuse(format!("dscp {text:?}: 0 to 63")),
            },
            [command, ..] => refuse(format!(
                "there is no command {command:?} with {} words after it; hint: read the file",
                words.len() - 1
            )),
            [] => Ok(()),
        }
    }
}

fn percent(part: f64) -> f64 {
    (part * 1000.0).round() / 10.0
}

fn part(name: &str, text: &str, low: u32, high: u32) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(percent) if (f64::from(low)..=f64::from(high)).contains(&percent) => Ok(percent / 100.0),
        _ => refuse(format!("{name} {text:?}: percent, {low} to {high}")),
    }
}

const NOT_CONFIGURED: &str = "clients of this cluster do not ask for rates; hint: write `pacing = true` below \
                              [cluster] in covey.toml on every node, and start servers and mounts anew";
/// The commands there are.
const HELP: &str = "\
# on|off: bulk yields to messages
# margin PERCENT: what bulk does not get of what messages leave
# least PERCENT: what bulk gets whatever messages take
# rate INTERFACE BITS_PER_S|auto: the link's rate, where its driver does not know it
# window BYTES|auto: what may be on its way on each connection of a client, and what R2Ts ask each initiator for
# dscp NUMBER: the mark of packets of bulk, for switches that look at it; 0 is none
# bulk PORT: connections of this TCP port are bulk, too
";
