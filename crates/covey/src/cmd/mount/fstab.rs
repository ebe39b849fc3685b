//! The program as `/sbin/mount.covey`, which mount(8) runs for lines of /etc/fstab with the type `covey`.
//!
//! ```text
//! mount.covey SOURCE DIR [-sfnv] [-o OPTION,...] [-t TYPE]        mount(8), "EXTERNAL HELPERS"
//! ```

use std::ffi::{OsStr, OsString};

/// The name by which mount(8) finds it.
pub const NAME: &str = "mount.covey";

/// What the kernel or mount(8) does by itself, or what is so in any case: a mount is always `nosuid` and `nodev`. Those that begin with `x-` and `_` are
/// comments to mount(8), to systemd, and to us.
const WITHOUT_EFFECT: &[&str] = &[
    "defaults",
    "rw",
    "auto",
    "noauto",
    "nofail",
    "nouser",
    "owner",
    "group",
    "nodev",
    "nosuid",
    "exec",
    "async",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
];

/// What users may want in vain: a mount of files that other machines serve gives nobody the rights of another.
const IN_VAIN: &[&str] = &["suid", "dev"];

/// A sentence for each option that asks for something and changes nothing.
pub fn in_vain(args: &[OsString]) -> Vec<String> {
    let options = args.windows(2).filter(|pair| pair[0] == "-o");
    let words = options.flat_map(|pair| pair[1].to_str().unwrap_or("").split(','));
    let words = words.filter(|word| IN_VAIN.contains(word));
    words
        .map(|word| format!("the option {word} changes nothing: a mount is always no{word}"))
        .collect()
}

/// The arguments of `covey` that mean the same as those of `mount.covey`.
///
/// # Errors
///
/// What is wrong with them, in words.
pub fn translate(args: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let (mut places, mut options, mut is_fake, mut is_verbose) = (vec![], vec![], false, false);
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-o") => options.push(args.next().ok_or("-o has no options after it")?),
            Some("-t" | "-N") => drop(args.next()),
            Some(flags) if is_flags(flags) => {
                is_fake |= flags.contains('f');
                is_verbose |= flags.contains('v');
            }
            _ => places.push(arg),
        }
    }
    let [source, dir]: [OsString; 2] = places.try_into().map_err(|places: Vec<_>| {
        format!("it takes a source and a directory, and got {} words", places.len())
    })?;
    let mut translated = Vec::new();
    if is_verbose {
        translated.push("--verbose".into());
    }
    // The cluster that a command would find by itself has no file to name.
    if !["covey", "none"].map(OsStr::new).contains(&source.as_os_str()) {
        translated.extend(["--config".into(), source]);
    }
    // `mount -f` only looks whether all is well.
    if is_fake {
        translated.extend(["config".into(), "check".into()]);
        return Ok(translated);
    }
    translated.extend(["mount".into(), dir, "--unless-mounted".into()]);
    let mut is_private = false;
    for option in options.iter().flat_map(|list| list.to_str().unwrap_or("?").split(',')) {
        match option.split_once('=').unwrap_or((option, "")) {
            ("ro", "") => translated.push("--read-only".into()),
            ("noexec", "") => translated.push("--no-exec".into()),
            ("hard", "") => translated.push("--hard".into()),
            ("private", "") => is_private = true,
            ("allow_other" | "", "") => {}
            ("consistency" | "threads", value) if !value.is_empty() => {
                translated.push(format!("--{option}").into())
            }
            (word, _) if word.starts_with("x-") || word.starts_with('_') => {}
            (word, _) if WITHOUT_EFFECT.contains(&word) || IN_VAIN.contains(&word) => {}
            _ => {
                return Err(format!(
                    "the option {option:?} is not supported; hint: the options are ro, noexec, hard, \
                     private, consistency=MODE and threads=N"
                ));
            }
        }
    }
    // Who writes a mount into fstab means it for all users.
    if !is_private {
        translated.push("--allow-other".into());
    }
    Ok(translated)
}

fn is_flags(word: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| "sfnv".contains(flag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, String> {
        let words = translate(line.split(' ').map(OsString::from))?;
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Ok(words.join(" "))
    }

    #[test]
    fn lines_of_fstab_become_commands() {
        for (line, command) in [
            ("covey /mnt", "mount /mnt --unless-mounted --allow-other"),
            (
                "covey /mnt -o rw,_netdev,x-systemd.automount,nofail,suid,nodev",
                "mount /mnt --unless-mounted --allow-other",
            ),
            ("covey /mnt -o noexec", "mount /mnt --unless-mounted --no-exec --allow-other"),
            (
                "/etc/covey/covey.toml /m -n -o ro,hard,private",
                "--config /etc/covey/covey.toml mount /m --unless-mounted --read-only --hard",
            ),
            (
                "covey /m -sv -o consistency=close-to-open,threads=2 -t covey",
                "--verbose mount /m --unless-mounted --consistency=close-to-open --threads=2 --allow-other",
            ),
            ("./c.toml /m -f", "--config ./c.toml config check"),
        ] {
            assert_eq!(translated(line).as_deref(), Ok(command), "{line}");
        }
    }

    #[test]
    fn what_is_asked_for_in_vain_is_said() {
        let said = |line: &str| in_vain(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(said("covey /mnt -o rw,nosuid,nodev").is_empty());
        let told = said("covey /mnt -o rw,suid,hard -v -o dev");
        assert!(told[0].contains("suid") && told[0].contains("nosuid"), "{told:?}");
        assert!(told[1].contains("dev") && told.len() == 2, "{told:?}");
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (line, word) in [
            ("covey /m -o sync=yes", "sync=yes"),
            ("covey /m -o ro,quota", "quota"),
            ("covey /m -o threads", "threads"),
            ("covey /m more", "3 words"),
            ("covey", "1 words"),
            ("covey /m -o", "-o"),
        ] {
            let refused = translated(line).unwrap_err();
            assert!(refused.contains(word), "{line}: {refused}");
        }
    }
}
