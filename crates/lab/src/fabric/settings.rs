//! What can be set on one way of a cable, and how people write it.

use super::FRAME_BYTES_MIN;
use crate::units;
use serde::{Deserialize, Serialize};

/// One way of a cable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Bits per second on the wire; `None` is as fast as the machine.
    pub bits_per_s: Option<u64>,
    /// From a frame's last bit leaving to its arriving.
    pub delay_ns: u64,
    /// Up to so much is added to it by chance.
    pub jitter_ns: u64,
    /// How many bytes may wait for the wire; more are lost.
    pub queue_bytes: u64,
    /// The longest packet that passes; longer ones are lost without a word.
    pub mtu: u32,
    /// What a frame takes on the wire beyond its own bytes: preamble, check sequence, gap.
    pub overhead_bytes: u32,
    /// The wire's own unit: the overhead is paid once for each that begins. 0: once for a frame.
    pub segment_bytes: u32,
    /// Frames lost, in a million.
    pub loss_ppm: u32,
    /// Shorter packets than this are not lost so.
    pub loss_from_bytes: u32,
    /// Frames lost while several senders use the wire, in a million.
    pub crowd_loss_ppm: u32,
    /// How many senders are several.
    pub crowd_from: u32,
    /// Frames with a wrong bit, in a million.
    pub corrupt_ppm: u32,
    /// Frames delivered twice, in a million.
    pub duplicate_ppm: u32,
    /// Frames held back until others have overtaken them, in a million.
    pub reorder_ppm: u32,
    /// What exceeds this rate is lost rather than made to wait.
    pub police_bits_per_s: Option<u64>,
    /// How much may come at once before the policer strikes.
    pub police_burst_bytes: u64,
    /// Only one end speaks at a time.
    pub half_duplex: bool,
    /// The cable is unplugged.
    pub is_down: bool,
}

impl Settings {
    /// A frame's bytes on the wire.
    pub fn wire_bytes(&self, frame_bytes: usize) -> u64 {
        let bytes = frame_bytes.max(FRAME_BYTES_MIN) as u64;
        let segments = match self.segment_bytes {
            0 => 1,
            segment => bytes.div_ceil(u64::from(segment)),
        };
        bytes + segments * u64::from(self.overhead_bytes)
    }

    /// How long this many bytes take.
    pub fn time_on_wire_ns(&self, wire_bytes: u64) -> u64 {
        let Some(rate) = self.bits_per_s else { return 0 };
        let ns = u128::from(wire_bytes) * 8_000_000_000 / u128::from(rate.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// One thing that `covey lab set` changes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub key: &'static str,
    /// What a value looks like.
    pub form: &'static str,
    /// What it does.
    pub what: &'static str,
    read: fn(&str, &mut Settings) -> Result<(), String>,
}

impl Setting {
    /// All of them, in the order of the manual.
    pub const ALL: &'static [Setting] = &[
        Setting {
            key: "rate",
            form: "100mbit, none",
            what: "bits per second on the wire",
            read: rate,
        },
        Setting { key: "delay", form: "20us", what: "added by the cable, each way", read: delay },
        Setting { key: "jitter", form: "5us", what: "up to so much more, by chance", read: jitter },
        Setting {
            key: "queue",
            form: "64KiB",
            what: "bytes that may wait for the wire",
            read: queue,
        },
        Setting {
            key: "mtu",
            form: "1500",
            what: "longer packets are lost without a word",
            read: mtu,
        },
        Setting {
            key: "overhead",
            form: "24",
            what: "bytes on the wire beside a frame's own",
            read: overhead,
        },
        Setting { key: "loss", form: "0.1%", what: "frames lost by chance", read: loss },
        Setting {
            key: "loss-from",
            form: "1000",
            what: "`loss` spares shorter packets",
            read: loss_from,
        },
        Setting {
            key: "crowd-loss",
            form: "2%",
            what: "frames lost while several nodes send",
            read: crowd_loss,
        },
        Setting {
            key: "crowd-from",
            form: "3",
            what: "how many nodes make a crowd for `crowd-loss`",
            read: crowd_from,
        },
        Setting { key: "corrupt", form: "0.1%", what: "frames with a wrong bit", read: corrupt },
        Setting { key: "duplicate", form: "1%", what: "frames delivered twice", read: duplicate },
        Setting {
            key: "reorder",
            form: "1%",
            what: "frames held back and overtaken",
            read: reorder,
        },
        Setting {
            key: "police",
            form: "50mbit, none",
            what: "what exceeds it is lost",
            read: police,
        },
        Setting {
            key: "police-burst",
            form: "32KiB",
            what: "what may come at once",
            read: police_burst,
        },
        Setting {
            key: "duplex",
            form: "full, half",
            what: "whether both ends may speak at once",
            read: duplex,
        },
        Setting {
            key: "state",
            form: "up, down",
            what: "whether the cable is plugged in",
            read: state,
        },
    ];

    /// The setting of that name.
    pub fn named(key: &str) -> Option<&'static Setting> {
        Setting::ALL.iter().find(|setting| setting.key == key)
    }

