//! Where an image is read from.

use std::fmt;

/// A source of an image, as `redir` names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The server that was asked.
    First,
    /// A volunteer, `HOST!PORT`.
    Volunteer {
        /// Its address, as its registration came from.
        host: String,
        /// Where it listens.
        port: u16,
    },
}

impl Source {
    /// Reads what `redir` says: whether help is wanted, for how many seconds at most, and the source.
    pub fn parse(text: &str) -> Option<(Option<u64>, Source)> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let mut help = None;
        if let ["help", seconds, ..] = words[..] {
            help = Some(seconds.parse().ok()?);
            words.drain(..2);
        }
        // What follows the source is for debugging.
        let source = match *words.first()? {
            "me" => Source::First,
            other => {
                let (host, port) = other.rsplit_once('!')?;
                let is_host = !host.is_empty() && host.len() <= 255 && !host.contains('!');
                Source::Volunteer {
                    host: is_host.then(|| host.to_owned())?,
                    port: port.parse().ok().filter(|port| *port > 0)?,
                }
            }
        };
        Some((help, source))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::First => f.write_str("me"),
            Source::Volunteer { host, port } => write!(f, "{host}!{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_as_it_is_written() {
        let volunteer = Source::Volunteer { host: "10.0.0.7".into(), port: 4711 };
        assert_eq!(Source::parse("me 0\n"), Some((None, Source::First)));
        assert_eq!(Source::parse("help 10 10.0.0.7!4711 0\n"), Some((Some(10), volunteer)));
        for wrong in
            ["", "help", "help 10", "help x me", "host", "host!", "!1", "h!0", "h!70000", "a!b!1"]
        {
            assert_eq!(Source::parse(wrong), None, "{wrong}");
        }
    }
}
