//! The reader against a bare `WebSocketContext`: same delivery, same replies, same end, however the
//! bytes are cut.

use proptest::prelude::*;

use super::super::permits::Permits;
use super::*;

const LIMIT: usize = 2000;

/// What came out, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Out {
    Text(String),
    Binary(Vec<u8>),
    Reply(Vec<u8>),
    Oversize(bool, u64),
    PeerClosed,
    Violation(u16),
}

struct Tester {
    out: Vec<Out>,
    held: usize,
    permits: Permits,
}

impl Tester {
    fn new() -> Self {
        Self {
            out: Vec::new(),
            held: 0,
            permits: Permits::new(1 << 20, 1 << 20),
        }
    }

    fn end(&mut self, stop: Stop) {
        self.out.push(match stop {
            Stop::PeerClosed => Out::PeerClosed,
            Stop::Violation(code, _) => Out::Violation(code),
            other => panic!("{other:?}"),
        });
    }
}

impl Sink for Tester {
    fn text(&mut self, text: &str) -> Result<(), Stop> {
        self.out.push(Out::Text(text.to_owned()));
        Ok(())
    }
    fn binary(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.out.push(Out::Binary(bytes.to_vec()));
        Ok(())
    }
    fn reply(&mut self, frame: Bytes) {
        self.out.push(Out::Reply(frame.to_vec()));
    }
    fn oversize(&mut self, binary: bool, size: u64) {
        self.out.push(Out::Oversize(binary, size));
    }
    fn held(&self) -> usize {
        self.held
    }
    fn may_hold(&mut self, permit: &mut Option<Permit>, bytes: usize) -> bool {
        *permit = permit.take().or_else(|| self.permits.try_take(None, 0));
        permit.as_mut().is_some_and(|permit| permit.grow(bytes))
    }
}

/// What our reader makes of `bytes`, cut by turns into pieces of these sizes.
fn ours(bytes: &[u8], cuts: &[usize]) -> Vec<Out> {
    let (mut reader, mut tester) = (Reader::new(LIMIT), Tester::new());
    let (mut rest, mut sizes) = (bytes.to_vec(), cuts.iter().cycle());
    while !rest.is_empty() {
        let size = sizes
            .next()
            .map_or(rest.len(), |size| rest.len().min(*size));
        let after = rest.split_off(size);
        if let Err(stop) = reader.feed(&mut rest, &mut tester) {
            tester.end(stop);
            break;
        }
        rest = after;
    }
    tester.out
}

/// What a bare context makes of them.
fn bare(bytes: &[u8]) -> Vec<Out> {
    let mut tester = Tester::new();
    let mut context = context(LIMIT);
    let mut tape = Tape {
        input: bytes,
        output: Vec::new(),
    };
    loop {
        let read = context.read(&mut tape);
        if !tape.output.is_empty() {
            tester.reply(std::mem::take(&mut tape.output).into());
        }
        match read {
            Ok(Message::Text(text)) => tester.out.push(Out::Text(text.to_string())),
            Ok(Message::Binary(bytes)) => tester.out.push(Out::Binary(bytes.to_vec())),
            Ok(_) => {}
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => {
                tester.end(stop(&error));
                break;
            }
        }
    }
    tester.out
}

/// A client's frame: first byte, payload, whether masked, and bytes of the length (0: shortest).
fn frame(first: u8, payload: &[u8], masked: bool, wide: usize) -> Vec<u8> {
    let mut out = vec![first];
    let bit = if masked { 0x80 } else { 0 };
    match (payload.len(), wide) {
        (len @ 0..126, 0) => out.push(bit | len as u8),
        (len @ ..65_536, 0 | 2) => {
            out.push(bit | 126);
            out.extend((len as u16).to_be_bytes());
        }
        (len, _) => {
            out.push(bit | 127);
            out.extend((len as u64).to_be_bytes());
        }
    }
    let start = out.len() + if masked { 4 } else { 0 };
    if masked {
        out.extend([9, 0, 200, 77]);
    }
    out.extend(payload);
    if masked {
        unmask(&mut out[start..], [9, 0, 200, 77]);
    }
    out
}

fn plain(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, payload, true, 0)
}

