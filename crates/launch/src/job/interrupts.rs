//! What a user who presses ^C wants: once, that the program ends; twice, that it is killed; a third time, to have
//! the terminal back.

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The ranks are to get the signal, and may end as they like.
    Ask,
    /// The ranks are to be killed.
    Kill,
    /// Even that takes too long: the command ends, and the nodes clean up after it.
    Leave,
}

/// Counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interrupts {
    pressed: u32,
}

impl Interrupts {
    /// One more.
    pub fn press(&mut self) -> Wish {
        self.pressed = self.pressed.saturating_add(1);
        match self.pressed {
            1 => Wish::Ask,
            2 => Wish::Kill,
            _ => Wish::Leave,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_asks_twice_kills_and_a_third_time_leaves() {
        let mut interrupts = Interrupts::default();
        let wishes = [0; 4].map(|_| interrupts.press());
        assert_eq!(wishes, [Wish::Ask, Wish::Kill, Wish::Leave, Wish::Leave]);
    }
}
