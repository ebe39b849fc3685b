use super::super::manifest::{Entry, EntryKind};
use super::super::message::{encode_failures, hash};
use super::*;
use covey_ninep::tree::Bell;
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

/// Nodes that pass on what they get, without a network. One may pass on other bytes, with hashes that fit them.
#[derive(Clone)]
struct World {
    nodes: Rc<BTreeMap<String, Node>>,
    liar: &'static str,
}

#[derive(Default)]
struct Node {
    begun: RefCell<Option<(Manifest, Vec<String>)>>,
    chunks: RefCell<Vec<(Hash, Bytes)>>,
    arrived: Bell,
}

struct Control(World, String);

impl Net for World {
    fn reach(&self, destination: &str) -> Later<Result<Rc<dyn Below>>> {
        let control: Rc<dyn Below> = Rc::new(Control(self.clone(), destination.to_owned()));
        Box::pin(async { Ok(control) })
    }

    fn sleep(&self, _: Duration) -> Later<()> {
        Box::pin(std::future::pending())
    }

    fn unique(&self) -> u64 {
        1
    }
}

impl Below for Control {
    fn ask(&self, question: Bytes) -> Later<Result<Bytes>> {
        let (world, name) = (self.0.clone(), self.1.clone());
        Box::pin(async move { world.answer(&name, Question::decode(question)?).await })
    }
}

impl World {
    async fn answer(&self, name: &str, question: Question) -> Result<Bytes> {
        let node = &self.nodes[name];
        match question {
            Question::Begin { rest, manifest, .. } => {
                node.chunks.borrow_mut().clear();
                *node.begun.borrow_mut() = Some((manifest, rest));
            }
            Question::Chunk { hash, data, .. } => {
                node.chunks.borrow_mut().push((hash, data));
                node.arrived.ring();
            }
            Question::Report => {
                let (manifest, rest) = node.begun.borrow().clone().unwrap();
                let (count, world, from) = (manifest.chunks(), self.clone(), name.to_owned());
                let is_whole =
                    move || (world.nodes[&from].chunks.borrow().len() == count).then_some(());
                node.arrived.wait(is_whole).await;
                for below in rest {
                    self.pass_on(name, &manifest, &self.nodes[&below]);
                }
                return Ok(encode_failures(&[]));
            }
            Question::Sum => {
                let (manifest, _) = node.begun.borrow().clone().unwrap();
                let hashes: Vec<Hash> = node.chunks.borrow().iter().map(|chunk| chunk.0).collect();
                return Ok(Bytes::copy_from_slice(&sum(&manifest, &hashes)));
            }
        }
        Ok(Bytes::new())
    }

    fn pass_on(&self, name: &str, manifest: &Manifest, below: &Node) {
        let mut chunks = self.nodes[name].chunks.borrow().clone();
        if name == self.liar {
            let other = Bytes::from_static(b"other");
            chunks[1] = (hash(&other), other);
        }
        *below.chunks.borrow_mut() = chunks;
        *below.begun.borrow_mut() = Some((manifest.clone(), Vec::new()));
    }
}

struct Given(Rc<Manifest>);

impl Source for Given {
    fn manifest(&self) -> Rc<Manifest> {
        self.0.clone()
    }

    fn chunk(&self, index: usize) -> Later<Result<(Hash, Bytes)>> {
        let data = Bytes::from(vec![index as u8; 100]);
        Box::pin(async move { Ok((hash(&data), data)) })
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let (mut work, mut context) = (pin!(work), Context::from_waker(Waker::noop()));
    for _ in 0..1000 {
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return done;
        }
    }
    panic!("it does not end");
}

fn failed(liar: &'static str) -> Vec<String> {
    let names = ["a/1", "b/1", "c/1"].map(str::to_owned);
    let nodes = names.iter().map(|name| (name.clone(), Node::default())).collect();
    let world = World { nodes: Rc::new(nodes), liar };
    let program = Entry { kind: EntryKind::Program, path: Vec::new(), mode: 0o700, bytes: 400_000 };
    let manifest = Manifest { entries: vec![program], ..Manifest::default() };
    let source: Rc<dyn Source> = Rc::new(Given(Rc::new(manifest)));
    let turn = Turn::first(1);
    let failures = run(hand_over_checked(Rc::new(world), source, names.into(), 2, &turn));
    failures.into_iter().map(|failure| failure.destination).collect()
}

#[test]
fn who_got_other_bytes_from_the_node_above_has_failed() {
    assert_eq!(failed("nobody"), [""; 0]);
    assert_eq!(failed("a/1"), ["b/1", "c/1"]);
}