/// The kinds of input that once told websocket libraries apart; each ends with a plain frame.
fn kinds() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let close = |code: u16, reason: &[u8]| plain(0x88, &[&code.to_be_bytes(), reason].concat());
    vec![
        ("plain text", vec![plain(0x81, b"hello")]),
        ("empty text", vec![plain(0x81, b"")]),
        ("binary", vec![plain(0x82, &[0, 255])]),
        (
            "fragments",
            vec![plain(1, b"a"), plain(0, b"b"), plain(0x80, b"c")],
        ),
        (
            "ping inside",
            vec![plain(1, b"a"), plain(0x89, b"p"), plain(0x80, b"b")],
        ),
        ("split UTF-8", vec![plain(1, &[0xc3]), plain(0x80, &[0xa9])]),
        (
            "half a character",
            vec![plain(1, b"a"), plain(0x80, &[0xc3])],
        ),
        ("bad UTF-8", vec![plain(0x81, &[0xff])]),
        ("unmasked", vec![frame(0x81, b"x", false, 0)]),
        ("reserved bits", vec![plain(0xc1, b"x")]),
        ("opcode 3", vec![plain(0x83, b"x")]),
        ("opcode 11", vec![plain(0x8b, b"x")]),
        ("nothing to continue", vec![plain(0x80, b"x")]),
        (
            "text inside fragments",
            vec![plain(1, b"a"), plain(0x81, b"x")],
        ),
        ("ping of 126", vec![plain(0x89, &[7; 126])]),
        ("fragmented ping", vec![plain(0x09, b"x")]),
        (
            "many pings",
            vec![plain(0x89, b"1"), plain(0x89, b"2"), plain(0x8a, b"")],
        ),
        ("close", vec![close(1000, b"bye")]),
        ("close without code", vec![plain(0x88, b"")]),
        ("close of one byte", vec![plain(0x88, b"x")]),
        ("close 1005", vec![close(1005, b"")]),
        ("close with bad UTF-8", vec![close(1000, &[0xff])]),
        (
            "long forms",
            vec![frame(0x81, b"x", true, 2), frame(0x82, b"y", true, 8)],
        ),
        (
            "too large in sum",
            vec![plain(1, &[b'a'; 1500]), plain(0x80, &[b'b'; 501])],
        ),
        ("as large as allowed", vec![plain(0x81, &[b'a'; LIMIT])]),
    ]
}

#[test]
fn every_kind_of_input_ends_as_with_a_bare_context_however_it_is_cut() {
    for (name, frames) in kinds() {
        let mut bytes = frames.concat();
        bytes.extend(plain(0x81, b"after"));
        let expected = bare(&bytes);
        for cuts in [vec![], vec![1], vec![7], vec![1000, 1]] {
            assert_eq!(ours(&bytes, &cuts), expected, "{name}, cut {cuts:?}");
        }
    }
}

#[test]
fn a_frame_above_the_limit_is_thrown_away_and_what_follows_arrives() {
    for (first, binary) in [(0x81, false), (0x82, true)] {
        let mut bytes = plain(first, &[0xff; 2 * LIMIT]);
        bytes.extend(plain(0x81, b"after"));
        for cuts in [vec![], vec![1], vec![7], vec![1500]] {
            let expected = [
                Out::Oversize(binary, 2 * LIMIT as u64),
                Out::Text("after".to_owned()),
            ];
            assert_eq!(ours(&bytes, &cuts), expected, "{cuts:?}");
        }
    }
}

#[test]
fn beyond_twice_the_limit_the_header_is_enough() {
    let above = plain(0x81, &[b'x'; 2 * LIMIT + 1]);
    assert_eq!(ours(&above[..8], &[]), [Out::Violation(SIZE)]);
    let mut absurd = vec![0x81, 0xff];
    absurd.extend(u64::MAX.to_be_bytes());
    absurd.extend([0; 4]);
    assert_eq!(ours(&absurd, &[1]), [Out::Violation(SIZE)]);
    // A fragment cannot be thrown away alone.
    assert_eq!(
        ours(&plain(0x01, &[b'x'; LIMIT + 1]), &[]),
        [Out::Violation(SIZE)]
    );
}

