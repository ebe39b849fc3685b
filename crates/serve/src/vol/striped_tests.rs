//! Striped volumes of several nodes on a metadata server of their own: what a node knows of one when it takes it.

use super::record::Backing;
use super::*;
use covey_iscsi::store::{Answer, Hold, Reply, Request};
use covey_stripe::client::Net;
use covey_stripe::ops::ROOT;
use covey_wire::Name;
use tokio::task::LocalSet;

/// A metadata server that has the data, too; and nodes of which only the volumes are there.
struct Lab {
    dir: tempfile::TempDir,
    config: Arc<Config>,
}

impl Lab {
    /// The volumes of a node, as it finds them when it begins. None is open.
    fn node(&self, name: &str) -> Rc<Volumes> {
        let dir = self.dir.path().join(format!("{name}.volumes"));
        Volumes::load(self.config.clone(), name, &dir, None, TargetPorts::default()).unwrap()
    }
}

fn with_lab(test: impl AsyncFnOnce(Lab)) {
    let dir = tempfile::tempdir().unwrap();
    let config = sample::config(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        crate::node::init(&config, "meta").await.unwrap();
        let own = config.clone();
        let serving = tokio::task::spawn_local(async move {
            crate::node::serve(&own, "meta", None, |_| {}).await
        });
        test(Lab { dir, config }).await;
        assert!(!serving.is_finished());
        serving.abort();
    });
}

async fn run(volumes: &Rc<Volumes>, line: &str) -> Result<()> {
    let words = line.split(' ').map(str::to_owned).collect();
    volumes.clone().run_command(words).await
}

/// A look at a volume: what its record says, and the blocks of its unit if it is open.
async fn opened(volumes: &Rc<Volumes>, name: &str) -> (Record, Option<u32>) {
    let volume = volumes.find(name).unwrap();
    volumes.open(name, &volume).await;
    let blocks = volume.need().ok().map(|opened| opened.unit.config().block_bytes);
    (volume.record.borrow().clone(), blocks)
}

/// Where the client would have one thread, it is where initiators' connections are: the two would wake each other all the time.
#[test]
fn on_few_cpus_the_striping_client_is_beside_connections() {
    with_lab(async |lab| {
        let node = lab.node("gw1");
        let name = || Ok(std::thread::current().name().map(str::to_owned));
        let client = node.within(async move { name() }).await.unwrap();
        let expected = if super::workers() == 1 { "iscsi-0" } else { "volumes" };
        assert_eq!(client.as_deref(), Some(expected));
        let net = node.net();
        let (tell, told) = tokio::sync::oneshot::channel();
        net.spawn(Box::pin(async move {
            drop(tell.send(std::thread::current().name().map(str::to_owned)))
        }));
        assert_eq!(told.await.unwrap().as_deref(), Some(expected), "its connections, too");
    });
}

/// Who may use it was changed while the node was away, and whoever changed that is gone when the node is back.
#[test]
fn a_node_that_takes_a_volume_takes_what_its_file_says() {
    with_lab(async |lab| {
        let (first, second) = (lab.node("gw1"), lab.node("gw2"));
        run(&first, "create disk striped /disk size 1048576 block 4096").await.unwrap();
        run(&first, "acl disk chap me the-first-secret").await.unwrap();
        run(&second, "join disk /disk").await.unwrap();
        assert!(second.find("disk").unwrap().stands_by.get());
        drop(second);
        run(&first, "acl disk chap me the-second-secret").await.unwrap();
        first.end().await;
        let second = lab.node("gw2");
        let (record, blocks) = opened(&second, "disk").await;
        assert_eq!(blocks, Some(4096));
        let secret = Some(("me".to_owned(), "the-second-secret".to_owned()));
        assert_eq!(record.access.chap, secret);
        let published = second.published("/disk".to_owned()).await.unwrap();
        assert_eq!(published.node, "gw2");
        assert_eq!(published.record_of("disk").unwrap().unwrap().access.chap, secret);
        let kept = std::fs::read_to_string(lab.dir.path().join("gw2.volumes").join(LIST)).unwrap();
        assert!(kept.contains("the-second-secret"), "{kept}");
        // Of what it served itself it knows best.
        second.end().await;
        let again = lab.node("gw2");
        again.find("disk").unwrap().record.borrow_mut().access.chap = None;
        assert_eq!(opened(&again, "disk").await.0.access.chap, None);
    });
}

/// What it answers GOOD to is to be true at the node that has the volume now.
#[test]
fn a_store_that_was_taken_by_another_node_has_saved_nothing() {
    with_lab(async |lab| {
        let (first, second) = (lab.node("gw1"), lab.node("gw2"));
        let fs = first.fs().await.unwrap();
        let made = async move { striped::make(&fs, &own(), "/disk", 1 << 20).await };
        first.within(made).await.unwrap();
        let open = async |node: &Rc<Volumes>, by_force| {
            let (fs, runtime) = (node.fs().await.unwrap(), node.client());
            let opened = StripedStore::open(fs, own(), "/disk", runtime, by_force);
            node.within(opened).await.unwrap()
        };
        let save = || Request::Save { state: "what is saved".into() };
        let mine = open(&first, false).await;
        let Answer::Later(saved) = mine.ask(save(), Hold::default()) else { panic!("it waits") };
        assert_eq!(saved.await, Reply::Done);
        let theirs = open(&second, true).await;
        let (theirs, saved) = second
            .within(async move {
                let saved = theirs.saved().await?;
                Ok((theirs, saved))
            })
            .await
            .unwrap();
        assert_eq!(saved, "what is saved");
        let Answer::Later(saved) = mine.ask(save(), Hold::default()) else { panic!("it waits") };
        tokio::select! {
            biased;
            () = mine.met_loss() => {}
            reply = saved => panic!("{reply:?}, though the other node has it"),
        }
        let Answer::Later(saved) = theirs.ask(save(), Hold::default()) else { panic!("it waits") };
        assert_eq!(saved.await, Reply::Done);
    });
}

