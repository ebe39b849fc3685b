//! What a client calls itself, for those who watch the servers: `USER@HOST job JOB pid N`. Nobody is trusted for it.

use covey_io::os::users;

/// The variables that name the job a process belongs to: ours, and Slurm's.
const JOB_VARIABLES: [&str; 2] = ["COVEY_JOB", "SLURM_JOB_ID"];
/// The longest name of a job that is told.
const JOB_BYTES_MAX: usize = 64;

/// This process, by the name of its user.
pub fn own() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let account = users::by_uid(uid).ok().flatten();
    of_user(&account.map_or_else(|| uid.to_string(), |account| account.name.clone()))
}

/// This process, as the server of a node: by the node's name, where a client has its user's.
pub fn of_node(node: &str) -> String {
    of_user(node)
}

/// This process, for a library in somebody's program: the same name where the machine's own file of users has it, else
/// the user's number. No directory service is asked.
pub fn in_library() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    of_user(&name_in(&users, uid).map_or_else(|| uid.to_string(), str::to_owned))
}

/// A user's name in the text of passwd(5).
fn name_in(users: &str, uid: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        let is_line = !name.is_empty() && !name.starts_with('#');
        (is_line && number.parse() == Ok(uid)).then_some(name)
    })
}

fn of_user(user: &str) -> String {
    let system = rustix::system::uname();
    let job = JOB_VARIABLES.iter().find_map(|variable| std::env::var(variable).ok());
    in_words(user, &system.nodename().to_string_lossy(), job.as_deref(), std::process::id())
}

fn in_words(user: &str, host: &str, job: Option<&str>, pid: u32) -> String {
    // A job's name is one word: others stand behind it.
    let is_good = |job: &&str| {
        let bytes = job.as_bytes();
        (1..=JOB_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    let job = job.filter(is_good).map_or(String::new(), |job| format!(" job {job}"));
    format!("{user}@{host}{job} pid {pid}")
}

#[cfg(test)]
mod tests {
    use super::{in_words, name_in};

    #[test]
    fn a_library_calls_a_user_of_this_machine_as_the_commands_do() {
        let users = "root:x:0:0:root:/root:/bin/sh\n# ann:x:7\n+::::::\nann:x:1000:7::/home/ann:\n";
        assert_eq!(name_in(users, 0), Some("root"));
        assert_eq!(name_in(users, 1000), Some("ann"));
        assert_eq!(name_in(users, 7), None);
    }

    #[test]
    fn a_job_is_named_if_its_name_is_a_word() {
        assert_eq!(in_words("ann", "n1", None, 7), "ann@n1 pid 7");
        assert_eq!(in_words("ann", "n1", Some("12_3"), 7), "ann@n1 job 12_3 pid 7");
        for job in ["", "1 pid 2", "1\n2", &"9".repeat(65)] {
            assert_eq!(in_words("ann", "n1", Some(job), 7), "ann@n1 pid 7");
        }
    }
}
