//! The suite that every store must pass: what [`Store`](super::Store) promises, as checks whose
//! names are sentences.
//!
//! A check gets a maker of empty stores and panics when a promise is broken. It hands in every
//! time itself, so it needs no clock and does not sleep. [`store_contract!`](crate::store_contract)
//! makes one test of each; [`run`] runs them all.

#![expect(
    clippy::unwrap_used,
    missing_docs,
    reason = "checks are tests: they panic, and their names say what they check"
)]

mod bounds;
mod classes;
mod copies;
mod dead;
mod dedupe;
mod delayed;
mod documents;
mod expiry;
mod order;
mod queues;
mod reading;
mod rig;
mod settling;
mod skipping;

use std::future::Future;
use std::pin::Pin;

use super::{Bounds, SharedStore};

pub use bounds::*;
pub use classes::*;
pub use copies::*;
pub use dead::*;
pub use dedupe::*;
pub use delayed::*;
pub use documents::*;
pub use expiry::*;
pub use order::*;
pub use queues::*;
pub use reading::*;
pub use settling::*;
pub use skipping::*;

/// A future that makes a store.
pub type Making = Pin<Box<dyn Future<Output = SharedStore> + Send>>;

/// Makes an empty store with these bounds, apart from all others made.
pub type Make<'a> = &'a (dyn Fn(Bounds) -> Making + Sync);

/// One test per check for the stores that `$make: fn(Bounds) -> Making` makes.
///
/// The calling crate needs `tokio` with `macros` and `rt`.
#[macro_export]
macro_rules! store_contract {
    (@tests $make:path; $($check:ident)*) => {
        $(
            #[tokio::test]
            async fn $check() {
                $crate::store::contract::$check(&$make).await;
            }
        )*
    };
    (@run $make:ident; $($check:ident)*) => {{
        $( $check($make).await; )*
    }};
    (@names; $($check:ident)*) => {
        &[ $( stringify!($check) ),* ]
    };
    (@each $($then:tt)*) => {
        $crate::store_contract! {
            $($then)*;
            commit_order_is_the_order_of_the_calls
            appends_of_many_threads_keep_each_threads_order
            a_dropped_answer_does_not_undo_the_call
            a_batch_is_answered_item_by_item
            a_message_is_placed_once_in_every_log_that_wants_it
            a_message_crosses_into_no_other_realm
            a_queue_begins_at_the_head_of_its_log
            opening_again_updates_settings_and_keeps_the_backlog
            kind_key_and_realm_tell_queues_of_one_name_apart
            attach_times_are_kept
            a_forgotten_queue_comes_back_with_what_it_left
            a_left_over_keeps_its_log_for_itself
            a_left_over_is_refused_to_another_owner
            a_queue_is_refused_to_another_owner_until_it_is_released
            a_left_over_is_settled_like_any_other_queue
            a_left_over_is_settled_by_a_place_that_is_let_go
            a_left_over_ends_with_its_ttl
            forgetting_with_purge_leaves_nothing
            a_log_goes_with_its_last_queue
            an_unknown_queue_is_said_to_be_unknown
            looking_something_up_never_inserts
            purging_a_queue_drops_its_backlog_and_keeps_the_queue
            purging_while_others_append_loses_nothing_that_came_after
            purging_a_realm_leaves_nothing_of_it
            a_renamed_realm_keeps_everything
            a_realm_is_not_renamed_onto_another
            realms_are_known_by_whatever_is_left_in_them
            a_probe_succeeds_until_the_store_is_closed
            a_plain_queue_takes_guaranteed_entries_only
            what_no_queue_wants_is_not_stored
            a_plain_queue_made_durable_takes_every_later_entry
            a_durable_queue_made_plain_keeps_what_it_owned
            a_queue_may_change_its_class_again_and_again
            what_came_while_a_queue_was_plain_is_never_its
            a_plain_queue_does_not_keep_what_is_not_for_it
            a_page_is_bounded_by_entries
            a_page_is_bounded_by_bytes_and_a_giant_comes_alone
            reading_settles_nothing
            a_page_skips_settled_entries_and_exceptions
            entries_under_the_sent_mark_count_as_sent_once
            depth_counts_entries_bytes_and_the_oldest
            browsing_shows_everything_unsettled_and_changes_nothing
            what_a_store_holds_is_told_in_sum
            low_settles_everything_up_to_it_and_never_goes_back
            entries_settled_above_low_stay_settled
            one_queue_settles_nothing_for_another
            settling_says_whether_an_entry_was_known
            an_exception_outlives_low_and_the_log
            exceptions_come_by_due_time_then_seq
            an_exception_given_again_is_changed
            a_settled_entry_does_not_come_back_as_an_exception
            cleared_exceptions_are_settled
            a_buried_entry_is_settled_and_keeps_all_there_is_to_know
            an_exception_can_be_buried_after_low_has_passed_it
            a_revived_dead_letter_is_due_now_with_a_new_ttl
            a_dead_letter_buried_again_counts_its_rounds
            a_discarded_dead_letter_is_gone
            dead_letters_are_listed_in_pages
            dead_letters_beyond_the_bound_drop_the_oldest
            dead_letters_end_by_age
            a_dead_letter_of_a_vanished_queue_stays_dead
            a_resend_by_number_is_stored_once
            numbers_may_come_out_of_order_within_the_window
            a_resend_of_a_full_window_is_stored_once
            a_users_id_is_exact_within_its_window
            only_the_last_users_ids_are_remembered
            a_refused_message_leaves_no_mark
            a_message_that_nothing_stores_leaves_no_mark
            marks_of_one_realm_are_unknown_in_another
            a_silent_instance_is_forgotten_after_its_idle_time
            a_mark_holds_for_delayed_messages_too
            a_full_queue_refuses_for_itself
            a_message_that_no_queue_takes_is_refused
            a_queue_that_has_room_again_takes_only_what_comes_then
            exceptions_count_towards_a_full_queue
            a_full_plain_queue_counts_guaranteed_entries_only
            a_queue_that_drops_its_oldest_keeps_the_newest
            a_queue_full_of_exceptions_that_drops_its_oldest_keeps_the_newest
            dropping_the_oldest_of_one_queue_leaves_the_others
            a_full_realm_refuses
            a_bound_of_queues_that_changes_counts_from_the_next_message_on
            a_queue_that_may_have_fewer_and_drops_its_oldest_drops_down_to_that
            a_realm_has_bounds_of_its_own
            delayed_messages_are_bounded_as_those_of_a_queue_are
            a_realm_full_of_bytes_refuses_until_some_are_settled
            a_realm_full_of_bytes_refuses_even_where_the_oldest_are_dropped
            bytes_of_what_expires_may_wait_again
            bytes_of_exceptions_count_and_those_of_dead_letters_do_not
            bytes_of_removed_queues_may_wait_again
            bytes_go_with_a_realm_that_is_renamed
            a_skipped_queue_does_not_get_the_entry
            a_message_whose_every_reader_is_skipped_is_not_stored
            a_skip_is_for_queues_of_the_appends_own_logs
            a_full_queue_that_is_skipped_refuses_nothing
            a_full_queue_that_is_skipped_drops_nothing
            what_is_skipped_takes_no_room_of_the_realm
            counters_never_fall
            a_delayed_message_waits_until_it_is_due
            a_delayed_message_keeps_its_owner
            a_release_publishes_and_ends_the_delay_in_one
            a_repeat_of_a_held_message_says_that_it_is_held
            a_refused_release_keeps_its_message
            a_release_that_nobody_wants_ends_the_delay
            dropped_delayed_messages_are_gone
            delayed_messages_are_bounded
            an_expired_entry_is_never_read_and_counted_once
            expiry_counts_once_for_every_queue_that_would_have_got_it
            expired_entries_between_others_leave_those_in_order
            an_expired_exception_is_never_due_and_counted_once
            an_entry_without_expiry_stays
            room_that_expiry_made_is_used
            maintenance_says_per_realm_what_expired
            maintenance_is_done_in_bites
            a_document_is_kept_by_collection_and_key
            a_document_is_changed_only_if_its_condition_holds
            documents_are_changed_all_or_none
            an_expired_document_counts_as_absent
            maintenance_ends_expired_documents
            documents_are_listed_in_pages_by_the_bytes_of_their_keys
            a_page_of_documents_passes_expired_ones
            a_document_may_be_large_but_not_larger
            of_many_who_put_a_document_where_there_is_none_one_does
            realms_that_are_purged_or_renamed_leave_documents_alone
            a_copy_answers_every_read_like_the_original
            a_copy_goes_on_with_the_same_ids
            what_changes_during_a_copy_is_copied
            a_copy_keeps_as_many_bytes_as_the_original
            a_store_that_holds_something_takes_no_copy
            an_export_ends_with_its_cursor_or_the_next_one
            a_copy_that_does_not_lead_is_dropped_by_the_next
            a_queue_that_has_changed_its_class_is_copied
        }
    };
    ($make:path) => {
        $crate::store_contract! { @each @tests $make }
    };
}

