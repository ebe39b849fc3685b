//! The name by which the loader knows the library, and programs that are linked with it ask for it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcovey-preload.so");
    println!("cargo:rerun-if-changed=build.rs");
}
