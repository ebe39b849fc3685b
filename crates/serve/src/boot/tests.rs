use super::*;

#[test]
fn an_image_is_put_listed_replaced_and_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file) = (scratch.path().join("boot"), scratch.path().join("disk"));
    assert!(list(&dir).unwrap().is_empty());
    for content in [vec![1; 200_000], vec![2; 100]] {
        std::fs::write(&file, &content).unwrap();
        let sum = put(&dir, "disk", "x86_64", &file, |_| {}).unwrap();
        assert_eq!(sum.bytes, content.len() as u64);
        assert_eq!(list(&dir).unwrap(), [("disk".into(), "x86_64".into(), Ok(sum.clone()))]);
        let names = std::fs::read_dir(dir.join("disk/x86_64")).unwrap().count();
        assert_eq!(names, 2, "nothing of the one before is left");
        let (found, data) = open_image(&dir.join("disk/x86_64")).unwrap();
        assert_eq!(found, sum);
        assert_eq!(data.read_blocking(0, 300_000).unwrap(), content);
    }
    assert_eq!(remove(&dir, "disk", Some("s390x")).unwrap(), Removed::Nothing);
    assert_eq!(remove(&dir, "disk", None).unwrap(), Removed::Yes);
    assert!(list(&dir).unwrap().is_empty());
    for name in ["", "..", "a/b", ".x", "log", "-x"] {
        assert!(put(&dir, name, "any", &file, |_| {}).is_err(), "{name}");
        assert!(remove(&dir, name, None).is_err(), "{name}");
    }
}

#[test]
fn a_look_finds_what_is_new_and_keeps_what_is_known() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let scratch = tempfile::tempdir().unwrap();
        let (dir, file) = (scratch.path().join("boot"), scratch.path().join("disk"));
        std::fs::write(&file, b"first").unwrap();
        put(&dir, "disk", "any", &file, |_| {}).unwrap();
        let shelf = Shared(Rc::new(Shelf::new(dir.clone())));
        let image = |all: Rc<Catalogue>| all[&Name::from("disk")][&Name::from("any")].clone();
        let first = image(look(&shelf).await);
        assert!(Rc::ptr_eq(&first, &image(look(&shelf).await)));
        std::fs::write(&file, b"second").unwrap();
        put(&dir, "disk", "any", &file, |_| {}).unwrap();
        let second = image(look(&shelf).await);
        assert_eq!((first.sum().bytes, second.sum().bytes), (5, 6));
        // Cut short: left out, and found again when it is whole.
        let data = dir.join("disk/any").join(data_name(second.sum()));
        std::fs::write(&data, b"sec").unwrap();
        std::fs::write(dir.join("disk/any/sum"), second.sum().text()).unwrap();
        assert!(look(&shelf).await.is_empty());
        std::fs::write(&data, b"second").unwrap();
        assert_eq!(image(look(&shelf).await).sum().bytes, 6);
        // Whoever asks while one looks may ask for what has come since.
        let earlier = shelf.look();
        tokio::task::yield_now().await;
        put(&dir, "other", "any", &file, |_| {}).unwrap();
        assert!(look(&shelf).await.contains_key(&Name::from("other")));
        drop(earlier);
        assert!(!shelf.0.is_looking.get());
    });
}

async fn look(shelf: &Shared) -> Rc<Catalogue> {
    match shelf.look() {
        Outcome::Now(found) => found.unwrap(),
        Outcome::Later(found) => found.await.unwrap(),
    }
}
