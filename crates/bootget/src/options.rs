//! The command line. By hand: what would read it is larger than the rest of the program.

use covey_io::os::net::Address;
use covey_launch::image::{Digest, Want, parse_hex, token};
use std::path::PathBuf;
use std::time::Duration;

/// What was asked for.
#[derive(Debug)]
pub struct Options {
    pub image: String,
    /// None for this machine's, or any.
    pub arch: Option<String>,
    pub output: PathBuf,
    pub from: Address,
    pub token: Option<[u8; 32]>,
    pub sha256: Option<Digest>,
    pub serve: Option<Duration>,
    /// Not at all, if there is nothing to serve it with.
    pub port: Option<u16>,
    pub patience: Duration,
    pub quiet: bool,
}

/// What the command line comes to.
#[derive(Debug)]
pub enum Parsed {
    Run(Box<Options>),
    /// Help, or the version.
    Say(String),
}

impl Options {
    pub fn want(&self) -> Want {
        let archs = match &self.arch {
            Some(arch) => vec![arch.as_str().into()],
            None => vec![std::env::consts::ARCH.into(), "any".into()],
        };
        Want {
            image: self.image.as_str().into(),
            archs,
            sha256: self.sha256,
            serve: self.serve,
            patience: self.patience,
        }
    }
}

/// Reads the command line, without the program's name.
pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Parsed, String> {
    let mut arguments = arguments;
    let (mut image, mut output, mut from) = (None, None, std::env::var(FROM).ok());
    let (mut key, mut sha256, mut serve) = (None, None, None);
    let (mut port, mut patience, mut quiet) = (Some(0), Duration::from_secs(300), false);
    while let Some(argument) = arguments.next() {
        let (name, mut inline) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        let mut value = || {
            inline
                .take()
                .or_else(|| arguments.next())
                .ok_or_else(|| format!("{name} wants a value"))
        };
        match name {
            "-h" | "--help" => return Ok(Parsed::Say(HELP.to_owned())),
            "-V" | "--version" => {
                let version = env!("CARGO_PKG_VERSION");
                return Ok(Parsed::Say(format!("covey-bootget {version}\n")));
            }
            "-o" | "--output" => output = Some(PathBuf::from(value()?)),
            "--from" => from = Some(value()?),
            "--token" => key = Some(read_key(&value()?)?),
            "--key" => key = Some(token(&read_key(&value()?)?)),
            "--sha256" => {
                sha256 = Some(parse_hex(&value()?).ok_or("--sha256 wants 64 hexadecimal digits")?);
            }
            "--serve" => serve = Some(seconds(name, &value()?)?),
            "--patience" => patience = seconds(name, &value()?)?,
            "--port" => {
                let text = value()?;
                let number = text.parse().map_err(|_| format!("--port {text:?} is no port"))?;
                port = Some(number);
            }
            "--no-serve" => port = None,
            "-q" | "--quiet" => quiet = true,
            _ if name.starts_with('-') => return Err(format!("there is no option {name}")),
            _ if image.is_none() => image = Some(argument),
            _ => return Err(format!("{argument:?} follows the image")),
        }
    }
    let image = image.ok_or("an image is wanted")?;
    let (image, arch) = match image.split_once('/') {
        Some((image, arch)) => (image.to_owned(), Some(arch.to_owned())),
        None => (image, None),
    };
    let from =
        from.ok_or_else(|| format!("--from ADDR is wanted, or {FROM} in the environment"))?;
    let from: Address = from
        .parse()
        .map_err(|error: covey_io::os::net::AddressError| format!("{error}; {}", error.hint()))?;
    let output = output.ok_or("-o FILE is wanted")?;
    Ok(Parsed::Run(Box::new(Options {
        image,
        arch,
        output,
        from,
        token: key,
        sha256,
        serve,
        port,
        patience,
        quiet,
    })))
}

fn seconds(name: &str, text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= 86400u64);
    let seconds =
        seconds.ok_or_else(|| format!("{name} {text:?} is no number of seconds up to 86400"))?;
    Ok(Duration::from_secs(seconds))
}