/// The names of all checks.
pub const CHECKS: &[&str] = crate::store_contract!(@each @names);

/// Runs all checks one after the other.
///
/// # Panics
/// When a promise is broken.
pub async fn run(make: Make<'_>) {
    crate::store_contract!(@each @run make);
}

/// What must hold of a copy from a store of one kind to one of another, which
/// [`store_contract!`](crate::store_contract) checks for each kind by itself.
pub async fn copies_between(from: Make<'_>, to: Make<'_>) {
    copies::between(from, to).await;
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_check_is_on_the_list() {
        let sources = [
            include_str!("bounds.rs"),
            include_str!("classes.rs"),
            include_str!("copies.rs"),
            include_str!("dead.rs"),
            include_str!("dedupe.rs"),
            include_str!("delayed.rs"),
            include_str!("documents.rs"),
            include_str!("expiry.rs"),
            include_str!("order.rs"),
            include_str!("queues.rs"),
            include_str!("reading.rs"),
            include_str!("settling.rs"),
            include_str!("skipping.rs"),
        ];
        let checks = sources.iter().flat_map(|source| source.lines());
        let checks = checks.filter_map(|line| line.strip_prefix("pub async fn "));
        let mut written: Vec<&str> = checks.filter_map(|rest| rest.split('(').next()).collect();
        written.sort_unstable();
        let mut listed = super::CHECKS.to_vec();
        listed.sort_unstable();
        assert_eq!(listed, written);
    }
}
