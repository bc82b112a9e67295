//! The program as it is shipped has no way to be told to lose data: only the feature `sabotage` compiles that in.

#[test]
fn the_program_does_not_know_the_variable() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_holdfast")).unwrap();
    let has = |text: &str| memchr::memmem::find(&program, text.as_bytes()).is_some();
    assert!(has("HOLDFAST_LOG"), "the search finds what is there");
    assert_eq!(has("HOLDFAST_SABOTAGE"), cfg!(feature = "sabotage"));
}
