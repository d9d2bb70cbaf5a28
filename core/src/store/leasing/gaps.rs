//! What a store lacks of the promises, in words for operators.

use super::super::simple::Methods;
use super::super::types::Gap;
use super::side::Opened;

/// What cannot be held with these methods and this side.
pub(super) fn of(methods: Methods, side: &Opened) -> Vec<Gap> {
    let gap = |promise, what| Gap { promise, what };
    let mut gaps = Vec::new();
    if !side.is_file() {
        gaps.push(gap(
            "P4",
            match side.remembers() {
                true => "subscriptions are kept with the store object and end with the process; set data_dir to keep them",
                false => "subscriptions end with the server",
            },
        ));
    }
    gaps.push(gap(
        "P7",
        "damage is seen only in rows that come back with the raw text they were stored with",
    ));
    gaps.push(gap(
        "P10",
        "attempts and failures are kept in memory and begin anew after a restart",
    ));
    gaps.push(gap(
        "P16",
        "a message sent again is known within one run of the server only",
    ));
    gaps.push(gap(
        "P17",
        "delayed messages are kept in memory and end with the server",
    ));
    if !methods.import {
        gaps.push(gap("P28", "a hot swap stores rows anew: import is missing"));
    }
    if !(methods.dead_letter && methods.list_dlq && methods.discard_dlq) {
        gaps.push(gap(
            "P37",
            "dead letters are kept in memory and end with the server: deadLetter, listDlq or discardDlq is missing",
        ));
    }
    gaps
}
