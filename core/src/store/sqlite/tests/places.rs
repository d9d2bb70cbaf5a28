//! What may stand where the database should be, and that a refused start changes nothing.

use std::fs;

use rusqlite::Connection;

use super::*;

/// Opens, which must be refused with this kind, naming the path and the reason, with every file as
/// it was.
async fn refused(house: &House, kind: ErrorKind, reason: &str) {
    let before: Vec<_> = house.files();
    let content = fs::read(house.path()).ok();
    let error = house.try_open().await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.message();
    let path = house.path().display().to_string();
    assert!(text.contains(&path) && text.contains(reason), "{text}");
    assert_eq!(fs::read(house.path()).ok(), content);
    let names = |names: Vec<String>| {
        let names = names.into_iter();
        let kept = names.filter(|name| !name.ends_with(".lock"));
        kept.collect::<Vec<_>>()
    };
    assert_eq!(names(house.files()), names(before));
}

#[tokio::test]
async fn a_missing_directory_is_refused() {
    let mut house = House::new();
    house.options.path = Some(house.folder.path().join("none").join("x.sqlite"));
    refused(&house, ErrorKind::Config, "does not exist").await;
}

#[tokio::test]
async fn a_directory_is_refused() {
    let house = House::new();
    fs::create_dir(house.path()).unwrap();
    refused(&house, ErrorKind::Config, "is a directory").await;
}

#[tokio::test]
async fn a_file_that_may_not_be_written_is_refused() {
    let house = House::new();
    house.open().await.close().await.unwrap();
    let mut rights = fs::metadata(house.path()).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(house.path(), rights).unwrap();
    refused(&house, ErrorKind::Config, "read-only").await;
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let house = House::new();
    fs::write(
        house.path(),
        "these are notes, not a database\n".repeat(500),
    )
    .unwrap();
    refused(&house, ErrorKind::StoreCorrupt, "not a database").await;
}

#[tokio::test]
async fn the_database_of_another_program_is_refused() {
    let house = House::new();
    let theirs = Connection::open(house.path()).unwrap();
    theirs.execute_batch("CREATE TABLE recipe (name)").unwrap();
    drop(theirs);
    refused(&house, ErrorKind::Config, "another program").await;
}

#[tokio::test]
async fn a_newer_version_is_refused_with_both_numbers() {
    let house = House::new();
    house.open().await.close().await.unwrap();
    let newer = Connection::open(house.path()).unwrap();
    newer.execute_batch("PRAGMA user_version = 77").unwrap();
    drop(newer);
    refused(&house, ErrorKind::StoreUnsupported, "77").await;
    refused(&house, ErrorKind::StoreUnsupported, "up to 2").await;
}

#[tokio::test]
async fn a_damaged_database_is_refused() {
    let house = House::new();
    let store = house.open().await;
    store.filled("a", 200, 2000).await;
    store.close().await.unwrap();
    let mut content = fs::read(house.path()).unwrap();
    let half = content.len() / 2 / 4096 * 4096;
    content[4096 * 3..half].fill(0xA5);
    fs::write(house.path(), content).unwrap();
    refused(&house, ErrorKind::StoreCorrupt, "damaged").await;
}

#[tokio::test]
async fn a_database_in_use_is_refused_and_named_until_it_is_free() {
    let house = House::new();
    let store = house.open().await;
    let holder = std::process::id().to_string();
    refused(&house, ErrorKind::StoreLocked, &holder).await;
    store.close().await.unwrap();
    house.open().await.close().await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_database_in_use_is_refused_though_its_lock_file_was_deleted() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 1, 10).await;
    let lock = open::beside(house.path(), ".lock");
    for second in 1..=2 {
        fs::remove_file(&lock).unwrap();
        let error = house.try_open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreLocked);
        store.maintain(10, at(second)).await.unwrap();
        let holder = std::process::id().to_string();
        refused(&house, ErrorKind::StoreLocked, &holder).await;
    }
    store.put(queue.log, 2, 10).await.unwrap();
    assert!(!store.health().is_degraded);
    store.close().await.unwrap();
    assert_eq!(house.open().await.waiting(queue.queue).await, [1, 2]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_database_in_use_is_refused_under_another_name_too() {
    let house = House::new();
    let store = house.open().await;
    let mut other = House::new();
    let link = other.folder.path().join("link.sqlite");
    std::os::unix::fs::symlink(house.path(), &link).unwrap();
    other.options.path = Some(link);
    let error = other.try_open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreLocked);
    store.close().await.unwrap();
}

#[tokio::test]
async fn an_empty_file_becomes_a_database() {
    let house = House::new();
    fs::write(house.path(), "").unwrap();
    let store = house.open().await;
    store.filled("a", 1, 10).await;
}

#[tokio::test]
async fn an_empty_file_in_the_place_of_a_database_is_refused() {
    let house = House::new();
    house.open().await.close().await.unwrap();
    fs::write(house.path(), "").unwrap();
    refused(&house, ErrorKind::StoreCorrupt, "is empty and was not").await;
}

#[tokio::test]
async fn in_the_place_of_a_database_that_was_deleted_a_new_one_begins_with_a_warning() {
    let house = House::new();
    house.open().await.close().await.unwrap();
    fs::remove_file(house.path()).unwrap();
    let store = house.open().await;
    let warnings = store.health().warnings;
    assert!(warnings[0].contains("gone"), "{warnings:?}");
    store.filled("a", 1, 10).await;
    store.close().await.unwrap();
    assert_eq!(house.open().await.health().warnings, [""; 0]);
}

