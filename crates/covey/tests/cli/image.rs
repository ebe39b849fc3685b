//! The OCI image: what its parts say of each other, and that the program in it runs with nothing else around it.

use crate::home::Home;
use crate::support::{is_root, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn image(place: &Path) {
    let mut script = Command::new(format!("{ROOT}/scripts/image"));
    script.arg(place).env("COVEY", env!("CARGO_BIN_EXE_covey")).env("SOURCE_DATE_EPOCH", "1");
    let done = run(script);
    assert!(done.ok && done.stdout.trim() == place.to_str().unwrap(), "{done}");
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn digest(file: &Path) -> String {
    let mut command = Command::new("sha256sum");
    command.arg(file);
    format!("sha256:{}", run(command).stdout.split(' ').next().unwrap())
}

/// The blob that a descriptor points to, which is as long and has the digest that it says.
fn blob(place: &Path, descriptor: &Value) -> PathBuf {
    let named = descriptor["digest"].as_str().unwrap();
    let file = place.join("blobs/sha256").join(named.strip_prefix("sha256:").unwrap());
    assert_eq!(file.metadata().unwrap().len(), descriptor["size"].as_u64().unwrap(), "{named}");
    assert_eq!(digest(&file), named);
    file
}

#[test]
fn the_image_is_whole_and_the_program_runs_in_it_without_rights() {
    let home = Home::new();
    let place = home.path("image");
    image(&place);
    assert_eq!(json(&place.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let index = json(&place.join("index.json"));
    let manifest = json(&blob(&place, &index["manifests"][0]));
    let config = json(&blob(&place, &manifest["config"]));
    let layer = blob(&place, &manifest["layers"][0]);
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    assert_eq!(config["os"], "linux");
    assert_eq!(config["config"]["User"], "5640:5640");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/covey");
    assert_eq!(std::fs::read_dir(place.join("blobs/sha256")).unwrap().count(), 3);
    // What is packed, and what is named, is the same; unpacked it is a root.
    let tar = home.path("layer.tar");
    let mut unpack = Command::new("sh");
    unpack.arg("-c").arg(format!("gzip -dc {} >{}", layer.display(), tar.display()));
    assert!(run(unpack).ok);
    assert_eq!(config["rootfs"]["diff_ids"][0], digest(&tar));
    let mut list = Command::new("tar");
    list.args(["--numeric-owner", "-tvf"]).arg(&tar);
    let listed = run(list).stdout;
    assert!(
        listed.lines().any(|line| line.contains(" 5640/5640 ") && line.ends_with("lib/covey/"))
    );
    assert!(listed.lines().any(|line| line.starts_with("drwxrwxrwt") && line.ends_with("./tmp/")));
    if !is_root() {
        return;
    }
    let root = home.path("root");
    std::fs::create_dir(&root).unwrap();
    let mut unpack = Command::new("tar");
    unpack.arg("-xpf").arg(&tar).arg("-C").arg(&root);
    assert!(run(unpack).ok);
    let mut inside = Command::new("chroot");
    inside.args(["--userspec=5640:5640"]).arg(&root).args(["/usr/bin/covey", "--version"]);
    let done = run(inside);
    assert!(done.ok && done.stdout.starts_with("covey "), "{done}");
    // The same program makes the same image.
    let again = home.path("again");
    image(&again);
    assert_eq!(json(&again.join("index.json")), index);
}

#[test]
fn nothing_that_is_no_image_is_replaced_by_one() {
    let home = Home::new();
    std::fs::create_dir(home.path("thesis")).unwrap();
    let mut script = Command::new(format!("{ROOT}/scripts/image"));
    script.arg(home.path("thesis")).env("COVEY", env!("CARGO_BIN_EXE_covey"));
    run(script).says(&["exists, and is no image"]);
}

/// The instructions of a Containerfile, lines that go on joined.
fn instructions(text: &str) -> Vec<(String, String)> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(word, rest)| (word.to_string(), rest.trim().to_string()))
        .collect()
}

#[test]
fn the_recipe_installs_the_package_and_says_the_same_as_the_image() {
    let recipe = instructions(include_str!("../../../../dist/Containerfile"));
    let known = [
        "FROM",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "WORKDIR",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    ];
    for (word, rest) in &recipe {
        assert!(known.contains(&word.as_str()) && !rest.is_empty(), "{word} {rest}");
        if word == "RUN" {
            let mut sh = Command::new("sh");
            sh.args(["-nc", rest]);
            let done = run(sh);
            assert!(done.ok, "{rest}: {done}");
        }
    }
    let of = |word: &str| {
        let found = recipe.iter().rfind(|(one, _)| one == word);
        &found.unwrap_or_else(|| panic!("there is no {word}")).1
    };
    assert!(of("FROM").ends_with("debian:bookworm-slim"));
    // As scripts/deb calls it: covey_VERSION_ARCHITECTURE.deb.
    assert!(of("COPY").starts_with("covey_*.deb "));
    assert_eq!(of("USER"), "covey");
    let home = Home::new();
    let place = home.path("image");
    image(&place);
    let manifest = json(&blob(&place, &json(&place.join("index.json"))["manifests"][0]));
    let config = &json(&blob(&place, &manifest["config"]))["config"];
    for (word, name) in [("ENTRYPOINT", "Entrypoint"), ("CMD", "Cmd")] {
        let words: Value = serde_json::from_str(of(word)).unwrap();
        assert_eq!(words, config[name], "{word}");
    }
    assert_eq!(*of("WORKDIR"), config["WorkingDir"].as_str().unwrap());
    assert!(config["Volumes"][of("VOLUME")].is_object());
    assert!(config["ExposedPorts"][format!("{}/tcp", of("EXPOSE"))].is_object());
    let set = config["Env"].as_array().unwrap();
    for setting in of("ENV").split(' ') {
        assert!(set.iter().any(|one| one == setting), "{setting}");
    }
}
