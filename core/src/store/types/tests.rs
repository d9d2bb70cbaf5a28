//! Ids as text.

use super::*;

#[test]
fn a_dead_letters_id_survives_its_text() {
    let id = DeadLetterId {
        queue: QueueId(u64::MAX),
        seq: u64::MAX,
    };
    let text = id.to_string();
    assert!(text.len() <= 64);
    assert_eq!(text.parse(), Ok(id));
}

#[test]
fn any_other_text_is_an_unknown_dead_letter() {
    for text in [
        "",
        "1",
        "-",
        "1-",
        "-1",
        "+1-2",
        "01-2",
        "1-2-3",
        "a-b",
        "1-99999999999999999999",
    ] {
        let error = text.parse::<DeadLetterId>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadLetterUnknown, "{text}");
    }
}