#[tokio::test]
async fn a_log_that_was_deleted_after_a_kill_is_missed_at_the_next_start() {
    let house = House::new();
    let store = house.open().await;
    store.filled("a", 5, 100).await;
    let killed = || {
        let left = house.as_a_kill_leaves_it();
        let [from, to] = [&house, &left].map(|house| open::beside(house.path(), ".lock"));
        fs::copy(from, to).unwrap();
        left
    };
    assert_eq!(killed().open().await.health().warnings, [""; 0]);
    let cut = killed();
    fs::remove_file(open::beside(cut.path(), "-wal")).unwrap();
    let looked = || SqliteStore::check(&cut.options, &mut |_| (), &mut |_| ());
    // Who looks only does not make it forgotten.
    looked().unwrap();
    let opened = cut.open().await;
    let warnings = opened.health().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("-wal"), "{warnings:?}");
    opened.close().await.unwrap();
    assert!(!open::beside(cut.path(), "-wal").exists());
    assert_eq!(cut.open().await.health().warnings, [""; 0]);
}

#[tokio::test]
async fn a_log_without_its_database_is_refused() {
    let house = House::new();
    let store = house.open().await;
    store.filled("a", 5, 100).await;
    let left = house.as_a_kill_leaves_it();
    fs::write(left.path(), "").unwrap();
    refused(&left, ErrorKind::StoreCorrupt, "its log").await;
    fs::remove_file(left.path()).unwrap();
    refused(&left, ErrorKind::StoreCorrupt, "its log").await;
}

#[tokio::test]
async fn a_step_to_a_version_that_was_cut_short_is_done_again() {
    // What a crash in the first step leaves: a file with our mark and nothing else.
    let house = House::new();
    let cut = Connection::open(house.path()).unwrap();
    let mark = "PRAGMA journal_mode = WAL; PRAGMA application_id = 1381192788";
    cut.execute_batch(mark).unwrap();
    drop(cut);
    house.open().await.filled("a", 1, 10).await;
}

#[tokio::test]
async fn the_database_is_set_up_as_documented() {
    let house = House::new();
    let store = house.open().await;
    let asked = store.call(Nature::Read, |core| {
        let number = |name: &str| -> i64 {
            let sql = format!("PRAGMA {name}");
            core.db
                .conn()
                .query_row(&sql, [], |row| row.get(0))
                .unwrap()
        };
        let names = [
            "page_size",
            "auto_vacuum",
            "synchronous",
            "application_id",
            "user_version",
        ];
        Ok(names.map(number))
    });
    assert_eq!(asked.await.unwrap(), [4096, 2, 2, 0x5253_5454, 2]);
    let mode = "PRAGMA journal_mode";
    let file = Connection::open(house.path()).unwrap();
    let mode: String = file.query_row(mode, [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_backup_is_whole_and_takes_nobodys_place() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 20, 500).await;
    let mut copy = House::new();
    copy.options.path = Some(copy.folder.path().join("copy.sqlite"));
    store.backup(copy.path().into()).await.unwrap();
    store.put(queue.log, 21, 500).await.unwrap();
    let again = store.backup(copy.path().into()).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Config);
    assert_eq!(copy.files(), ["copy.sqlite"]);
    let opened = copy.open().await;
    assert_eq!(
        opened.waiting(queue.queue).await,
        (1..=20).collect::<Vec<_>>()
    );
    assert_eq!(store.waiting(queue.queue).await.len(), 21);
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_database_its_log_and_its_backup_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let house = House::new();
    let store = house.open().await;
    store.filled("a", 3, 10).await;
    let copy = house.folder.path().join("copy.sqlite");
    store.backup(copy).await.unwrap();
    for name in house.files() {
        if name.ends_with(".lock") || name.ends_with(".ballast") {
            continue;
        }
        let file = fs::metadata(house.folder.path().join(&name)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_backup_leaves_what_others_have_beside_it() {
    let house = House::new();
    let store = house.open().await;
    store.filled("a", 20, 500).await;
    let folder = tempfile::TempDir::new().unwrap();
    let copy = folder.path().join("copy.sqlite");
    let theirs = folder.path().join("copy.sqlite.part");
    fs::write(&theirs, "mine").unwrap();
    store.backup(copy.clone()).await.unwrap();
    assert_eq!(fs::read(&theirs).unwrap(), b"mine");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn of_two_backups_to_one_path_one_is_refused_and_the_other_is_whole() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 200, 500).await;
    let mut copy = House::new();
    copy.options.path = Some(copy.folder.path().join("copy.sqlite"));
    let (one, other) = (
        store.backup(copy.path().into()),
        store.backup(copy.path().into()),
    );
    let (one, other) = tokio::join!(one, other);
    let errors: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].kind(), ErrorKind::Config);
    assert!(
        errors[0].message().contains("of that name"),
        "{}",
        errors[0]
    );
    assert_eq!(copy.files(), ["copy.sqlite"]);
    let opened = copy.open().await;
    assert_eq!(opened.waiting(queue.queue).await.len(), 200);
}

#[tokio::test]
async fn what_is_no_name_of_a_file_is_refused() {
    let mut house = House::new();
    let store = house.open().await;
    for (name, reason) in [
        ("file:copy.sqlite", "not an address"),
        ("FILE:///tmp/copy.sqlite", "not an address"),
        ("copy\0.sqlite", "NUL"),
        ("", "empty"),
    ] {
        let error = store.backup(name.into()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{name:?}");
        assert!(error.message().contains(reason), "{error}");
        house.options.path = Some(name.into());
        let error = house.try_open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{name:?}");
        assert!(error.message().contains(reason), "{error}");
    }
}
