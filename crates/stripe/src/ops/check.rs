//! What a check of the file system asks and is told: the records of Check, Look and Mend.
//!
//! A [`Finding`] says one thing that is wrong, with everything that its repair needs. The server
//! judges it again before it repairs anything, so a finding that is no longer true does no harm.

use super::{Id, Inode, Nanos};
use covey_wire::{Name, Payload, record};

record! {
    /// One thing that is wrong.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct Finding for () {
        /// What kind of thing: see [`Class`].
        pub class: u8,
        /// The file concerned; 0 for none.
        pub id: Id,
        /// The directory concerned, or the index of the I/O server.
        pub parent: Id,
        /// The entry's name, or the key of the row.
        pub name: Name,
        /// What the wrong number is (or what the object has).
        pub found: u64,
        /// What it should be.
        pub wanted: u64,
        /// The inode's version when it was judged.
        pub version: u64,
    }
}

record! {
    /// What is counted of a directory's entries on one page.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Tally for () {
        /// The directory.
        pub id: Id,
        /// Entries.
        pub entries: u64,
        /// Entries that are directories.
        pub dirs: u64,
        /// The inode's size, links and version while they were counted.
        pub size: u64,
        /// Links.
        pub nlink: u32,
        /// Version.
        pub version: u64,
    }
}

record! {
    /// An inode in as few bytes as a count of links needs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Brief for () {
        /// The file.
        pub id: Id,
        /// Its links.
        pub nlink: u32,
        /// Whether it is a directory.
        pub is_dir: bool,
        /// Its version.
        pub version: u64,
    }
}

record! {
    /// Totals, counted and kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Census for () {
        /// Inodes.
        pub files: u64,
        /// Bytes of all sizes, modulo 2^64.
        pub bytes: u64,
        /// What the server's counters say.
        pub files_kept: u64,
        /// What the server's counters say.
        pub bytes_kept: u64,
    }
}

record! {
    /// What there is to know of a file that exists, or existed a moment ago.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Looked for () {
        /// Which.
        pub id: Id,
        /// None when it does not exist.
        pub inode: Option<Inode>,
        /// Where its next append goes.
        pub tail: u64,
        /// Somebody has it open.
        pub is_open: bool,
        /// A cut has not reached every I/O server yet.
        pub cut_pending: bool,
        /// Objects up to this epoch are being removed.
        pub reclaim: Option<u32>,
    }
}

record! {
    /// A row of the store, as it is.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Row for () {
        /// Its key.
        pub key: Name,
        /// Its value.
        pub value: Payload,
    }
}

record! {
    /// What one page of a check has brought.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct Page for () {
        /// Rows looked at.
        pub rows: u64,
        /// What was wrong, judged inside the server's transaction.
        pub findings: covey_wire::List<Finding>,
        /// Files within the window that names lead to, once for each name.
        pub links: covey_wire::List<Id>,
        /// Directories whose entries were counted, in their order.
        pub tallies: covey_wire::List<Tally>,
        /// Inodes within the window.
        pub briefs: covey_wire::List<Brief>,
        /// Regular files within the window that have bytes and no holes.
        pub files: covey_wire::List<Inode>,
        /// The totals, when the last inode has been passed.
        pub census: Option<Census>,
        /// The key to go on after.
        pub next: Name,
        /// Nothing comes after it.
        pub end: bool,
        /// The number that the next new file gets.
        pub id_next: Id,
        /// The server's clock.
        pub now: Nanos,
    }
}

/// Which rows a Check goes through, and what it does with them.
pub mod table {
    /// Every row of the store, each judged by itself and against those it leads to.
    pub const ALL: u8 = 0;
    /// Names: where they lead, nothing else.
    pub const LINKS: u8 = 1;
    /// Inodes of the window in brief.
    pub const BRIEFS: u8 = 2;
    /// Inodes of the window that have bytes and no holes.
    pub const FILES: u8 = 3;
    /// The entries of one directory, `low`, counted.
    pub const TALLY: u8 = 4;
    /// Inodes of the window that are laid out on I/O servers, with bytes or without.
    pub const HELD: u8 = 5;
}

/// How bad a class is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong, but the operator may want to know.
    Note,
    /// Space or numbers are wrong; no file is.
    Leak,
    /// Names or attributes are wrong; they can be made right.
    Damage,
    /// Bytes of files may be lost.
    Loss,
}

impl Severity {
    /// The word for people and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Leak => "leak",
            Severity::Damage => "damage",
            Severity::Loss => "loss",
        }
    }
}

