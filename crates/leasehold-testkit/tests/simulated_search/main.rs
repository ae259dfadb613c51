use leasehold_testkit::search::simulated;
#[test]
fn one() {
    let from: u64 = std::env::var("FROM").map_or(0, |s| s.parse().unwrap());
    let to: u64 = std::env::var("TO").map_or(from + 10, |s| s.parse().unwrap());
    let begun = tokio::time::Instant::now();
    let mut steps = 0;
    for seed in from..to {
        let played = simulated::run(seed);
        steps += played.steps;
        if std::env::var("TRACE").is_ok() {
            println!("{}", played.trace());
        }
        println!("{played} {:?} {steps}", begun.elapsed());
    }
}
