//! The attribute of tests that the project's harness runs: it has Rust's own name, so that a program changes its
//! harness by one line at its root and none at its tests.

use proc_macro::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// Hands a function without parameters to the harness, under its path. `#[ignore = "why"]` may follow, as with
/// Rust's own.
#[proc_macro_attribute]
pub fn test(_: TokenStream, item: TokenStream) -> TokenStream {
    let mut is_ignored = false;
    let mut kept = Vec::new();
    for token in item {
        match &token {
            TokenTree::Group(group) if begins_with(group, "ignore") => {
                is_ignored = true;
                kept.pop(); // its #
            }
            _ => kept.push(token),
        }
    }
    let Some(name) = name(&kept) else {
        return "compile_error!(\"a test is a function\");".parse().unwrap_or_default();
    };
    let entry = format!(
        "::covey_harness::inventory::submit! {{ ::covey_harness::Test {{ \
             path: concat!(module_path!(), \"::\", stringify!({name})), is_ignored: {is_ignored}, run: {name} \
         }} }}"
    );
    let entry: TokenStream = entry.parse().unwrap_or_default();
    kept.into_iter().chain(entry).collect()
}

/// What follows `fn`.
fn name(tokens: &[TokenTree]) -> Option<&Ident> {
    let at = tokens.iter().position(|token| is_word(token, "fn"))?;
    match tokens.get(at + 1)? {
        TokenTree::Ident(name) => Some(name),
        _ => None,
    }
}

fn begins_with(group: &Group, word: &str) -> bool {
    group.delimiter() == Delimiter::Bracket
        && group.stream().into_iter().next().is_some_and(|first| is_word(&first, word))
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}
