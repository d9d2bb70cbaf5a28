//! Several threads at once, each with a runtime of its own.

use super::harness::*;
use crate::broker::Leave;

/// A thread with a runtime of its own, as the threads of connections are.
fn thread(work: impl Future<Output = ()> + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(work);
    })
}

#[tokio::test]
async fn producers_on_many_threads_lose_nothing_and_keep_their_order_while_others_come_and_go() {
    let world = std::sync::Arc::new(world().await);
    let durable = world.consumer("d").await;
    durable.subscribe(wish("d", "x").durable()).await.unwrap();
    let plain = world.consumer("c").await;
    plain.subscribe(wish("c", "topic:x/#")).await.unwrap();
    let shared = world.clone();
    let mut threads = vec![thread(async move {
        for n in 0..100 {
            let name = format!("n{n}");
            let client = shared.consumer(&name).await;
            client.subscribe(wish(&name, "x")).await.unwrap();
            client
                .subscribe(wish(&name, &format!("e{n}")))
                .await
                .unwrap();
            client.leave(Leave::Closed);
        }
    })];
    for producer in 0..4 {
        let shared = world.clone();
        threads.push(thread(async move {
            let name = format!("p{producer}");
            let client = shared.producer(&name);
            for n in 0..300 {
                let body = format!("{producer}:{n}");
                let request = if n % 3 == 0 {
                    guaranteed(&name, "x", &body)
                } else {
                    message(&name, "x", &body)
                };
                client.publish(request).await.unwrap();
            }
        }));
    }
    for client in [&durable, &plain] {
        client.wait_for(1_200).await;
        let bodies = client.bodies();
        for producer in 0..4 {
            let own = bodies
                .iter()
                .filter_map(|body| body.strip_prefix(&format!("{producer}:")));
            let own: Vec<usize> = own.map(|n| n.parse().unwrap()).collect();
            assert_eq!(own, (0..300).collect::<Vec<_>>());
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
}
