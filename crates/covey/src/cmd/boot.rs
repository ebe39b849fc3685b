//! `covey boot`: images for machines that boot.

use super::Context;
use super::serve::this_host;
use crate::config::{Address, Config, PORT_DEFAULT, Role};
use crate::error::{Cannot, Error, Result};
use crate::output::{announce, table};
use covey_launch::image::{hex, parse_hex, token};
use covey_serve::boot::{self, Removed};
use std::io::Write;
use std::path::PathBuf;

/// Serve images to machines that boot, which pass them on to each other
///
/// A node with the role boot serves images at /boot; `covey-bootget`, a small program for an initramfs, fetches
/// them. Whoever is fetching an image serves what has arrived to others, so many machines boot in little more time
/// than one, and the server sends a few copies. Each part of an image is checked before anybody is given it.
///
/// These commands work on the images of this machine: of the node here, or of a directory.
///
/// EXAMPLES
///
///     covey boot add compute compute.img       for machines like this one
///     covey boot add compute s390x.img --arch s390x
///     covey boot ls
///     covey boot token > token                 for the machines that boot
///     covey-bootget compute --from tcp!10.0.0.1!5640 --token token -o /dev/vda
///     covey boot rm compute
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Add(AddArgs),
    Ls(LsArgs),
    Rm(RmArgs),
    Serve(ServeArgs),
    Token(TokenArgs),
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    match args.command {
        Command::Add(args) => add(args, context).await,
        Command::Ls(args) => ls(&args, context),
        Command::Rm(args) => rm(&args, context),
        Command::Serve(args) => serve(args).await,
        Command::Token(_) => print_token(context),
    }
}

