//! What passes and what does not, on a clock that is an argument.

use std::net::IpAddr;
use std::time::Duration;

use super::*;

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn caps(messages: f64, bytes: f64) -> Caps {
    let cap = |most: f64| (most > 0.0).then_some(Cap::At(most));
    Caps {
        messages_per_second: cap(messages),
        bytes_per_second: cap(bytes),
        ..Caps::default()
    }
}

fn passed(limits: &mut SessionLimits, count: usize, bytes: usize, now: Duration) -> usize {
    (0..count)
        .filter(|_| limits.message(bytes, now).is_ok())
        .count()
}

#[test]
fn a_burst_of_three_seconds_passes_and_then_the_rate() {
    let mut limits = SessionLimits::new(&caps(20.0, 0.0), at(5.0)).unwrap();
    assert_eq!(passed(&mut limits, 500, 10, at(5.0)), 60);
    assert_eq!(passed(&mut limits, 500, 10, at(6.0)), 20);
    assert_eq!(passed(&mut limits, 500, 10, at(100.0)), 60);
    let refused = limits.message(10, at(100.0)).unwrap_err();
    assert_eq!(
        (refused.reason, refused.retry_after),
        ("messages_per_second", Some(1))
    );
}

#[test]
fn a_message_over_the_burst_never_passes_and_says_so() {
    let mut limits = SessionLimits::new(&caps(0.0, 1000.0), at(0.0)).unwrap();
    let refused = limits.message(2001, at(50.0)).unwrap_err();
    assert_eq!(
        (refused.reason, refused.retry_after),
        ("message_too_large", None)
    );
    assert!(limits.message(2000, at(50.0)).is_ok());
    let refused = limits.message(1500, at(50.0)).unwrap_err();
    assert_eq!(
        (refused.reason, refused.retry_after),
        ("bytes_per_second", Some(2))
    );
}

#[test]
fn what_one_rate_refuses_costs_nothing_of_the_other() {
    let mut limits = SessionLimits::new(&caps(1.0, 10.0), at(0.0)).unwrap();
    assert_eq!(passed(&mut limits, 9, 20, at(0.0)), 1);
    assert_eq!(passed(&mut limits, 9, 1, at(0.1)), 1);
    assert_eq!(passed(&mut limits, 9, 1, at(2.0)), 3);
}

#[test]
fn rates_that_change_keep_what_was_used_up() {
    let full = SessionLimits::new(&caps(10.0, 0.0), at(0.0)).unwrap();
    let mut limits = full;
    assert_eq!(passed(&mut limits, 100, 1, at(0.0)), 30);
    let mut slower = limits.renewed(&caps(1.0, 0.0), at(0.0)).unwrap();
    assert_eq!(passed(&mut slower, 100, 1, at(0.0)), 0);
    assert_eq!(passed(&mut slower, 100, 1, at(2.0)), 2);
    let mut lower = full.renewed(&caps(2.0, 0.0), at(0.0)).unwrap();
    assert_eq!(passed(&mut lower, 100, 1, at(0.0)), 6);
    assert_eq!(full.renewed(&caps(0.0, 0.0), at(0.0)), None);
}

#[test]
fn a_realm_says_its_own_and_counts_by_default_only_with_authentication() {
    let realm = RealmId::parse("acme").unwrap();
    let mut limits = Limits::default();
    assert_eq!(limits.caps(&realm, false), Caps::default());
    let guarded = limits.caps(&realm, true);
    assert_eq!(guarded.max_registrations_per_socket, Some(Cap::At(64.0)));
    limits.base = caps(10.0, 100.0);
    let own = Caps {
        messages_per_second: Some(Cap::Unlimited),
        max_subscriptions_per_socket: Some(Cap::Unlimited),
        ..Caps::default()
    };
    limits.realms.insert(realm.clone(), own);
    let of_realm = limits.caps(&realm, true);
    assert_eq!(of_realm.messages(), None);
    assert_eq!(of_realm.bytes().map(|rate| rate.burst), Some(200.0));
    let uses = RealmUses::default();
    let mut used = uses.join(&realm);
    used.set(0, 5_000);
    assert!(used.may_subscribe(&of_realm).is_ok());
    assert!(
        used.may_subscribe(&limits.caps(&RealmId::default(), true))
            .is_err()
    );
    limits.enabled = false;
    assert_eq!(limits.caps(&realm, true), Caps::default());
}

