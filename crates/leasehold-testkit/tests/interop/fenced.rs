//! Fencing tokens that rise over both languages.

use crate::setup::{number, setup};

#[tokio::test]
async fn own_233_fencing_tokens_rise_over_both_languages() {
    let setup = setup().await;
    let name = "fenced-rise";
    let turns = number("LEASEHOLD_TURNS", 300) / 10;
    // All processes at once, each with its token under the lock: written to one list in the order of the holds.
    let contend = async |n: usize| {
        let peer = setup.peers()[n];
        for _ in 0..turns {
            let token = if n.is_multiple_of(2) {
                peer.ask(name, &format!("token fenced {name}")).await
            } else {
                peer.ask(name, &format!("wait-token fenced {name} 60000 60000")).await
            };
            setup.server.cli(&["RPUSH", "fenced-rise:tokens", &token]);
            assert_eq!(peer.ask(name, &format!("unlock fenced {name}")).await, "released");
        }
    };
    tokio::join!(contend(0), contend(1), contend(2), contend(3));
    let tokens: Vec<u64> =
        setup.list("fenced-rise:tokens").iter().map(|token| token.parse().expect("a token")).collect();
    assert_eq!(tokens.len(), usize::try_from(turns * 4).unwrap());
    assert!(tokens.windows(2).all(|two| two[0] < two[1]), "{tokens:?}");

    // Re-entering mints a token, in either language, and both see the last one.
    let mut last = tokens[tokens.len() - 1];
    for peer in setup.peers() {
        for _ in 0..2 {
            let token = peer.ask(name, &format!("token fenced {name}")).await.parse().unwrap();
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        for peer in setup.peers() {
            assert_eq!(peer.ask("fenced-look", &format!("last-token fenced {name}")).await, last.to_string());
        }
        for _ in 0..2 {
            assert_eq!(peer.ask(name, &format!("unlock fenced {name}")).await, "released");
        }
    }
    setup.no_complaints();
}
