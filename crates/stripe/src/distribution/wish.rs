//! What somebody wants of a layout, and a layout as text.
//!
//! The text is that of the attribute `user.covey.layout`: words `NAME=VALUE` with spaces between, such as
//! `kind=simple_stripe strip=1048576 servers=4`. Sizes are bytes; K, M and G stand for 1024, 1024² and 1024³ of them. What
//! is not said stays as it is.

use super::*;
use std::fmt::Write;
use std::str::FromStr;

/// What of a layout is to change; none of what is to stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The distribution: one of [`KINDS`].
    pub kind: Option<u8>,
    /// Bytes of a strip.
    pub strip: Option<u32>,
    /// How many servers a file has; 0: all.
    pub servers: Option<u16>,
    /// Of progressive: bytes with the metadata.
    pub inline: Option<u32>,
    /// Of progressive: up to which byte a file is on one server.
    pub single: Option<u32>,
    /// Of varstrip: slot, bytes, slot, bytes, ...
    pub strips: Option<Vec<u32>>,
    /// Of twod_stripe: groups of servers.
    pub groups: Option<u32>,
    /// Of twod_stripe: stripes over one group before the next one's turn.
    pub factor: Option<u32>,
}

/// Why a wish makes no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The kind has no such parameter; these have.
    Foreign {
        /// The kind that the layout would have.
        kind: u8,
        /// The parameter.
        parameter: &'static str,
        /// The kinds that have it.
        kinds: &'static [u8],
    },
    /// Varstrip, and nobody has said which strips.
    NoStrips,
}

impl Wish {
    /// The layout after the change. `strip_bytes` is that of layouts which have had none so far, in bytes.
    pub fn of(&self, now: StripingHint, strip_bytes: u32) -> Result<StripingHint, Unfit> {
        let kind = self.kind.unwrap_or(now.kind);
        let is_same = kind == now.kind;
        self.check(kind)?;
        // Numbers of another kind mean nothing; neither does the one server of basic.
        let before = |at: usize, default: u32| {
            now.params.0.get(at).copied().filter(|_| is_same).unwrap_or(default)
        };
        let params = match kind {
            PROGRESSIVE => {
                let inline = self.inline.unwrap_or_else(|| before(0, INLINE_BYTES_DEFAULT));
                let single = before(1, SINGLE_BYTES_DEFAULT).max(inline);
                vec![inline, self.single.unwrap_or(single)]
            }
            TWOD_STRIPE => {
                let factor = self.factor.unwrap_or_else(|| before(1, FACTOR_DEFAULT));
                vec![self.groups.unwrap_or_else(|| before(0, GROUPS_DEFAULT)), factor]
            }
            VARSTRIP => match &self.strips {
                Some(strips) => strips.clone(),
                None if is_same => now.params.0,
                None => return Err(Unfit::NoStrips),
            },
            _ => Vec::new(),
        };
        let strip = if now.strip_bytes == 0 { strip_bytes } else { now.strip_bytes };
        let is_fixed = now.kind == BASIC || (kind == VARSTRIP && self.strips.is_some());
        Ok(StripingHint {
            kind,
            strip_bytes: self.strip.unwrap_or(strip),
            server_count: self.servers.unwrap_or(if is_fixed { 0 } else { now.server_count }),
            params: List(params),
        })
    }

    /// Refuses what the kind has no use for: it would be lost without a word.
    fn check(&self, kind: u8) -> Result<(), Unfit> {
        const STRIPED: &[u8] = &[SIMPLE_STRIPE, TWOD_STRIPE, PROGRESSIVE];
        const MANY: &[u8] = &[SIMPLE_STRIPE, TWOD_STRIPE, PROGRESSIVE, VARSTRIP];
        let rules: [(&'static str, bool, &'static [u8]); 7] = [
            ("strip", self.strip.is_some(), STRIPED),
            ("servers", self.servers.is_some(), MANY),
            ("inline", self.inline.is_some(), &[PROGRESSIVE]),
            ("single", self.single.is_some(), &[PROGRESSIVE]),
            ("strips", self.strips.is_some(), &[VARSTRIP]),
            ("groups", self.groups.is_some(), &[TWOD_STRIPE]),
            ("factor", self.factor.is_some(), &[TWOD_STRIPE]),
        ];
        let foreign = rules.iter().find(|(_, is_given, kinds)| *is_given && !kinds.contains(&kind));
        match foreign {
            Some((parameter, _, kinds)) => Err(Unfit::Foreign { kind, parameter, kinds }),
            None => Ok(()),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "kind" => self.kind = Some(kind_of(value)?),
            "strip" => self.strip = Some(bytes_of(value)?),
            "servers" => self.servers = Some(number(value)?),
            "inline" => self.inline = Some(bytes_of(value)?),
            "single" => self.single = Some(bytes_of(value)?),
            "strips" => self.strips = Some(strips_of(value)?),
            "groups" => self.groups = Some(number(value)?),
            "factor" => self.factor = Some(number(value)?),
            "on" => return Err("`on` says where a file lies; it cannot be set".into()),
            _ => return Err(format!("`{name}` is not known: {NAMES}")),
        }
        Ok(())
    }
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Wish, String> {
        let mut wish = Wish::default();
        for word in text.split_whitespace() {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("`{word}` is not NAME=VALUE: {NAMES}"))?;
            wish.set(name, value)?;
        }
        if wish == Wish::default() {
            return Err(format!("nothing is said: {NAMES}"));
        }
        Ok(wish)
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::Foreign { kind, parameter, .. } => {
                write!(f, "{} has no {parameter}", kind_name(*kind))
            }
            Unfit::NoStrips => f.write_str("varstrip needs its strips"),
        }
    }
}