/// Where the images are.
#[derive(clap::Args, Clone, Debug)]
struct Which {
    /// The node whose images are meant; its store must be on this machine [default: the one that is named like
    /// this host, or the only one with the role boot]
    #[arg(long, value_name = "NODE", conflicts_with = "dir")]
    node: Option<String>,
    /// A directory of images, as `covey boot serve` serves it
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Which {
    fn dir(&self, context: &Context) -> Result<PathBuf> {
        if let Some(dir) = &self.dir {
            return Ok(dir.clone());
        }
        let config = context.config()?;
        let name = self.name(&config)?;
        let node = config.node(&name)?;
        let Some(store) = node.store.as_ref().filter(|_| node.is(Role::Boot)) else {
            return Err(Error::user(format!(
                "node {name} serves no images: it has not the role boot"
            ))
            .hint("add \"boot\" to its roles in covey.toml, and start it again"));
        };
        if !store.is_dir() {
            let what = format!(
                "cannot find the images of {name}: {} is not on this machine",
                store.display()
            );
            return Err(Error::user(what).hint(
                "run the command where the node runs, or start the node once: `covey serve`",
            ));
        }
        Ok(store.join(boot::DIR))
    }

    fn name(&self, config: &Config) -> Result<String> {
        if let Some(name) = &self.node {
            return Ok(name.clone());
        }
        let mut nodes = config.nodes.iter().filter(|node| node.is(Role::Boot));
        match (nodes.next(), nodes.next()) {
            (Some(only), None) => Ok(only.name.clone()),
            (None, _) => Err(Error::user("no node has the role boot").hint(
                "add \"boot\" to the roles of one in covey.toml, or name a directory: --dir DIR",
            )),
            _ => this_host(config),
        }
    }
}

/// Put an image where machines can fetch it, in place of one of the same name
///
/// Copies the file and computes its sums. Machines that are fetching the one before get that one whole.
#[derive(clap::Args, Debug)]
struct AddArgs {
    /// What machines ask for: up to 64 letters, digits, `-`, `_` and `.`
    #[arg(value_name = "IMAGE")]
    image: String,
    /// The image: a disk, an initramfs, anything that is a file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// For which machines, as `uname -m` calls them, or any
    #[arg(long, value_name = "ARCH", default_value = std::env::consts::ARCH)]
    arch: String,
    #[command(flatten)]
    which: Which,
}

async fn add(args: AddArgs, context: &Context) -> Result<()> {
    let AddArgs { image, file, arch, which } = args;
    let dir = which.dir(context)?;
    let length = std::fs::metadata(&file).cannot(|| format!("read {}", file.display()))?.len();
    let bar = context.output.progress(Some(length));
    let (name, whom, shown) = (image.clone(), arch.clone(), bar.clone());
    let put = move || boot::put(&dir, &name, &whom, &file, |bytes| shown.set_position(bytes));
    let put = covey_io::task::blocking(put).await;
    bar.finish_and_clear();
    let sum = put.cannot(|| format!("add image {image}"))?;
    let sha256 = hex(&sum.sha256);
    let value = serde_json::json!({
        "image": image, "arch": arch, "bytes": sum.bytes, "sha256": sha256, "chunks": sum.count(),
    });
    context.output.result(&value, |text| {
        writeln!(text, "added {image} for {arch}: {} bytes, SHA-256 {sha256}", sum.bytes)
    })
}

/// List the images
#[derive(clap::Args, Debug)]
struct LsArgs {
    #[command(flatten)]
    which: Which,
}

fn ls(args: &LsArgs, context: &Context) -> Result<()> {
    let dir = args.which.dir(context)?;
    let images = boot::list(&dir).cannot(|| format!("list {}", dir.display()))?;
    let values: Vec<_> = images
        .iter()
        .map(|(image, arch, sum)| match sum {
            Ok(sum) => serde_json::json!({
                "image": image, "arch": arch, "bytes": sum.bytes, "sha256": hex(&sum.sha256),
            }),
            Err(error) => serde_json::json!({ "image": image, "arch": arch, "error": error }),
        })
        .collect();
    let row = |(image, arch, sum): &(String, String, std::result::Result<_, String>)| {
        let (bytes, sha256) = match sum {
            Ok(sum) => {
                let sum: &covey_launch::image::Sum = sum;
                (sum.bytes.to_string(), hex(&sum.sha256))
            }
            Err(error) => ("-".to_owned(), format!("cannot be used: {error}")),
        };
        vec![image.clone(), arch.clone(), bytes, sha256]
    };
    context.output.result(&values, |text| {
        let rows: Vec<Vec<String>> = images.iter().map(row).collect();
        table(text, &["IMAGE", "ARCH", ">BYTES", "SHA-256"], &rows);
        Ok(())
    })
}

/// Remove an image
///
/// Machines that are fetching it get it whole all the same.
#[derive(clap::Args, Debug)]
struct RmArgs {
    /// The image
    #[arg(value_name = "IMAGE")]
    image: String,
    /// Only the one for these machines [default: all]
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    #[command(flatten)]
    which: Which,
}

fn rm(args: &RmArgs, context: &Context) -> Result<()> {
    let (dir, image) = (args.which.dir(context)?, &args.image);
    let removed = boot::remove(&dir, image, args.arch.as_deref());
    match removed.cannot(|| format!("remove image {image}"))? {
        Removed::Yes => Ok(()),
        Removed::Nothing => Err(Error::user(format!("cannot remove image {image}: there is none"))
            .hint("`covey boot ls` lists what there is")),
    }
}

/// Serve a directory of images, without any cluster
///
/// It stays in the foreground until SIGTERM or SIGINT. Beyond this machine it serves only those who have the
/// token: 32 random bytes in a file, as `covey keygen FILE` makes them.
#[derive(clap::Args, Debug)]
struct ServeArgs {
    /// The directory, which `covey boot add --dir DIR` fills
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where to listen, tcp!HOST!PORT or unix!PATH; may be repeated [default: tcp!127.0.0.1!5640]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<Address>,
    /// The file of the token that machines must have
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
}

async fn serve(args: ServeArgs) -> Result<()> {
    let ServeArgs { dir, listen, token } = args;
    let listen =
        if listen.is_empty() { vec![Address::tcp("127.0.0.1", PORT_DEFAULT)] } else { listen };
    let token = match token {
        Some(file) => {
            let text = std::fs::read_to_string(&file);
            let text = text.cannot(|| format!("read the token {}", file.display()))?;
            Some(parse_hex(text.trim()).ok_or_else(|| {
                Error::user(format!("{} does not hold 64 hexadecimal digits", file.display()))
                    .hint("make one with `covey keygen FILE`")
            })?)
        }
        None => None,
    };
    if let Some(open) = listen.iter().find(|address| !address.is_local() && token.is_none()) {
        return Err(Error::user(format!(
            "cannot serve images at {open}: other machines could reach it without a token"
        ))
        .hint("make one with `covey keygen FILE` and name it: --token FILE"));
    }
    let say = |text: &str| announce(format_args!("covey: {text}"));
    boot::serve(dir.clone(), &listen, token, say)
        .await
        .cannot(|| format!("serve the images of {}", dir.display()))
}

/// Print the token that machines need to fetch images
///
/// It is made from the cluster key and opens /boot and nothing else, for reading. Whoever has it can read every
/// image, so keep secrets out of images. It changes with the cluster key.
#[derive(clap::Args, Debug)]
struct TokenArgs {}

fn print_token(context: &Context) -> Result<()> {
    let config = context.config()?;
    let key = covey_cluster::key::read(&config).cannot(|| "read the cluster key")?;
    let key = key.ok_or_else(|| {
        Error::user("cannot make the token: this user can read no cluster key").hint(
            "run it as the owner of key_file; a cluster of one machine has none, and its users need no token",
        )
    })?;
    let token = hex(&token(&key));
    context.output.result(&serde_json::json!({ "token": token }), |text| writeln!(text, "{token}"))
}
