//! Counters: what the broker did since it started. They never fall (P38).
//!
//! A [`Counter`] is kept by whoever counts, so that counting costs one atomic add; looking it up by
//! its labels is for set-up paths. Series are bounded: past 1,000 of a family everything new counts
//! as `other` (P25). Knows no text format.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Series of one family before new ones become `other`.
pub const MAX_SERIES: usize = 1_000;

/// One number that only grows; clones count into the same number.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Counts `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one name, told apart by the values of their labels.
#[derive(Debug)]
pub struct Family {
    /// The name without prefix, ending in `_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// The labels; empty for a single number.
    pub labels: &'static [&'static str],
    series: Mutex<HashMap<Vec<Arc<str>>, Counter>>,
}

impl Family {
    fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self {
            name,
            help,
            labels,
            series: Mutex::new(HashMap::new()),
        }
    }

    /// The counter with these label values, in the order of [`Family::labels`]; keep it.
    pub fn counter(&self, values: &[&str]) -> Counter {
        let mut series = self.series.lock();
        let key: Vec<Arc<str>> = values.iter().map(|value| Arc::from(*value)).collect();
        if let Some(counter) = series.get(&key) {
            return counter.clone();
        }
        let key = if series.len() < MAX_SERIES {
            key
        } else {
            key.iter().map(|_| Arc::from("other")).collect()
        };
        series.entry(key).or_default().clone()
    }

    /// All series with their values now, in no order.
    pub fn samples(&self) -> Vec<(Vec<Arc<str>>, u64)> {
        let series = self.series.lock();
        series
            .iter()
            .map(|(labels, counter)| (labels.clone(), counter.get()))
            .collect()
    }

    /// The sum of all series.
    pub fn total(&self) -> u64 {
        self.series.lock().values().map(Counter::get).sum()
    }
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $field:ident: $name:literal [$($label:literal),*] $help:literal;)*) => {
        /// Every family the broker counts in.
        #[derive(Debug)]
        pub struct Metrics {
            $($(#[$doc])* pub $field: Family,)*
        }

        impl Default for Metrics {
            fn default() -> Self {
                Self {
                    $($field: Family::new($name, $help, &[$($label),*]),)*
                }
            }
        }

        impl Metrics {
            /// All families, for whoever writes them out.
            pub fn families(&self) -> Vec<&Family> {
                vec![$(&self.$field),*]
            }
        }
    };
}

metrics! {
    /// Accepted PRODUCEs.
    produced: "messages_produced_total" ["realm", "event"] "Messages accepted from producers.";
    /// Copies written to sessions, by wire key.
    delivered: "messages_delivered_total" ["realm", "event"] "Copies handed to sessions.";
    /// Stored copies.
    queued: "messages_queued_total" ["realm"] "Copies stored in queues.";
    /// Burials.
    dead_letters: "messages_dlq_total" ["realm"] "Messages given up on.";
    /// Deliveries whose ack did not come in time.
    ack_timeouts: "ack_timeout_total" ["realm"] "Deliveries that were not acknowledged in time.";
    /// Plain copies dropped because a line was full, or tracked ones whose session ended.
    dropped: "messages_dropped_total" ["realm"] "Plain copies dropped on slow or ended sessions.";
    /// Messages that outlived their ttl.
    expired: "messages_expired_total" ["realm"] "Messages that expired before delivery.";
    /// Stored copies that their subscription may not see (P30).
    hidden: "messages_hidden_total" ["realm"] "Stored copies skipped because their subscription may not see them.";
    /// Guaranteed messages that no queue wanted (P2).
    unmatched: "messages_unmatched_total" ["realm"] "Guaranteed messages that matched no queue.";
    /// PRODUCEs refused, by error code.
    refused: "messages_refused_total" ["reason"] "PRODUCEs refused.";
    /// What limits refused, by the limit's name.
    rate_limited: "rate_limited_total" ["reason"] "Messages, names, subscriptions and connections over a limit.";
    /// Attempts to read the settings file again that changed nothing because something was wrong.
    settings_failures: "settings_reload_failures_total" [] "Readings of the settings file that were refused.";
    /// Subscriptions that ended by their ttl or bound (P4).
    forgotten: "subscriptions_forgotten_total" ["realm"] "Remembered subscriptions ended by age or bound.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_labels_are_the_same_number() {
        let metrics = Metrics::default();
        metrics.produced.counter(&["default", "a"]).add(2);
        metrics.produced.counter(&["default", "a"]).add(1);
        assert_eq!(metrics.produced.samples().len(), 1);
        assert_eq!(metrics.produced.total(), 3);
    }

    #[test]
    fn series_past_the_bound_count_as_other() {
        let metrics = Metrics::default();
        for n in 0..MAX_SERIES + 50 {
            metrics.queued.counter(&[&n.to_string()]).add(1);
        }
        let samples = metrics.queued.samples();
        assert_eq!(samples.len(), MAX_SERIES + 1);
        let other = samples.iter().find(|(labels, _)| &*labels[0] == "other");
        assert_eq!(other.map(|(_, n)| *n), Some(50));
    }
}