/// A layout as text: what [`Wish`] reads back.
pub fn text(hint: &StripingHint) -> String {
    let mut text = format!("kind={}", kind_name(hint.kind));
    // A String takes whatever is written to it.
    let _ = match (hint.kind, &hint.params.0[..]) {
        (BASIC, _) => return text,
        (VARSTRIP, strips) => {
            let strips: Vec<String> =
                strips.chunks_exact(2).map(|strip| format!("{}:{}", strip[0], strip[1])).collect();
            write!(text, " servers={} strips={}", hint.server_count, strips.join(","))
        }
        (_, params) => {
            let names: &[&str] = match hint.kind {
                PROGRESSIVE => &["inline", "single"],
                TWOD_STRIPE => &["groups", "factor"],
                _ => &[],
            };
            let _ = write!(text, " strip={} servers={}", hint.strip_bytes, hint.server_count);
            names.iter().zip(params).try_for_each(|(name, value)| write!(text, " {name}={value}"))
        }
    };
    text
}

/// The layout of a file, and on which of the cluster's servers its slots are, counted from 0: `server` names that of a chain.
pub fn text_of_file(striping: &Striping, server: impl Fn(u16) -> u16) -> String {
    let servers = striping.servers.0.iter().map(|&chain| server(chain).to_string());
    let servers: Vec<String> = servers.collect();
    format!("{} on={}", text(&StripingHint::of_file(striping)), servers.join(","))
}

fn kind_of(text: &str) -> Result<u8, String> {
    kind_named(text).ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|(_, name)| *name).collect();
        format!("there is no kind `{text}`: there are {}", names.join(", "))
    })
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number, or too large"))
}

fn bytes_of(text: &str) -> Result<u32, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let count: u32 = number(digits)?;
    count.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is 4 GiB or more"))
}

fn strips_of(text: &str) -> Result<Vec<u32>, String> {
    let strip = |strip: &str| {
        let (slot, bytes) = strip
            .split_once(':')
            .ok_or_else(|| format!("`{strip}` is not SERVER:SIZE, such as `0:64K`"))?;
        Ok([number(slot)?, bytes_of(bytes)?])
    };
    let strips: Result<Vec<[u32; 2]>, String> = text.split(',').map(strip).collect();
    Ok(strips?.concat())
}

const NAMES: &str = "there are kind, strip, servers, inline, single, strips, groups and factor";
const GROUPS_DEFAULT: u32 = 2;
/// PVFS2's.
const FACTOR_DEFAULT: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(kind: u8, server_count: u16, params: &[u32]) -> StripingHint {
        StripingHint { kind, strip_bytes: 65536, server_count, params: List(params.to_vec()) }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let hints = [
            StripingHint::progressive(1 << 20, 0),
            StripingHint::simple_stripe(4096, 3),
            hint(BASIC, 0, &[]),
            hint(TWOD_STRIPE, 4, &[2, 8]),
            hint(VARSTRIP, 2, &[0, 4096, 1, 8192]),
        ];
        for to in &hints {
            for now in &hints {
                let wish: Wish = text(to).parse().unwrap();
                let made = wish.of(now.clone(), 65536).unwrap();
                let strip_bytes = match to.kind {
                    // Neither has strips of one size.
                    BASIC | VARSTRIP => made.strip_bytes,
                    _ => to.strip_bytes,
                };
                let server_count =
                    if to.kind == BASIC { made.server_count } else { to.server_count };
                let to = StripingHint { strip_bytes, server_count, ..to.clone() };
                assert_eq!(made, to, "{} of {}", text(&to), text(now));
            }
        }
        assert_eq!(
            text(&hints[0]),
            "kind=progressive strip=1048576 servers=0 inline=65536 single=4194304"
        );
        assert_eq!(text(&hints[4]), "kind=varstrip servers=2 strips=0:4096,1:8192");
    }

    #[test]
    fn what_is_not_said_stays() {
        let now = hint(PROGRESSIVE, 3, &[0, 1 << 20]);
        let made = |text: &str| text.parse::<Wish>().unwrap().of(now.clone(), 0).unwrap();
        assert_eq!(made("strip=1M"), StripingHint { strip_bytes: 1 << 20, ..now.clone() });
        assert_eq!(made("single=8M servers=2"), hint(PROGRESSIVE, 2, &[0, 8 << 20]));
        assert_eq!(made("kind=simple_stripe"), hint(SIMPLE_STRIPE, 3, &[]));
    }

    #[test]
    fn what_makes_no_layout_is_told() {
        for (text, why) in [
            ("", "nothing is said"),
            ("strip", "`strip` is not NAME=VALUE"),
            ("strips=0", "`0` is not SERVER:SIZE"),
            ("strip=4G", "`4G` is 4 GiB or more"),
            ("strip=-1", "`-1` is not a number"),
            ("strip=K", "`` is not a number"),
            ("servers=70000", "too large"),
            ("kind=raid", "there are simple_stripe"),
            ("color=red", "`color` is not known"),
            ("on=1", "cannot be set"),
        ] {
            let error = text.parse::<Wish>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let wish = |text: &str| text.parse::<Wish>().unwrap().of(hint(BASIC, 0, &[]), 65536);
        assert_eq!(wish("kind=varstrip"), Err(Unfit::NoStrips));
        assert_eq!(wish("strip=1M").unwrap_err().to_string(), "basic has no strip");
    }
}
