//! Which numbers make a striping.

use super::*;

/// Says why files cannot be laid out by a hint on a cluster of `servers` I/O servers: EINVAL.
pub fn check(hint: &StripingHint, servers: usize) -> Result<(), Errno> {
    let invalid = |what: String| Errno::because(Errno::EINVAL, what);
    if usize::from(hint.server_count) > servers {
        let count = hint.server_count;
        return Err(invalid(format!("{count} servers asked for, there are {servers}")));
    }
    let slots = server_count(hint, servers);
    check_numbers(hint.kind, hint.strip_bytes, &hint.params.0, slots).map_err(invalid)
}

/// The same where there are fewer servers than the cluster has: a file is laid out on those then.
pub(crate) fn check_fewer(hint: &StripingHint, servers: usize) -> Result<(), Errno> {
    let most = u16::try_from(servers).unwrap_or(u16::MAX);
    let server_count = hint.server_count.min(most);
    check(&StripingHint { server_count, ..hint.clone() }, servers)
}

/// How many of a cluster's servers a file has by a hint.
pub fn server_count(hint: &StripingHint, servers: usize) -> usize {
    match (hint.kind, usize::from(hint.server_count)) {
        (BASIC, _) => 1,
        (VARSTRIP, 0) => {
            let slots = hint.params.0.iter().step_by(2);
            let last = slots.max().map_or(0, |&slot| slot as usize);
            last.saturating_add(1).min(servers)
        }
        (_, 0) => servers,
        (_, count) => count.min(servers),
    }
}

/// Says why a striping of this kind over `slots` servers cannot be.
pub(super) fn check_numbers(
    kind: u8,
    strip: u32,
    params: &[u32],
    slots: usize,
) -> Result<(), String> {
    if slots == 0 {
        return Err("no servers".into());
    }
    match (kind, params) {
        (BASIC, []) => Ok(()),
        (VARSTRIP, params) => check_strips(params, slots),
        (SIMPLE_STRIPE | TWOD_STRIPE | PROGRESSIVE, _) if strip == 0 => {
            Err("strips have no bytes".into())
        }
        (SIMPLE_STRIPE | TWOD_STRIPE | PROGRESSIVE, _) if strip > STRIP_BYTES_MAX => {
            Err(format!("strips of {strip} bytes, limit is {STRIP_BYTES_MAX}"))
        }
        (SIMPLE_STRIPE, []) => Ok(()),
        (TWOD_STRIPE, &[groups, factor]) => check_groups(groups, factor, slots),
        (PROGRESSIVE, &[inline, single]) => check_pieces(inline, single),
        (1..=5, params) => {
            Err(format!("{} does not have {} parameters", kind_name(kind), params.len()))
        }
        _ => Err(format!("distribution {kind} is not known to this version; hint: upgrade covey")),
    }
}

fn check_strips(params: &[u32], slots: usize) -> Result<(), String> {
    let (strips, rest) = params.as_chunks::<2>();
    if strips.is_empty() || !rest.is_empty() {
        return Err("varstrip needs a server and a size for each strip".into());
    }
    if strips.len() > STRIPS_MAX {
        return Err(format!("{} strips in a round, limit is {STRIPS_MAX}", strips.len()));
    }
    for &[slot, bytes] in strips {
        if slot as usize >= slots {
            return Err(format!("a strip on server {slot}, the last of {slots} is {}", slots - 1));
        }
        if bytes == 0 || bytes > STRIP_BYTES_MAX {
            return Err(format!("a strip of {bytes} bytes, must be 1 to {STRIP_BYTES_MAX}"));
        }
    }
    Ok(())
}

fn check_groups(groups: u32, factor: u32, slots: usize) -> Result<(), String> {
    match (groups, factor) {
        (0, _) => Err("no groups of servers".into()),
        (groups, _) if groups as usize > slots => {
            Err(format!("{groups} groups of {slots} servers"))
        }
        (_, 0) => Err("a factor of 0 stripes".into()),
        (_, factor) if factor > FACTOR_MAX => {
            Err(format!("a factor of {factor} stripes, limit is {FACTOR_MAX}"))
        }
        _ => Ok(()),
    }
}

fn check_pieces(inline: u32, single: u32) -> Result<(), String> {
    if inline > INLINE_BYTES_MAX {
        return Err(format!("{inline} bytes with the metadata, limit is {INLINE_BYTES_MAX}"));
    }
    if single < inline || single > SINGLE_BYTES_MAX {
        return Err(format!(
            "one server up to byte {single}, must be {inline} to {SINGLE_BYTES_MAX}"
        ));
    }
    Ok(())
}

/// Stripes over one group before the next one's turn.
const FACTOR_MAX: u32 = 65_536;