/// It does not know yet, and its owner has asked it for another size just then.
#[test]
fn the_size_of_a_volume_is_that_of_the_node_that_has_it() {
    with_lab(async |lab| {
        let (first, second) = (lab.node("gw1"), lab.node("gw2"));
        run(&first, "create disk striped /disk size 1048576").await.unwrap();
        let (fs, runtime) = (second.fs().await.unwrap(), second.client());
        let taking = StripedStore::open(fs, own(), "/disk", runtime, true);
        let theirs = second.within(taking).await.unwrap();
        for line in ["resize disk 2097152", "resize disk 4096 shrink"] {
            let refused = run(&first, line).await.unwrap_err();
            assert_eq!(refused.code, Errno::ESTALE, "{line}: {refused}");
        }
        let fs = second.fs().await.unwrap();
        let now = second.within(async move { fs.stat(theirs.number()).await }).await.unwrap();
        assert_eq!(now.inode.size, 1 << 20);
    });
}

/// It has never had it, and nobody has it now.
#[test]
fn a_node_that_joins_a_free_volume_takes_what_its_file_says() {
    with_lab(async |lab| {
        let (first, second) = (lab.node("gw1"), lab.node("gw2"));
        run(&first, "create disk striped /disk size 1048576 block 4096 read-only").await.unwrap();
        run(&first, "acl disk chap me the-first-secret").await.unwrap();
        first.end().await;
        run(&second, "join disk /disk").await.unwrap();
        let volume = second.find("disk").unwrap();
        let config = volume.need().unwrap().unit.config().clone();
        assert_eq!((config.block_bytes, config.read_only), (4096, true));
        let record = volume.record.borrow().clone();
        assert_eq!((record.backing, record.access.chap.is_some()), (Backing::Striped, true));
    });
}

/// Nobody knows whose it may be, or how large its blocks are.
#[test]
fn a_file_that_says_nothing_of_a_volume_is_not_joined() {
    with_lab(async |lab| {
        let node = lab.node("gw1");
        let fs = node.fs().await.unwrap();
        let made = async move { striped::make(&fs, &own(), "/plain", 1 << 20).await };
        node.within(made).await.unwrap();
        let refused = run(&node, "join plain /plain").await.unwrap_err();
        assert!(refused.to_string().contains("create plain --striped /plain"), "{refused}");
        assert!(node.find("plain").is_err());
        // As it is told to.
        run(&node, "create plain striped /plain block 4096").await.unwrap();
        assert_eq!(node.find("plain").unwrap().record.borrow().block_bytes, 4096);
    });
}

/// Its servers do not answer: the command ends and says so, its name stays taken, who may use it is changed all the same, and
/// the size comes when they answer again.
#[test]
fn a_resize_that_has_no_answer_holds_up_nobody_for_ever() {
    with_lab(async |lab| {
        let node = lab.node("gw1");
        run(&node, "create disk striped /disk size 1048576").await.unwrap();
        let volume = node.find("disk").unwrap();
        let unanswered = volume.changing.lock().await;
        node.patience.set(Duration::from_millis(10));
        let refused = run(&node, "resize disk 2097152").await.unwrap_err();
        assert_eq!(refused.code, Errno::ETIMEDOUT, "{refused}");
        assert!(refused.to_string().contains("volume disk to 2097152 bytes"), "{refused}");
        let refused = run(&node, "export disk 127.0.0.1:3260").await.unwrap_err();
        assert!(refused.to_string().contains("in use by `resize`"), "{refused}");
        node.patience.set(PATIENCE);
        run(&node, "acl disk chap me a-long-enough-secret").await.unwrap();
        assert_eq!(volume.bytes(), Some(1 << 20));
        drop(unanswered);
        // It has its turn when the first one has ended.
        run(&node, "resize disk 4194304").await.unwrap();
        assert_eq!(volume.bytes(), Some(4 << 20));
    });
}

/// A file has one volume: another one would take it from the first, and both would have its bytes.
#[test]
fn the_file_of_a_volume_becomes_no_second_one() {
    with_lab(async |lab| {
        let node = lab.node("gw1");
        run(&node, "create disk striped /disk size 1048576").await.unwrap();
        let fs = node.fs().await.unwrap();
        let linked = async move {
            let id = fs.lookup(&own(), ROOT, &Name::from("disk")).await?.id;
            fs.link(&own(), id, ROOT, &Name::from("link")).await
        };
        node.within(linked).await.unwrap();
        for (path, why) in
            [("/disk", "volume disk"), ("//disk", "volume disk"), ("/link", "serves")]
        {
            let refused = run(&node, &format!("create other striped {path}")).await.unwrap_err();
            assert!(refused.to_string().contains(why), "{path}: {refused}");
        }
        let volume = node.find("disk").unwrap();
        assert!(!node.is_lost("disk", &volume, &volume.striped().unwrap()).await);
        assert_eq!(volume.bytes(), Some(1 << 20), "it is open");
        assert!(node.find("other").is_err());
    });
}
