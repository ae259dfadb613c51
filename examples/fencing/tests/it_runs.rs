//! The example has the documented output.

use std::process::Command;

#[test]
fn the_example_shows_a_lost_update_without_a_fence_and_a_refusal_with_a_fence() {
    let output = Command::new(env!("CARGO_BIN_EXE_fencing")).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let expected = "\
Without the fence:
  Ann, token 1, reads 0
  Bob, token 2, reads 0
  Bob, token 2, writes 50
  Ann, token 1, writes 100
  balance 100: 50 of 150 deposited are gone

With the fence:
  Ann, token 3, reads 0
  Bob, token 4, reads 0
  Bob, token 4, writes 50
  Ann, token 3, is refused 100
  balance 50: nothing is lost, and Ann knows that she has to start again
";
    assert_eq!(text, expected);
}
