//! The consistency modes, by which a mount may keep what it knows.

/// How soon a mount sees what others have written, and they what it has. `docs/semantics.md` has the
/// promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// A completed write is seen by every later read anywhere.
    #[default]
    Strict,
    /// What was written before a close is seen by whoever opens the file afterwards.
    CloseToOpen,
    /// For files that one node writes and reads.
    JobScratch,
}

impl Consistency {
    /// All of them, the strongest first.
    pub const ALL: [Consistency; 3] = [Self::Strict, Self::CloseToOpen, Self::JobScratch];

    /// What [`super::Inode::consistency`] has for it.
    pub fn number(self) -> u8 {
        match self {
            Self::Strict => 1,
            Self::CloseToOpen => 2,
            Self::JobScratch => 3,
        }
    }

    /// None for 0, and for numbers without a mode.
    pub fn from_number(number: u8) -> Option<Consistency> {
        Self::ALL.into_iter().find(|mode| mode.number() == number)
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::CloseToOpen => "close-to-open",
            Self::JobScratch => "job-scratch",
        }
    }

    /// The mode of a name.
    pub fn from_name(name: &str) -> Option<Consistency> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_is_found_by_its_number_and_its_name() {
        for mode in Consistency::ALL {
            assert_eq!(Consistency::from_number(mode.number()), Some(mode));
            assert_eq!(Consistency::from_name(mode.name()), Some(mode));
        }
        assert_eq!(Consistency::from_number(0), None);
        assert_eq!(Consistency::from_name("eventual"), None);
    }
}