#[test]
fn a_large_unfinished_frame_starves_until_its_permit_and_gives_it_back() {
    let size = FREE + 1;
    let (mut reader, mut tester) = (Reader::new(1 << 20), Tester::new());
    tester.permits = Permits::new(size, size);
    let other = tester.permits.try_take(None, 1).unwrap();
    let bytes = plain(0x81, &vec![b'x'; size]);
    let (start, rest) = bytes.split_at(100);
    reader.feed(&mut start.to_vec(), &mut tester).unwrap();
    assert!(reader.is_starving());
    reader.retry(&mut tester).unwrap();
    assert!(reader.is_starving() && tester.out.is_empty());
    drop(other);
    reader.retry(&mut tester).unwrap();
    assert!(!reader.is_starving());
    assert_eq!(tester.permits.taken(), size);
    reader.feed(&mut rest.to_vec(), &mut tester).unwrap();
    assert!(matches!(&tester.out[..], [Out::Text(text)] if text.len() == size));
    assert_eq!(tester.permits.taken(), 0);
}

#[test]
fn what_the_sink_holds_counts_with_the_next_attachment() {
    let (mut reader, mut tester) = (Reader::new(1 << 20), Tester::new());
    tester.permits = Permits::new(1, 1);
    let _other = tester.permits.try_take(None, 1).unwrap();
    tester.held = FREE;
    let mut bytes = plain(0x82, b"x");
    bytes.extend(plain(0x81, b"behind"));
    reader.feed(&mut bytes, &mut tester).unwrap();
    assert!(reader.is_starving() && tester.out.is_empty());
    tester.held = FREE - 1;
    reader.retry(&mut tester).unwrap();
    assert_eq!(
        tester.out,
        [Out::Binary(b"x".to_vec()), Out::Text("behind".to_owned())]
    );
}

#[test]
fn nothing_is_kept_between_frames() {
    let (mut reader, mut tester) = (Reader::new(1 << 20), Tester::new());
    let bytes = [plain(1, &[b'a'; 500]), plain(0x89, b""), plain(0x80, b"b")].concat();
    for byte in bytes {
        reader.feed(&mut [byte], &mut tester).unwrap();
    }
    assert_eq!(reader.pending.capacity(), 0);
    assert!(reader.odd.is_none() && reader.open.is_none());
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        12 => Just(0x81u8),
        4 => Just(0x82),
        4 => Just(0x01),
        6 => Just(0x80),
        4 => Just(0x00),
        3 => Just(0x89),
        1 => Just(0x8a),
        1 => Just(0x88),
        1 => any::<u8>(),
    ];
    let payload = prop_oneof![
        8 => "[a-zé€😀]{0,60}".prop_map(String::into_bytes),
        2 => proptest::collection::vec(any::<u8>(), 0..200),
        1 => (0..900usize).prop_map(|len| vec![b'x'; len]),
    ];
    let wide = prop_oneof![8 => Just(0usize), 1 => Just(2), 1 => Just(8)];
    (first, payload, prop::bool::weighted(0.98), wide)
        .prop_map(|(first, payload, masked, wide)| frame(first, &payload, masked, wide))
}

proptest! {
    #[test]
    fn frames_of_any_kind_end_as_with_a_bare_context(
        frames in proptest::collection::vec(any_frame(), 1..12),
        cuts in proptest::collection::vec(1..300usize, 0..4),
    ) {
        let bytes = frames.concat();
        let expected = bare(&bytes);
        prop_assert_eq!(ours(&bytes, &cuts), expected.clone());
        prop_assert_eq!(ours(&bytes, &[1]), expected);
    }

    #[test]
    fn any_bytes_are_read_without_panic_and_in_bounds(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        cuts in proptest::collection::vec(1..50usize, 1..4),
    ) {
        let (mut reader, mut tester) = (Reader::new(LIMIT), Tester::new());
        let mut rest = &bytes[..];
        for size in cuts.iter().cycle() {
            let (now, after) = rest.split_at((*size).min(rest.len()));
            if now.is_empty() || reader.feed(&mut now.to_vec(), &mut tester).is_err() {
                break;
            }
            prop_assert!(reader.pending.len() <= LIMIT + 14);
            rest = after;
        }
    }
}
