# Online, by the profile cargo-build, with an empty cargo home.
export CARGO_HOME="$BENCH/home/cargo"
cat >Cargo.toml <<'T'
[package]
name = "profiled"
version = "0.1.0"
edition = "2021"
[dependencies]
itoa = "=1.0.15"
T
mkdir src
echo 'fn main() { println!("{}", itoa::Buffer::new().format(7)); }' >src/main.rs
cargo build
[ "$(./target/debug/profiled)" = 7 ]
echo works