#[test]
fn counts_of_a_realm_fall_with_its_sessions_and_looking_leaves_nothing() {
    let realm = RealmId::parse("acme").unwrap();
    let uses = RealmUses::default();
    let (mut one, two) = (uses.join(&realm), uses.join(&realm));
    let caps = Caps {
        max_registrations_per_realm: Some(Cap::At(2.0)),
        ..Caps::default()
    };
    one.set(2, 0);
    let refused = two.may_register(&caps).unwrap_err();
    assert_eq!(
        (refused.reason, refused.retry_after),
        ("max_registrations_per_realm", Some(60))
    );
    one.set(1, 0);
    assert!(two.may_register(&caps).is_ok());
    drop(one);
    drop(two);
    let mut again = uses.join(&realm);
    again.set(1, 0);
    assert!(again.may_register(&caps).is_ok());
}

#[test]
fn connections_of_an_address_are_counted_and_given_back() {
    let addresses = Addresses::default();
    let caps = AddressCaps {
        max_connections: Some(2),
        ..AddressCaps::default()
    };
    let one: IpAddr = "2001:db8::1".parse().unwrap();
    let neighbour: IpAddr = "2001:db8::ffff:2".parse().unwrap();
    let other: IpAddr = "2001:db8:1::1".parse().unwrap();
    let first = addresses.admit(one, &caps, at(0.0)).unwrap();
    let _second = addresses.admit(neighbour, &caps, at(0.0)).unwrap();
    let refused = addresses.admit(one, &caps, at(0.0)).unwrap_err();
    assert_eq!(
        (refused.reason, refused.retry_after),
        ("max_connections_per_ip", Some(30))
    );
    assert!(addresses.admit(other, &caps, at(0.0)).is_ok());
    drop(first);
    assert!(addresses.admit(one, &caps, at(0.0)).is_ok());
}

#[test]
fn new_connections_come_at_a_rate_and_the_table_stays_small() {
    let addresses = Addresses::default();
    let caps = AddressCaps {
        connections_per_minute: Some(2),
        ..AddressCaps::default()
    };
    let one: IpAddr = "192.0.2.1".parse().unwrap();
    for _ in 0..2 {
        drop(addresses.admit(one, &caps, at(0.0)).unwrap());
    }
    let refused = addresses.admit(one, &caps, at(0.0)).unwrap_err();
    assert_eq!(
        (refused.reason, refused.retry_after),
        ("connections_per_minute_per_ip", Some(30))
    );
    assert!(addresses.admit(one, &caps, at(30.0)).is_ok());
    for n in 0..20_000u32 {
        let address = IpAddr::from(n.to_be_bytes());
        drop(addresses.admit(address, &caps, at(100.0 + f64::from(n))));
    }
    assert!(addresses.len() <= 2_048, "{}", addresses.len());
}

#[test]
fn only_the_right_most_hop_that_is_no_proxy_is_the_client() {
    let proxies = Proxies::parse(["10.0.0.0/8", "::1"]).unwrap();
    let client = |peer: &str, values: &[&str]| {
        let client = proxies.client(peer.parse().unwrap(), values.iter().copied());
        client.to_string()
    };
    assert_eq!(client("203.0.113.9", &["192.0.2.1"]), "203.0.113.9");
    assert_eq!(client("10.0.0.1", &["192.0.2.66, 192.0.2.1"]), "192.0.2.1");
    let two = ["192.0.2.66", "192.0.2.1, 10.1.2.3"];
    assert_eq!(client("::1", &two), "192.0.2.1");
    assert_eq!(
        client("::ffff:10.0.0.1", &["[2001:db8::7]:99"]),
        "2001:db8::7"
    );
    assert_eq!(client("10.0.0.1", &["192.0.2.1, rubbish"]), "10.0.0.1");
    assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
    assert_eq!(Proxies::parse(["10.0.0.0/40"]), Err("10.0.0.0/40"));
}
