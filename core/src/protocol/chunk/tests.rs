//! Joining and cutting.

use std::borrow::Cow;

use proptest::prelude::*;

use super::*;

const MAX: usize = 1 << 20;

fn chunk<'a>(id: &'a str, index: u64, total: u64, data: &'a str) -> ProduceChunk<'a> {
    ProduceChunk {
        transfer: Cow::Borrowed(id),
        index: Some(index),
        total: Some(total),
        data: Some(data),
    }
}

fn kind(step: Result<Step>) -> ErrorKind {
    step.unwrap_err().kind()
}

/// As JavaScript writes it: lone halves as escapes.
fn json_of_units(units: &[u16]) -> String {
    let mut out = vec![b'"'];
    for decoded in char::decode_utf16(units.iter().copied()) {
        match decoded {
            Ok(c) => json::put_escaped(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(half) => out.extend(format!("\\u{:04x}", half.unpaired_surrogate()).bytes()),
        }
    }
    out.push(b'"');
    String::from_utf8(out).unwrap()
}

#[test]
fn pieces_come_in_any_order_and_duplicates_do_no_harm() {
    let mut assembler = Assembler::new(MAX);
    let now = Duration::ZERO;
    for (index, data) in [(2, "\"c\""), (0, "\"a\""), (2, "\"x\""), (0, "\"a\"")] {
        let step = assembler.add(&chunk("t", index, 3, data), now).unwrap();
        assert_eq!(step, Step::Partial);
    }
    let whole = assembler.add(&chunk("t", 1, 3, "\"b\""), now).unwrap();
    assert_eq!(whole, Step::Complete("abc".into()));
    assert_eq!(assembler.held(), 0);
    let late = assembler.add(&chunk("t", 1, 3, "\"b\""), now).unwrap();
    assert_eq!(late, Step::Repeated);
    assert!(assembler.is_empty());
}

#[test]
fn a_completed_transfers_id_may_be_used_again_for_another_message() {
    let mut assembler = Assembler::new(MAX);
    let mut add = |index, data| assembler.add(&chunk("t", index, 2, data), Duration::ZERO);
    add(0, "\"a\"").unwrap();
    assert_eq!(add(1, "\"b\"").unwrap(), Step::Complete("ab".into()));
    assert_eq!(add(0, "\"a\"").unwrap(), Step::Repeated);
    assert_eq!(add(0, "\"x\"").unwrap(), Step::Partial);
    assert_eq!(add(1, "\"y\"").unwrap(), Step::Complete("xy".into()));
}

#[test]
fn a_pair_cut_in_halves_joins_again() {
    let mut assembler = Assembler::new(MAX);
    let add = |assembler: &mut Assembler, index, data| {
        assembler.add(&chunk("t", index, 2, data), Duration::ZERO)
    };
    add(&mut assembler, 1, r#""\ude00}""#).unwrap();
    let whole = add(&mut assembler, 0, r#""{😀\ud83d""#).unwrap();
    assert_eq!(whole, Step::Complete("{😀😀}".into()));
}

#[test]
fn a_half_that_stays_alone_drops_the_transfer() {
    let mut assembler = Assembler::new(MAX);
    let step = assembler.add(&chunk("t", 0, 1, r#""\ud83d""#), Duration::ZERO);
    assert_eq!(kind(step), ErrorKind::ChunkDropped);
    // An escape of the inner JSON is ASCII and stays what it is.
    let step = assembler.add(
        &chunk("u", 0, 1, r#""{\"a\":\"\\ud83d\"}""#),
        Duration::ZERO,
    );
    assert_eq!(step.unwrap(), Step::Complete(r#"{"a":"\ud83d"}"#.into()));
}

#[test]
fn numbers_out_of_range_drop_the_transfer_once() {
    for (index, total) in [
        (Some(0), None),
        (Some(0), Some(0)),
        (Some(0), Some(4097)),
        (Some(2), Some(2)),
        (None, Some(2)),
        (Some(1), Some(3)),
    ] {
        let mut assembler = Assembler::new(MAX);
        assembler
            .add(&chunk("t", 0, 2, "\"a\""), Duration::ZERO)
            .unwrap();
        let bad = ProduceChunk {
            index,
            total,
            ..chunk("t", 0, 0, "\"b\"")
        };
        let step = assembler.add(&bad, Duration::ZERO);
        assert_eq!(kind(step), ErrorKind::ChunkDropped, "{index:?} {total:?}");
        assert_eq!(assembler.held(), 0);
        let later = assembler.add(&chunk("t", 1, 2, "\"b\""), Duration::ZERO);
        assert_eq!(later.unwrap(), Step::Late(None));
    }
}

#[test]
fn the_seventeenth_open_transfer_is_refused_and_the_others_stay() {
    let mut assembler = Assembler::new(MAX);
    let ids: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    for id in &ids[..16] {
        assembler
            .add(&chunk(id, 0, 2, "\"a\""), Duration::ZERO)
            .unwrap();
    }
    let step = assembler.add(&chunk(&ids[16], 0, 2, "\"a\""), Duration::ZERO);
    assert_eq!(kind(step), ErrorKind::ChunkDropped);
    let step = assembler.add(&chunk("0", 1, 2, "\"b\""), Duration::ZERO);
    assert_eq!(step.unwrap(), Step::Complete("ab".into()));
}

#[test]
fn a_message_over_the_limit_is_too_large() {
    let mut assembler = Assembler::new(3);
    assembler
        .add(&chunk("t", 0, 3, "\"ab\""), Duration::ZERO)
        .unwrap();
    let step = assembler.add(&chunk("t", 1, 3, "\"cd\""), Duration::ZERO);
    assert_eq!(step.unwrap(), Step::TooLarge(4));
    assert_eq!(assembler.held(), 0);
    let late = assembler.add(&chunk("t", 2, 3, "\"e\""), Duration::ZERO);
    assert_eq!(late.unwrap(), Step::Late(Some(4)));
}

#[test]
fn empty_pieces_cost_something_too() {
    let mut assembler = Assembler::new(MAX);
    assembler
        .add(&chunk("t", 0, 2, "\"\""), Duration::ZERO)
        .unwrap();
    assert!(assembler.held() > 0);
    assembler.drop_transfer("t");
    assert_eq!(assembler.held(), 0);
}

#[test]
fn a_transfer_without_pieces_for_thirty_seconds_is_dropped() {
    let mut assembler = Assembler::new(MAX);
    let at = Duration::from_secs;
    assembler.add(&chunk("old", 0, 2, "\"a\""), at(0)).unwrap();
    assembler.add(&chunk("new", 0, 2, "\"a\""), at(20)).unwrap();
    assert!(assembler.sweep(at(29)).is_empty());
    assert_eq!(assembler.sweep(at(30)).len(), 1);
    assert!(assembler.sweep(at(30)).is_empty());
    let late = assembler.add(&chunk("old", 1, 2, "\"b\""), at(31));
    assert_eq!(late.unwrap(), Step::Late(None));
    let whole = assembler.add(&chunk("new", 1, 2, "\"b\""), at(31));
    assert_eq!(whole.unwrap(), Step::Complete("ab".into()));
}

#[test]
fn transfer_ids_are_base36_time_and_something_random() {
    let id = transfer_id(Timestamp(36 * 36 + 35));
    let (time, random) = id.split_once('-').unwrap();
    assert_eq!(time, "10z");
    assert_eq!(random.len(), 8);
    assert_ne!(id, transfer_id(Timestamp(36 * 36 + 35)));
}

proptest! {
    #[test]
    fn what_was_cut_anywhere_between_units_is_joined_again(
        text in any::<String>(), size in 1usize..9, reverse in any::<bool>(),
    ) {
        let units: Vec<u16> = text.encode_utf16().collect();
        prop_assume!(!units.is_empty());
        let mut pieces: Vec<(u64, String)> = units.chunks(size).map(json_of_units)
            .enumerate().map(|(at, piece)| (at as u64, piece)).collect();
        let total = pieces.len() as u64;
        if reverse {
            pieces.reverse();
        }
        let mut assembler = Assembler::new(MAX);
        let mut last = Step::Repeated;
        for (index, data) in &pieces {
            last = assembler.add(&chunk("t", *index, total, data), Duration::ZERO).unwrap();
        }
        prop_assert_eq!(last, Step::Complete(text));
    }

    #[test]
    fn pieces_are_within_the_threshold_and_make_the_whole(
        text in any::<String>(), threshold in 2usize..9,
    ) {
        let pieces: Vec<&[u8]> = split(text.as_bytes(), threshold).collect();
        prop_assert_eq!(&pieces.concat(), text.as_bytes());
        for piece in pieces {
            prop_assert!(!piece.is_empty());
            let piece = std::str::from_utf8(piece).unwrap();
            prop_assert!(piece.encode_utf16().count() <= threshold);
        }
    }

    #[test]
    fn no_sequence_of_pieces_panics_or_holds_more_than_it_says(
        chunks in prop::collection::vec(
            (0u8..20, prop::option::of(0u64..6), prop::option::of(0u64..6),
             prop::option::of(r#""[a-c\\u]{0,5}""#)), 0..60),
    ) {
        let mut assembler = Assembler::new(12);
        for (id, index, total, data) in &chunks {
            let id = id.to_string();
            let piece = ProduceChunk {
                transfer: id.into(), index: *index, total: *total, data: data.as_deref(),
            };
            let _ = assembler.add(&piece, Duration::ZERO);
            let held: usize = assembler.open.values().map(Transfer::held).sum();
            prop_assert_eq!(assembler.held(), held);
            prop_assert!(assembler.open.len() <= MAX_OPEN);
            prop_assert!(assembler.ended.len() <= REMEMBERED);
        }
    }
}