    /// Changes it to what `value` says.
    pub fn apply(&self, value: &str, settings: &mut Settings) -> Result<(), String> {
        (self.read)(value, settings)
    }
}

fn rate(value: &str, to: &mut Settings) -> Result<(), String> {
    to.bits_per_s = units::parse_rate(value)?;
    Ok(())
}

fn delay(value: &str, to: &mut Settings) -> Result<(), String> {
    to.delay_ns = units::parse_time_ns(value)?;
    Ok(())
}

fn jitter(value: &str, to: &mut Settings) -> Result<(), String> {
    to.jitter_ns = units::parse_time_ns(value)?;
    Ok(())
}

fn queue(value: &str, to: &mut Settings) -> Result<(), String> {
    to.queue_bytes = crate::config::size::parse(value)?;
    Ok(())
}

fn mtu(value: &str, to: &mut Settings) -> Result<(), String> {
    to.mtu = units::parse_between(value, 68, covey_io::os::tap::MTU_MAX)?;
    Ok(())
}

fn overhead(value: &str, to: &mut Settings) -> Result<(), String> {
    to.overhead_bytes = units::parse_between(value, 0, 1000)?;
    Ok(())
}

fn loss(value: &str, to: &mut Settings) -> Result<(), String> {
    to.loss_ppm = units::parse_ppm(value)?;
    Ok(())
}

fn loss_from(value: &str, to: &mut Settings) -> Result<(), String> {
    to.loss_from_bytes = units::parse_between(value, 0, covey_io::os::tap::MTU_MAX)?;
    Ok(())
}

fn crowd_loss(value: &str, to: &mut Settings) -> Result<(), String> {
    to.crowd_loss_ppm = units::parse_ppm(value)?;
    Ok(())
}

fn crowd_from(value: &str, to: &mut Settings) -> Result<(), String> {
    to.crowd_from = units::parse_between(value, 2, super::lane::CROWD_MAX as u32)?;
    Ok(())
}

fn corrupt(value: &str, to: &mut Settings) -> Result<(), String> {
    to.corrupt_ppm = units::parse_ppm(value)?;
    Ok(())
}

fn duplicate(value: &str, to: &mut Settings) -> Result<(), String> {
    to.duplicate_ppm = units::parse_ppm(value)?;
    Ok(())
}

fn reorder(value: &str, to: &mut Settings) -> Result<(), String> {
    to.reorder_ppm = units::parse_ppm(value)?;
    Ok(())
}

fn police(value: &str, to: &mut Settings) -> Result<(), String> {
    to.police_bits_per_s = units::parse_rate(value)?;
    Ok(())
}

fn police_burst(value: &str, to: &mut Settings) -> Result<(), String> {
    to.police_burst_bytes = crate::config::size::parse(value)?;
    Ok(())
}

fn duplex(value: &str, to: &mut Settings) -> Result<(), String> {
    to.half_duplex = one_of(value, "half", "full")?;
    Ok(())
}

fn state(value: &str, to: &mut Settings) -> Result<(), String> {
    to.is_down = one_of(value, "down", "up")?;
    Ok(())
}

fn one_of(value: &str, yes: &str, no: &str) -> Result<bool, String> {
    match value {
        _ if value == yes => Ok(true),
        _ if value == no => Ok(false),
        _ => Err(format!("`{value}` is neither `{no}` nor `{yes}`")),
    }
}
