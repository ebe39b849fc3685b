//! How programs are watched that must touch and lose no memory.

/// What a thread keeps for itself until the end of the process is no leak.
pub const VALGRIND: [&str; 6] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    "--show-leak-kinds=definite,indirect",
    "--errors-for-leak-kinds=definite",
];
