//! Programs of another architecture, on a node that says in covey.toml that an emulator runs them.

use covey_cluster::config::Emulated;
use covey_io::os::spawn::Command;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Lets the emulator run the program of a command, if that is of another architecture than this machine. Scripts and
/// programs of the machine itself run as they do elsewhere.
pub(super) fn wrap(emulated: &Emulated, mut command: Command) -> io::Result<Command> {
    let own = kind(Path::new("/proc/self/exe"))?;
    // Why a program cannot be read is told when it is started.
    match kind(&command.program) {
        Ok(Some(other)) if Some(other) != own => {}
        _ => return Ok(command),
    }
    let word = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let name =
        if command.argv.is_empty() { word(&command.program)? } else { command.argv.remove(0) };
    let mut argv = vec![word(&emulated.emulator)?, c"-0".into(), name, word(&command.program)?];
    argv.append(&mut command.argv);
    Ok(Command { program: emulated.emulator.clone(), argv, ..command })
}

/// Width, byte order and machine of an ELF file; None of what is none.
fn kind(path: &Path) -> io::Result<Option<[u8; 4]>> {
    let mut head = [0; 20];
    match File::open(path)?.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let [b'\x7f', b'E', b'L', b'F', class, data, .., high, low] = head else { return Ok(None) };
    Ok(Some([class, data, high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_io::os::spawn::Stdio;

    fn command(program: &Path) -> Command {
        Command {
            program: program.to_owned(),
            argv: vec![c"name".into(), c"word".into()],
            env: Vec::new(),
            directory: "/".into(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            processes_max: None,
            stdio: Stdio::Pipes,
            cgroup: None,
        }
    }

    #[test]
    fn only_programs_of_other_machines_are_emulated() {
        let emulated = Emulated { arch: "s390x".into(), emulator: "/usr/bin/qemu".into() };
        let program = |at: &Path| wrap(&emulated, command(at)).unwrap().program;
        let own = std::env::current_exe().unwrap();
        assert_eq!(program(&own), own);
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(program(&script), script);
        let foreign = dir.path().join("foreign");
        let head = *b"\x7fELF\x02\x02\x01\0\0\0\0\0\0\0\0\0\0\x02\0\x16";
        std::fs::write(&foreign, head).unwrap();
        let wrapped = wrap(&emulated, command(&foreign)).unwrap();
        let words: Vec<_> = wrapped.argv.iter().map(|word| word.to_str().unwrap()).collect();
        let path = foreign.to_str().unwrap();
        assert_eq!(words, ["/usr/bin/qemu", "-0", "name", path, "word"]);
        assert_eq!(program(Path::new("/no/such")), Path::new("/no/such"));
    }
}
