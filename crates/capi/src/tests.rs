//! That `covey.h` and the library say the same, and what the fence does.

use crate::boundary::fence;
use crate::results::{NUMBERS, Number, covey_last_error, covey_strerror, of_fault};
use covey_layout::{Element, Op};
use covey_uzura::Fault;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};

const HEADER: &str = include_str!("../include/covey.h");
const SOURCES: [&str; 6] = [
    include_str!("layouts.rs"),
    include_str!("moves.rs"),
    include_str!("results.rs"),
    include_str!("endpoint.rs"),
    include_str!("meeting.rs"),
    include_str!("operations.rs"),
];

/// Return type and argument types in C, by name.
type Prototypes = BTreeMap<String, (String, Vec<String>)>;

#[test]
fn the_header_and_the_library_have_the_same_functions() {
    let (header, library) = (in_the_header(), in_the_library());
    assert!(header.len() >= 25, "only {} functions in the header", header.len());
    for (name, prototype) in &library {
        assert_eq!(header.get(name), Some(prototype), "{name} in covey.h");
    }
    for name in header.keys() {
        assert!(library.contains_key(name), "covey.h has {name}, the library has not");
    }
}

#[test]
fn the_header_has_every_number() {
    for (number, name, _) in NUMBERS {
        assert!(constant(name, *number), "{name} = {number}");
    }
    assert_eq!(HEADER.matches(" = -").count(), NUMBERS.len() - 1);
    for element in Element::ALL {
        let name = format!("COVEY_{}", element.to_string().to_uppercase());
        assert!(constant(&name, element.number().into()), "{name}");
    }
    let ops = ["SUM", "PROD", "MIN", "MAX", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR"];
    for (number, name) in ops.into_iter().chain(["REPLACE", "NO_OP"]).enumerate() {
        assert!(constant(&format!("COVEY_{name}"), number as i32), "{name}");
        let words = format!("{:?}", Op::ALL[number]).to_uppercase();
        assert_eq!(words, name.replace('_', ""));
    }
}

#[test]
fn every_fault_of_the_engine_has_its_number() {
    for fault in Fault::ALL {
        let words = text(covey_strerror(of_fault(*fault)));
        assert_eq!(words, fault.to_string());
    }
}

#[test]
fn a_panic_becomes_a_number_and_ends_at_the_fence() {
    assert_eq!(fence(|| panic!("on purpose")), Number::Internal as i32);
    assert!(text(covey_last_error()).contains("panic"));
    assert_eq!(fence(|| Ok(())), 0);
}

#[test]
fn every_number_has_words() {
    for (number, name, words) in NUMBERS {
        assert_eq!(text(covey_strerror(*number)), words.to_str().unwrap(), "{name}");
    }
    assert!(text(covey_strerror(77)).contains("not a result"));
}

fn text(pointer: *const c_char) -> String {
    // SAFETY: both functions answer a string with an end.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

fn constant(name: &str, number: i32) -> bool {
    let text = format!(" {name} = {number}");
    HEADER
        .match_indices(&text)
        .any(|(at, _)| HEADER[at + text.len()..].starts_with([',', '\n', ' ']))
}

fn in_the_header() -> Prototypes {
    let mut plain = String::new();
    let mut rest = HEADER;
    while let Some((before, comment)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = comment.split_once("*/").expect("comments end").1;
    }
    plain.push_str(rest);
    let statements = plain.split([';', '}']).filter(|text| text.contains("covey_"));
    let prototypes = statements.filter_map(|text| {
        let (head, arguments) = text.trim().split_once('(')?;
        let head = head.lines().last()?.trim();
        let (arguments, _) = arguments.split_once(')')?;
        if head.starts_with("static") {
            return None;
        }
        let at = head.find("covey_").filter(|_| !head.contains('='))?;
        // `covey_layout *` would be found first in a type.
        let at = head.rfind("covey_").unwrap_or(at);
        let (result, name) = head.split_at(at);
        let arguments = arguments.split(',').map(str::trim).filter(|text| *text != "void");
        Some((name.to_owned(), (squeeze(result), arguments.map(type_of).collect())))
    });
    prototypes.collect()
}

/// An argument without its name.
fn type_of(argument: &str) -> String {
    let name = argument.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    squeeze(&argument[..=name.expect("an argument has a type and a name")])
}

fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" *", "*")
}

fn in_the_library() -> Prototypes {
    let mut found = Prototypes::new();
    for source in SOURCES {
        for (at, _) in source.match_indices("fn covey_") {
            let frees = source[..at].ends_with("free ");
            let (name, rest) = source[at + 3..].split_once('(').expect("arguments");
            let (arguments, rest) = rest.split_once(')').expect("an end");
            let result = match rest.trim_start().strip_prefix("->") {
                Some(result) => in_c(result.split_once('{').expect("a body").0.trim()),
                None if frees => "void".to_owned(),
                None => "int".to_owned(),
            };
            let arguments = arguments.split(',').filter(|text| !text.trim().is_empty());
            let types = arguments.map(|text| in_c(text.split_once(':').expect("a type").1.trim()));
            found.insert(name.to_owned(), (result, types.collect()));
        }
    }
    found
}

/// A type of ours as it is written in C.
fn in_c(ours: &str) -> String {
    if let Some(inner) = ours.strip_prefix("*mut ") {
        return format!("{}*", in_c(inner));
    }
    if let Some(inner) = ours.strip_prefix("*const ") {
        return format!("const {}*", in_c(inner));
    }
    match ours {
        "c_int" => "int",
        "c_char" => "char",
        "c_void" => "void",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "usize" => "size_t",
        "Layout" => "covey_layout",
        "Plan" => "covey_plan",
        "CTarget" => "covey_target",
        "CBlock" => "struct covey_block",
        "CMember" => "struct covey_member",
        "CAxis" => "struct covey_axis",
        "CBounds" => "struct covey_bounds",
        "CMemory" => "struct covey_memory",
        "CForm" => "struct covey_form",
        "CRun" => "struct covey_run",
        "u32" => "uint32_t",
        "CEndpoint" => "covey_endpoint",
        "CConfig" => "struct covey_config",
        "CStats" => "struct covey_stats",
        "CLocal" => "struct covey_local",
        "CRemote" => "struct covey_remote",
        "CMessage" => "struct covey_message",
        "CMatch" => "struct covey_match",
        "CRule" => "struct covey_rule",
        "CCompletion" => "struct covey_completion",
        "CProbe" => "struct covey_probe",
        other => panic!("what is {other} in C?"),
    }
    .to_owned()
}
