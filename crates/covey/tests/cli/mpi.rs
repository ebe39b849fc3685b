//! `covey mpi env`: what it prints for the libraries that it finds.

use crate::home::{Home, command};
use std::os::unix::fs::PermissionsExt;

/// Programs that say what those of a library say.
fn install(home: &Home, name: &str, says: &str) {
    let file = home.write(&format!("bin/{name}"), &format!("#!/bin/sh\necho '{says}'\n"));
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
}

fn mpi_env(home: &Home, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = command(&home.path("."));
    command.env("PATH", format!("{}:/usr/bin:/bin", home.path("bin").display()));
    command.env("COVEY_FI_LIBRARY", home.path("lib dir/libcovey-fi.so"));
    command.env_remove("COVEY_FI_ETHERNET");
    if words.contains(&"mpich") {
        command.env("COVEY_FI_ETHERNET", "measured");
    }
    let done = command.args(["mpi", "env"]).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn each_library_gets_its_variables_and_one_without_libfabric_is_named() {
    let home = Home::new();
    std::fs::create_dir(home.path("bin")).unwrap();
    install(&home, "mpiexec.openmpi", "mpiexec.openmpi (OpenRTE) 4.1.4");
    install(&home, "ompi_info", "                 MCA mtl: ofi (MCA v2.1.0)");
    install(&home, "mpiexec.mpich", "HYDRA build details:\n    Version: 4.0.2");
    install(&home, "mpichversion", "MPICH Device:    ch4:ucx");

    let (code, _, stderr) = mpi_env(&home, &[]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no libcovey-fi.so") && stderr.contains("hint:"), "{stderr}");

    std::fs::create_dir(home.path("lib dir")).unwrap();
    home.write("lib dir/libcovey-fi.so", "");
    let (code, stdout, stderr) = mpi_env(&home, &[]);
    assert_eq!(code, Some(0), "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[0], "# Open MPI 4.1.4");
    assert_eq!(lines[1], "# not MPICH 4.0.2: it is built without libfabric");
    assert!(lines[2].starts_with("# not COVEY_FI_ETHERNET: "), "{stdout}");
    assert!(lines[3].ends_with("/lib dir'") && lines[3].starts_with("export FI_PROVIDER_PATH='"));
    assert!(lines.contains(&"export OMPI_MCA_mtl=ofi"), "{stdout}");
    assert!(lines.contains(&"export OMPI_MCA_osc='^ucx'"), "{stdout}");
    assert!(!stdout.contains("MPIR_CVAR"), "{stdout}");

    let (code, _, stderr) = mpi_env(&home, &["--mpi", "mpich"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("MPICH 4.0.2 is built without libfabric"), "{stderr}");
    install(&home, "mpichversion", "MPICH Device:    ch4:ofi");
    let (code, stdout, _) = mpi_env(&home, &["--mpi", "mpich"]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains("export FI_PROVIDER=covey"), "{stdout}");
    assert!(stdout.contains("export COVEY_FI_ETHERNET=measured"), "{stdout}");

    // What was measured is told, up to what the provider has room for.
    home.run(["genconfig", "--io", "localhost"]).ok();
    let tune = "version = 1\nfrom = \"a test\"\n[choose.eager_limit]\nvalue = 100000\nlow = 1\n\
                high = 200000\nrule = \"r\"\nevidence = \"e\"\n";
    home.write("tune.toml", tune);
    let (code, stdout, stderr) = mpi_env(&home, &["--mpi", "openmpi"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("export COVEY_FI_EAGER_LIMIT=65536"), "{stdout}");
}
