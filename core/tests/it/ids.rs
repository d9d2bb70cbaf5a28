//! Case B01: a message under an id of its user's, on each store, with a clock that moves.

use std::time::Duration;

use serde_json::json;

use crate::harness::{House, On, on_each_store};

on_each_store! {
    b01_an_id_is_one_message_from_any_socket_within_its_window_and_a_new_one_after_it_p16,
}

async fn b01_an_id_is_one_message_from_any_socket_within_its_window_and_a_new_one_after_it_p16(
    on: On,
) {
    let house = House::on(on).await;
    let mut c = house.consumer("c").await;
    c.subscribe(json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true }))
        .await;
    let mut sockets = [house.producer("p").await, house.producer("q").await];
    let uid = json!({ "msg_uid": "order-7" });
    let mut said = Vec::new();
    for (n, socket) in sockets.iter_mut().enumerate() {
        let answer = socket.produce("e", json!(n), uid.clone()).await;
        said.push(answer);
    }
    let duplicates: Vec<bool> = said.iter().map(|said| said["duplicate"] == true).collect();
    assert_eq!(duplicates, [false, true], "{said:?}");
    assert_eq!(c.messages(1).await, [json!(0)]);
    // The window is 5 min if nothing else is said.
    house.clock.advance(Duration::from_secs(5 * 60 + 1));
    let [p, _] = &mut sockets;
    let answer = p.produce("e", json!(2), uid).await;
    assert_ne!(answer["duplicate"], json!(true), "{answer}");
    assert_eq!(c.messages(1).await, [json!(2)]);
    assert_eq!(c.rest().await, 0);
    house.close().await;
}