/// A file that holds a key, or the key itself: an initramfs has it from the kernel's command line.
fn read_key(text: &str) -> Result<[u8; 32], String> {
    if let Some(key) = parse_hex(text) {
        return Ok(key);
    }
    let read = std::fs::read_to_string(text);
    let read = read.map_err(|error| format!("cannot read the key {text}: {error}"))?;
    parse_hex(read.trim()).ok_or_else(|| format!("{text} does not hold 64 hexadecimal digits"))
}

/// The variable that names the server.
const FROM: &str = "COVEY_BOOT";

const HELP: &str = "\
Fetch an image from a Covey node, and pass it on to others who fetch it

Usage: covey-bootget [OPTIONS] IMAGE[/ARCH] --from ADDR -o FILE

Reads the image from the server, or from another machine that is fetching it, whichever the server names, and
serves what has arrived to others meanwhile. Each chunk is checked before it is written; a source that is lost or
wrong is left, and the next one goes on where it ended. FILE is complete when the program ends with 0.

Arguments:
  IMAGE[/ARCH]         The image; without ARCH that for this machine, else for any

Options:
  -o, --output FILE    Where to put it: a file, or a block device
      --from ADDR      The server, tcp!HOST!PORT or unix!PATH [env: COVEY_BOOT]
      --token FILE     The image token, as `covey boot token` prints it; or its 64 digits themselves
      --key FILE       The cluster key, where this machine has it, instead of the token
      --sha256 HEX     Refuse any other image than the one that sha256sum calls so
      --serve SECONDS  Serve others for so long afterwards [default: as long as it took, 5 at least]
      --port PORT      Serve others at this port [default: any]
      --no-serve       Serve nobody
      --patience SECONDS  Give up when no byte has come for so long [default: 300]
  -q, --quiet          Say nothing but errors
  -h, --help           Print this
  -V, --version        Print the version

Exit codes: 0 done, 1 the work failed, 2 the command was wrong.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Parsed, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_stand_anywhere_and_with_either_kind_of_value() {
        let line = "disk/s390x --serve=7 -o /tmp/x --from tcp!10.0.0.1!5640 -q --patience 9";
        let Parsed::Run(options) = of(line).unwrap() else { panic!("help") };
        assert_eq!((options.image.as_str(), options.arch.as_deref()), ("disk", Some("s390x")));
        assert_eq!(options.serve, Some(Duration::from_secs(7)));
        assert_eq!(options.patience, Duration::from_secs(9));
        assert_eq!(options.from.to_string(), "tcp!10.0.0.1!5640");
        assert!(options.quiet && options.token.is_none());
        assert_eq!(options.want().archs, ["s390x".into()]);
    }

    #[test]
    fn a_token_is_a_file_or_the_digits_and_a_key_makes_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{}\n", "ab".repeat(32))).unwrap();
        let rest = "disk -o x --from unix!/x";
        let token_of = |line: String| match of(&line).unwrap() {
            Parsed::Run(options) => options.token,
            Parsed::Say(_) => panic!("help"),
        };
        let by_file = token_of(format!("{rest} --token {}", file.path().display()));
        assert_eq!(by_file, Some([0xab; 32]));
        assert_eq!(token_of(format!("{rest} --token {}", "ab".repeat(32))), by_file);
        let by_key = token_of(format!("{rest} --key {}", file.path().display()));
        assert_eq!(by_key, Some(token(&[0xab; 32])));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, why) in [
            ("", "image is wanted"),
            ("disk", "--from ADDR"),
            ("disk --from tcp!h!1", "-o FILE"),
            ("disk --from h -o x", "names no network"),
            ("disk more --from tcp!h!1 -o x", "follows"),
            ("disk --from tcp!h!1 -o", "wants a value"),
            ("disk --fast", "no option --fast"),
            ("disk --serve x", "seconds"),
            ("disk --token /nowhere/x", "cannot read"),
            ("disk --sha256 12", "64 hexadecimal"),
        ] {
            let error = of(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn the_help_names_every_option() {
        let Parsed::Say(help) = of("--help").unwrap() else { panic!("no help") };
        for option in [
            "--output",
            "--from",
            "--token",
            "--key",
            "--sha256",
            "--serve",
            "--port",
            "--no-serve",
            "--patience",
            "--quiet",
            "--version",
        ] {
            assert!(help.contains(option), "{option}");
        }
    }
}