macro_rules! classes {
    ($($(#[$doc:meta])* $number:literal $name:ident $word:literal $severity:ident, $repair:literal;)*) => {
        /// The kinds of findings there are.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Class {
            $($(#[$doc])* $name = $number,)*
        }

        impl Class {
            /// All of them.
            pub const ALL: &'static [Class] = &[$(Class::$name),*];

            /// The class of a number.
            pub fn of(number: u8) -> Option<Class> {
                match number { $($number => Some(Class::$name),)* _ => None }
            }

            /// Its name for people and JSON.
            pub fn word(self) -> &'static str {
                match self { $(Class::$name => $word),* }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(Class::$name => Severity::$severity),* }
            }

            /// What `--repair` does about it; empty for nothing.
            pub fn repair(self) -> &'static str {
                match self { $(Class::$name => $repair),* }
            }
        }
    };
}

classes! {
    /// A row's bytes make no sense.
    1 DamagedRow "damaged-row" Damage, "removes the row; what it held is lost";
    /// A name leads to no inode.
    2 DanglingName "dangling-name" Loss, "removes the name";
    /// A name and its place in the listing disagree.
    3 Unlisted "unlisted-name" Damage, "lists the name";
    /// A place in a listing without a name.
    4 StrayListing "stray-listing" Damage, "removes it from the listing";
    /// An entry says another type than the inode has.
    5 WrongKind "wrong-kind" Damage, "takes the inode's type";
    /// An entry of something that is not a directory.
    6 LostDirectory "lost-directory" Damage, "removes the name; the file goes to lost+found";
    /// A directory's parent is not where its name is.
    7 WrongParent "wrong-parent" Damage, "takes the parent that the name is in";
    /// More or fewer names lead to the inode than it counts.
    8 WrongLinks "wrong-links" Damage, "takes the number counted";
    /// No name leads to it, and it is not waiting for its end either.
    9 Unreachable "unreachable" Damage, "gives it a name in /lost+found";
    /// A directory counts other entries than it has.
    10 WrongEntries "wrong-entries" Damage, "takes the number counted";
    /// A directory would give a place in the listing twice.
    11 WrongCookie "wrong-cookie" Damage, "goes on after the last place";
    /// The store's totals are not what its inodes add up to.
    12 WrongTotals "wrong-totals" Leak, "takes the totals counted";
    /// An unlinked file that nothing will ever reclaim.
    13 Forgotten "forgotten-file" Leak, "reclaims it when nobody has it open";
    /// A file waits for its end that has names, or does not exist.
    14 WrongOrphan "wrong-orphan" Damage, "forgets the wait";
    /// A truncation is pending of a file that does not exist, or at an epoch yet to come.
    15 StaleCut "stale-cut" Leak, "forgets the truncation";
    /// Objects are to be removed that a living file uses.
    16 WrongReclaim "wrong-reclaim" Loss, "forgets the removal";
    /// Appends under way in what does not exist, or of a session that is over.
    17 StaleAppend "stale-append" Leak, "ends the appends";
    /// A file has no striping, or one that names no known I/O servers.
    18 BadStriping "bad-layout" Loss, "";
    /// The next append would go before the end of the file.
    19 WrongTail "wrong-tail" Damage, "appends at the end";
    /// A row of a table that this version does not know.
    20 UnknownRow "unknown-row" Damage, "";
    /// Something that belongs to a file which does not exist.
    21 StrayPart "stray-part" Leak, "removes it";
    /// The next file or session would get a number that is in use.
    22 WrongNumber "wrong-number" Damage, "goes on after the highest number";
    /// Directories that lead to each other and not to the root.
    23 Detached "detached" Damage, "gives one of them a name in /lost+found";
    /// What a user, a group or a project directory owns is not what its files add up to.
    24 WrongQuota "wrong-quota" Leak, "counts all anew";
    /// An object without a file.
    30 OrphanObject "orphan-object" Leak, "removes the object";
    /// An object on a server that the file's striping does not name.
    31 StrayObject "stray-object" Leak, "removes the object";
    /// An object that has missed a truncation.
    32 OldObject "old-object" Damage, "cuts it again";
    /// An object that is ahead of the metadata.
    33 AheadObject "ahead-object" Damage, "takes the object's epoch";
    /// An object with bytes beyond the end of the file: what a write left that failed.
    34 LongObject "long-object" Note, "cuts it at the end of the file";
    /// An object that lacks bytes which the file should have: they read as zeros.
    35 ShortObject "short-object" Loss, "takes them for a hole";
    /// An object that was lost with its server's disk, which nobody has accepted: reading it fails.
    36 LostObject "lost-object" Loss, "";
}
